// TracedPasses: whether what a coordinator has learnt of the order of visits is of use.
#pragma once

#include <cstdint>

namespace pliant::sharded {

/// Passes that came to their end, and those of them whose visits all came in the order of a trace that was complete
/// before: only in these is anything gathered ahead. Zeros where the coordinator keeps no trace.
struct TracedPasses {
  int64_t all = 0;
  int64_t followed = 0;
};

}  // namespace pliant::sharded
