// Frame: what one rank tells another over a network. Payload that does not fit behind it follows as a message of its
// own.
#pragma once

#include <cstdint>

#include "common/exchange/segment.hpp"

namespace pliant::accelerator {

/// Between machines of one byte order; a hello says whether the other is one of the same build.
struct Frame {
  enum Kind : uint32_t {
    kHello = 1,   ///< the first: words hold the secret
    kTicks = 2,   ///< words: stage, ticks, ticks taken so far
    kPosted = 3,  ///< a chunk of a message; words: posted, slot, count, dtype
    kTurned = 4,  ///< words: wanted, taken
    kFailed = 5,  ///< words: FailureCause::packed
    kLeft = 6,
    kAlive = 7,
  };
  uint32_t kind = 0;
  uint32_t layout = kLayout;
  uint64_t received = 0;  ///< frames from the receiver of this one that have arrived so far
  uint64_t words[4] = {};
  uint64_t where = 0;  ///< of the payload, from the begin of the segment
  uint64_t bytes = 0;  ///< of the payload
  CallRecord call = {};

  static constexpr uint32_t kLayout = 0x46500002;  ///< changes with this struct
};

}  // namespace pliant::accelerator
