// Balancers that deal blocks out like cards: in runs, in turn, or sorted by cost.
#pragma once

#include "blocks.hpp"

namespace pliant::balancer {

/// Runs of consecutive blocks in rank order; the first ranks have one more where they do not divide. O(n).
Ranks deal_runs(size_t blocks, int64_t world_size);

/// Block i to rank i modulo world_size. O(n).
Ranks deal_in_turn(size_t blocks, int64_t world_size);

/// Cuts the blocks into windows of `window` * world_size consecutive ones (0: one window of all) and sorts each from
/// the costliest down. world_size blocks that follow each other there are dealt one to each rank, the costliest to the
/// rank with the least so far. So all ranks have equal counts, and their k-th costliest blocks are alike. O(n log n).
Ranks deal_sorted(Costs costs, int64_t world_size, int64_t window);

}  // namespace pliant::balancer
