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
  return range != world_sizes.end() && range->first <= world_size && (world_size - range->first) % range->step == 0;
}

int64_t Plan::largest_valid(int64_t at_most) const {
  const auto range = range_at(world_sizes, at_most);
  if (range != world_sizes.end() && range->first <= at_most) return at_most - (at_most - range->first) % range->step;
  return range == world_sizes.begin() ? 0 : std::prev(range)->last;
}

int64_t Plan::smallest_valid(int64_t at_least) const {
  const auto range = range_at(world_sizes, at_least);
  if (range == world_sizes.end()) return 0;
  if (range->first >= at_least) return range->first;
  const int64_t past = (at_least - range->first) % range->step;
  return past == 0 ? at_least : at_least + (range->step - past);  // at most last, which step reaches
}

int64_t Plan::count() const {
  int64_t sizes = 0;
  for (const WorldRange& range : world_sizes) sizes += (range.last - range.first) / range.step + 1;
  return sizes;
}

std::string Plan::explain_invalid(int64_t world_size) const {
  const std::string text = fmt::format("world size {} is not valid for global batch {}", world_size, global_batch);
  if (world_sizes.empty()) return text + "; no world size is";
  const int64_t below = world_size > 1 ? largest_valid(world_size - 1) : 0;
  const int64_t above = world_size < std::numeric_limits<int64_t>::max() ? smallest_valid(world_size + 1) : 0;
  if (above == 0) return fmt::format("{}; nearest valid: {}", text, below);
  return below == 0 ? fmt::format("{}; nearest valid: {}", text, above)
                    : fmt::format("{}; nearest valid: {}, {}", text, below, above);
}

}  // namespace pliant
