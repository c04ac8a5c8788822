// Comm: the handle of a communicator of GenericCollectives, with its groups.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/comm_state.hpp"
#include "collectives/transport/message.hpp"

namespace pliant::collectives {

class Comm {
 public:
  Comm(GenericCollectives& owner, std::unique_ptr<CommState> state) : owner_(owner), state_(std::move(state)) {}
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  /// Now, or in a group at its end.
  void enqueue(CommState::Body collective, pliant_stream* stream);
  void enqueue(const Message& message, pliant_stream* stream);
  void begin_group();
  void end_group();
  [[nodiscard]] CommState& state() const { return *state_; }

 private:
  struct Open {
    std::vector<CommState::Body> collectives;
    std::vector<Message> messages;
    pliant_stream* stream = nullptr;
  };
  /// The group that is open, or nullptr.
  Open* group_for(pliant_stream* stream);

  GenericCollectives& owner_;
  std::unique_ptr<CommState> state_;
  std::mutex opening_;
  std::optional<Open> open_;
};

}  // namespace pliant::collectives
