// Turns: in which order the steps of a communicator run, and its first failure, which ends all waits for a turn.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

#include "pliant/sdk/failure.hpp"

namespace pliant::collectives {

/// Any thread may call.
class Turns {
 public:
  /// Until all steps before `step`, which are numbered from 0, have ended. Throws the failure.
  void await(uint64_t step);
  void end(uint64_t step);

  /// False: another failure was first.
  bool fail(const sdk::Failure& failure);
  [[nodiscard]] std::optional<sdk::Failure> failure() const;
  /// Throws the failure.
  void check() const;

  /// The ranks have agreed on how they exchange. False: the communicator has failed by now.
  bool set_agreed();
  /// Until then, or `end` if there is one. Throws the failure, and PLIANT_DEADLINE_EXCEEDED.
  void await_agreement(std::optional<std::chrono::steady_clock::time_point> end);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t turn_ = 0;  ///< the step that may run
  std::optional<sdk::Failure> failure_;
  bool has_agreed_ = false;
};

}  // namespace pliant::collectives
