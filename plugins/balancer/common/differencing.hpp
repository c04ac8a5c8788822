// Largest differencing, k-way: N. Karmarkar and R. M. Karp, "The differencing method of set partitioning", UCB/CSD
// 82/113 (1982).
#pragma once

#include "blocks.hpp"

namespace pliant::balancer {

/// Keeps partial partitions into world_size parts; the two with the largest difference between their parts become one,
/// the largest part of one with the smallest of the other, until one is left. It begins with one block in each; the
/// largest load is then at most 4/3 - 1/(3 world_size) times the least possible one, 7/6 for two ranks (Michiels,
/// Korst, Aarts and van Leeuwen, "Performance ratios of the Karmarkar-Karp differencing method", 2007). `equal_counts`:
/// it begins with world_size blocks of like cost in each, one a part, so that counts differ by at most one; the bound
/// does not hold then. O(n (log n + world_size)); with equal counts O(n (log n + log world_size)).
Ranks largest_differencing(Costs costs, int64_t world_size, bool equal_counts);

}  // namespace pliant::balancer
