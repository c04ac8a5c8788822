// Longest processing time first: R. L. Graham, "Bounds on multiprocessing timing anomalies", SIAM J. Appl. Math. 17
// (1969).
#pragma once

#include "blocks.hpp"

namespace pliant::balancer {

/// Blocks from the costliest down, each to the rank with the least so far (the lowest of those). The largest load is at
/// most 4/3 - 1/(3 world_size) times the least possible one. `equal_counts`: only to ranks that may still have one, so
/// that counts differ by at most one; the bound does not hold then. O(n (log n + log world_size)).
Ranks longest_first(Costs costs, int64_t world_size, bool equal_counts);

}  // namespace pliant::balancer
