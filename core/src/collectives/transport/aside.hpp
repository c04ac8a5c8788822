// Aside: copies of what a call sends from where it also receives, so that all of it goes as it was when the call began.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/transport/message.hpp"
#include "collectives/transport/steps.hpp"

namespace pliant::collectives {

/// Device memory, until it is destroyed.
class Aside {
 public:
  Aside(const Steps& steps, int32_t device_index, pliant_stream* on)
      : steps_(steps), device_index_(device_index), on_(on) {}
  /// Waits for what is enqueued.
  ~Aside();
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  /// Messages of one call: enqueues copies of those that another would overwrite, which are sent from there now.
  void put(std::vector<Message>& messages);

 private:
  void put_one(Message& sent);

  const Steps& steps_;
  const int32_t device_index_;
  pliant_stream* const on_;
  std::vector<sdk::OwnedMemory> copies_;
};

}  // namespace pliant::collectives
