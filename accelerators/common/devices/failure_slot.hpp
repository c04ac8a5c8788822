// FailureSlot: what went wrong in a stream's work, until somebody is told.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "pliant/sdk/failure.hpp"

namespace pliant::devices {

/// The first failure of a stream's work that nobody has been told of yet. All calls may come from any thread.
class FailureSlot {
 public:
  /// `at` is the number of the work that failed.
  void put(const sdk::Failure& failure, uint64_t at);
  /// Throws the failure, and forgets it, if work number `last` or an earlier one has failed.
  void tell(uint64_t last);
  /// Work number `last` or an earlier one has failed, and nobody was told.
  [[nodiscard]] bool holds(uint64_t last) const;

 private:
  mutable std::mutex mutex_;
  std::optional<sdk::Failure> failure_;
  uint64_t at_ = 0;
};

}  // namespace pliant::devices
