// FailureCause: why a communicator is over, in one word that fits into shared memory, and in words for people.
#pragma once

#include <cstdint>

#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

struct FailureCause {
  enum Kind : uint8_t {
    kNone = 0,
    kDied,       ///< the process of `rank` ended without leaving
    kMakerDied,  ///< the process that made the id ended before it joined
    kLeft,       ///< `rank` destroyed the communicator while it was needed
    kInjected,   ///< the simulator took `rank` away
    kAborted,    ///< `rank` called abort
    kMismatch,   ///< `rank` saw that another rank called something else
    kDestroyed,  ///< this rank destroyed the communicator while work was enqueued
    kUnwatched,  ///< this process cannot watch `rank`; detail is errno
  };
  Kind kind = kNone;
  int32_t rank = -1;   ///< -1 .. 2^20
  int32_t detail = 0;  ///< pid or errno

  [[nodiscard]] uint64_t packed() const;
  static FailureCause unpack(uint64_t word);
  /// As seen by rank `own`.
  [[nodiscard]] sdk::Failure to_failure(int32_t own) const;
};

}  // namespace pliant::accelerator
