// Dealing blocks out: runs, turns, sorted windows.
#include "dealing.hpp"

namespace pliant::balancer {

Ranks deal_runs(size_t blocks, int64_t world_size) {
  const Counts counts(blocks, world_size);
  Ranks ranks;
  ranks.reserve(blocks);
  for (int64_t rank = 0; ranks.size() < blocks; ++rank) {
    const int64_t count = counts.least + (rank < counts.larger ? 1 : 0);
    ranks.insert(ranks.end(), static_cast<size_t>(count), static_cast<int32_t>(rank));
  }
  return ranks;
}

Ranks deal_in_turn(size_t blocks, int64_t world_size) {
  Ranks ranks(blocks);
  for (size_t block = 0; block < blocks; ++block) {
    ranks[block] = static_cast<int32_t>(static_cast<int64_t>(block) % world_size);
  }
  return ranks;
}

namespace {

/// Deals the blocks `sorted` (costliest first) in groups of one block a rank.
void deal_groups(Costs costs, std::span<const uint32_t> sorted, std::vector<int64_t>& load, Ranks& ranks) {
  std::vector<int32_t> least_first(load.size());
  std::iota(least_first.begin(), least_first.end(), 0);
  for (size_t first = 0; first < sorted.size(); first += load.size()) {
    std::sort(least_first.begin(), least_first.end(), [&load](int32_t a, int32_t b) {
      const int64_t of_a = load[static_cast<size_t>(a)];
      const int64_t of_b = load[static_cast<size_t>(b)];
      return of_a != of_b ? of_a < of_b : a < b;
    });
    const size_t count = std::min(load.size(), sorted.size() - first);
    for (size_t k = 0; k < count; ++k) {
      const uint32_t block = sorted[first + k];
      ranks[block] = least_first[k];
      load[static_cast<size_t>(least_first[k])] += costs[block];
    }
  }
}

}  // namespace

Ranks deal_sorted(Costs costs, int64_t world_size, int64_t window) {
  const auto width = static_cast<size_t>(world_size);
  // A window of more steps than there are blocks holds all of them, so the product below cannot overflow.
  const bool whole = window == 0 || static_cast<size_t>(window) >= costs.size();
  const size_t in_window = whole ? std::max<size_t>(costs.size(), 1) : static_cast<size_t>(window) * width;
  Ranks ranks(costs.size());
  std::vector<int64_t> load(width);
  for (size_t first = 0; first < costs.size(); first += in_window) {
    const size_t count = std::min(in_window, costs.size() - first);
    std::vector<uint32_t> sorted = costliest_first(costs.subspan(first, count));
    for (uint32_t& block : sorted) block += static_cast<uint32_t>(first);
    deal_groups(costs, sorted, load, ranks);
  }
  return ranks;
}

}  // namespace pliant::balancer
