// What all balancers work on: the costs of blocks, and how many blocks a rank may have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace pliant::balancer {

using Costs = std::span<const int64_t>;  ///< of each block, >= 0; their sum fits int64
using Ranks = std::vector<int32_t>;      ///< of each block

/// Equal counts: every rank has `least` blocks, `larger` of the ranks one more.
struct Counts {
  int64_t least = 0;
  int64_t larger = 0;

  Counts(size_t blocks, int64_t world_size)
      : least(static_cast<int64_t>(blocks) / world_size), larger(static_cast<int64_t>(blocks) % world_size) {}
};

/// Indices of `costs` from the costliest to the cheapest; blocks of one cost in the order of the batch.
inline std::vector<uint32_t> costliest_first(Costs costs) {
  std::vector<uint32_t> order(costs.size());
  std::iota(order.begin(), order.end(), uint32_t{0});
  std::sort(order.begin(), order.end(),
            [costs](uint32_t a, uint32_t b) { return costs[a] != costs[b] ? costs[a] > costs[b] : a < b; });
  return order;
}

/// The load of each rank.
inline std::vector<int64_t> loads(Costs costs, const Ranks& ranks, int64_t world_size) {
  std::vector<int64_t> sums(static_cast<size_t>(world_size));
  for (size_t block = 0; block < costs.size(); ++block) sums[static_cast<size_t>(ranks[block])] += costs[block];
  return sums;
}

}  // namespace pliant::balancer
