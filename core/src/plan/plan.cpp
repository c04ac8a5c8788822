// Plan: which world sizes are valid, and words for those that are not.
#include "pliant/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace pliant {
namespace {

/// The first range that ends at or after `world_size`.
auto range_at(const std::vector<WorldRange>& ranges, int64_t world_size) {
  return std::lower_bound(ranges.begin(), ranges.end(), world_size,
                          [](const WorldRange& range, int64_t size) { return range.last < size; });
}

}  // namespace

bool Plan::valid(int64_t world_size) const {
  const auto range = range_at(world_sizes, world_size);
  return range != world_sizes.end() && range->first <= world_size;
}

int64_t Plan::largest_valid(int64_t at_most) const {
  const auto range = range_at(world_sizes, at_most);
  if (range != world_sizes.end() && range->first <= at_most) return at_most;
  return range == world_sizes.begin() ? 0 : std::prev(range)->last;
}

int64_t Plan::count() const {
  int64_t sizes = 0;
  for (const WorldRange& range : world_sizes) sizes += range.last - range.first + 1;
  return sizes;
}

std::string Plan::explain_invalid(int64_t world_size) const {
  const std::string text = fmt::format("world size {} is not valid for global batch {}", world_size, global_batch);
  if (world_sizes.empty()) return text + "; no world size is";
  const int64_t below = world_size > 1 ? largest_valid(world_size - 1) : 0;
  const auto range =
      world_size < std::numeric_limits<int64_t>::max() ? range_at(world_sizes, world_size + 1) : world_sizes.end();
  if (range == world_sizes.end()) return fmt::format("{}; nearest valid: {}", text, below);
  const int64_t above = std::max(range->first, world_size + 1);
  return below == 0 ? fmt::format("{}; nearest valid: {}", text, above)
                    : fmt::format("{}; nearest valid: {}, {}", text, below, above);
}

}  // namespace pliant
