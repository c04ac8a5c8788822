// What the rows of an epoch fill of their budget, from the sizes of their entries.
#include "packing_report.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "lower_bound.hpp"

namespace pliant::sampler {

uint64_t detail::saturated(Wide sum) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  return sum > kMost ? kMost : static_cast<uint64_t>(sum);
}

void SizeCounts::list(std::vector<int64_t>& sizes, std::vector<uint64_t>& counts) const {
  for (size_t size = 0; size < dense_.size(); ++size) {
    if (dense_[size] == 0) continue;
    sizes.push_back(static_cast<int64_t>(size));
    counts.push_back(dense_[size]);
  }
  std::vector<std::pair<int64_t, uint64_t>> large(sparse_.begin(), sparse_.end());
  std::sort(large.begin(), large.end());
  for (const auto& [size, count] : large) {
    sizes.push_back(size);
    counts.push_back(count);
  }
}

sdk::PackingReport report_counted(const CountedSizes& counted, int64_t budget, uint64_t most_in_pack, int32_t unit) {
  sdk::PackingReport report;
  report.budget = budget;
  report.unit = unit;
  report.used = detail::saturated(counted.used);
  if (most_in_pack != 0) report.least_rows = detail::packs_for(counted.entries, most_in_pack);
  if (budget == 0) return report;
  std::vector<int64_t> sizes;
  std::vector<uint64_t> counts;
  counted.by_size.list(sizes, counts);
  const size_t empty = !sizes.empty() && sizes.front() == 0 ? 1 : 0;  // needs room in no row that is there anyway
  const uint64_t least =
      fewest_packs(std::span(sizes).subspan(empty), std::span(counts).subspan(empty), budget, most_in_pack);
  report.least_rows = std::max({report.least_rows, least, uint64_t{counted.entries == 0 ? 0U : 1U}});
  return report;
}

sdk::PackingReport report_padded(const sdk::PackedEpoch& epoch, const PaddedRule& rule, int32_t unit) {
  sdk::PackingReport report;
  report.budget = rule.budget;
  report.unit = unit;
  SizeCounts by_length;
  detail::Wide used = 0;
  epoch.for_each_row([&](std::span<const int64_t>, std::span<const int64_t> tokens) {
    int64_t longest = 0;
    for (const int64_t one : tokens) {
      longest = std::max(longest, one);
      by_length.add(one);
    }
    used += rule.used(longest, tokens.size());
  });
  report.used = detail::saturated(used);
  std::vector<int64_t> lengths;
  std::vector<uint64_t> counts;
  by_length.list(lengths, counts);
  report.least_rows = fewest_padded_packs(lengths, counts, [&](int64_t length) { return rule.capacity(length); });
  return report;
}

}  // namespace pliant::sampler
