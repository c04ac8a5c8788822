// Aside: copies of what a call sends from where it also receives, so that all of it goes as it was when the call began.
#pragma once

#include <vector>

#include "collectives/comm_state.hpp"

namespace pliant::detail {

/// Device memory, until it is destroyed.
class Aside {
 public:
  Aside(const GenericCollectives::Shared& shared, pliant_stream* on) : shared_(shared), on_(on) {}
  /// Waits for what is enqueued.
  ~Aside();
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  /// Messages of one call: enqueues copies of those that another would overwrite, which are sent from there now.
  void put(std::vector<GenericCollectives::Comm::Message>& messages);

 private:
  void put_one(GenericCollectives::Comm::Message& sent);

  const GenericCollectives::Shared& shared_;
  pliant_stream* const on_;
  std::vector<sdk::OwnedMemory> copies_;
};

}  // namespace pliant::detail
