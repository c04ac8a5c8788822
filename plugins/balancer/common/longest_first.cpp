// Longest processing time first, on a heap of ranks.
#include "longest_first.hpp"

#include <functional>
#include <queue>
#include <utility>

namespace pliant::balancer {

Ranks longest_first(Costs costs, int64_t world_size, bool equal_counts) {
  using Loaded = std::pair<int64_t, int32_t>;  // load, rank
  std::vector<Loaded> idle;
  for (int32_t rank = 0; rank < world_size; ++rank) idle.emplace_back(0, rank);
  std::priority_queue<Loaded, std::vector<Loaded>, std::greater<>> least(std::greater<>(), std::move(idle));
  const Counts counts(costs.size(), world_size);
  std::vector<int64_t> count(static_cast<size_t>(world_size));
  int64_t larger = counts.larger;  // ranks that may still become one block larger than the least
  Ranks ranks(costs.size());
  for (const uint32_t block : costliest_first(costs)) {
    // A rank that is full stays so: it leaves the heap for good.
    while (equal_counts) {
      const int64_t has = count[static_cast<size_t>(least.top().second)];
      if (has < counts.least || (has == counts.least && larger > 0)) break;
      least.pop();
    }
    auto [load, rank] = least.top();
    least.pop();
    ranks[block] = rank;
    if (count[static_cast<size_t>(rank)]++ == counts.least) --larger;
    least.emplace(load + costs[block], rank);
  }
  return ranks;
}

}  // namespace pliant::balancer
