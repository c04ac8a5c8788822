// TracedPasses: passes of a rank, whether what its coordinator has learnt of their order is of use, and their gathers.
#pragma once

#include <cstdint>

namespace pliant::sharded {

struct TracedPasses {
  /// Passes that came to their end, and those of them whose visits all came in the order of a trace that was complete
  /// before: only in these is anything gathered ahead. Zeros where the coordinator keeps no trace.
  int64_t all = 0;
  int64_t followed = 0;
  int64_t gathered = 0;         ///< parameters that became whole, each as often as it did
  uint64_t gathered_bytes = 0;  ///< of these, whole
};

}  // namespace pliant::sharded
