// FailureCause: why a communicator is over, in one word that fits into shared memory, and in words for people.
#pragma once

#include <cstdint>
#include <string>

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
    // Across machines:
    kDisconnected,  ///< the connection with `rank` is over
    kSilent,        ///< nothing was heard of `rank` for detail seconds
    kMakerGone,     ///< the rendezvous closed before all had joined
    kUnreachable,   ///< there is no way to the rendezvous; detail is errno
    kNotConnected,  ///< rank detail has no way to `rank`
    kRankTaken,     ///< another process has joined as `rank`
    kBroken,        ///< `rank` sent what no rank sends
  };
  Kind kind = kNone;
  int32_t rank = -1;   ///< -1 .. 2^20
  int32_t detail = 0;  ///< pid, errno, seconds or another rank

  [[nodiscard]] uint64_t packed() const;
  static FailureCause unpack(uint64_t word);
  /// As seen by rank `own`, and about the rank that is to blame where that is another; `meeting`: Link::meeting().
  [[nodiscard]] sdk::Failure to_failure(int32_t own, const std::string& meeting = {}) const;

 private:
  [[nodiscard]] sdk::Failure in_words(int32_t own, const std::string& meeting) const;
  [[nodiscard]] int32_t about(int32_t own) const;
};

}  // namespace pliant::accelerator
