// What the rows of an epoch fill of their budget, and the fewest rows that their entries could have been packed into.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lower_bound.hpp"
#include "padded.hpp"
#include "pliant/sdk/packing.hpp"

namespace pliant::sampler {

/// How often each size >= 0 occurs. Takes no memory for the sequences.
class SizeCounts {
 public:
  void add(int64_t size) {
    if (size < kDense) {
      ++dense_[static_cast<size_t>(size)];
    } else {
      ++sparse_[size];
    }
  }
  /// Appends sizes in ascending order and their numbers.
  void list(std::vector<int64_t>& sizes, std::vector<uint64_t>& counts) const {
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

 private:
  static constexpr int64_t kDense = int64_t{1} << 16U;
  std::vector<uint64_t> dense_ = std::vector<uint64_t>(static_cast<size_t>(kDense));
  std::unordered_map<int64_t, uint64_t> sparse_;
};

namespace detail {

inline uint64_t saturated(Wide sum) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  return sum > kMost ? kMost : static_cast<uint64_t>(sum);
}
inline Wide unsigned_of(int64_t value) {
  return static_cast<uint64_t>(value);
}

}  // namespace detail

/// Rows whose entries add up: size(id, tokens), 0 .. budget, is what an entry counts. budget 0 = none; most_in_pack 0 =
/// no limit.
template <class Size>
sdk::PackingReport report_sums(const sdk::PackedEpoch& epoch, int64_t budget, uint64_t most_in_pack, int32_t unit,
                               Size&& size) {
  sdk::PackingReport report;
  report.budget = budget;
  report.unit = unit;
  SizeCounts by_size;
  uint64_t entries = 0;
  detail::Wide used = 0;
  epoch.for_each_row([&](std::span<const int64_t> ids, std::span<const int64_t> tokens) {
    entries += ids.size();
    for (size_t i = 0; i < ids.size(); ++i) {
      const int64_t one = size(ids[i], tokens[i]);
      used += detail::unsigned_of(one);
      by_size.add(one);
    }
  });
  report.used = detail::saturated(used);
  if (most_in_pack != 0) report.least_rows = detail::packs_for(entries, most_in_pack);
  if (budget == 0) return report;
  std::vector<int64_t> sizes;
  std::vector<uint64_t> counts;
  by_size.list(sizes, counts);
  const size_t empty = !sizes.empty() && sizes.front() == 0 ? 1 : 0;  // needs room in no row that is there anyway
  const uint64_t least =
      fewest_packs(std::span(sizes).subspan(empty), std::span(counts).subspan(empty), budget, most_in_pack);
  report.least_rows = std::max({report.least_rows, least, uint64_t{entries == 0 ? 0U : 1U}});
  return report;
}

/// Rows that are padded as `rule` says.
inline sdk::PackingReport report_padded(const sdk::PackedEpoch& epoch, const PaddedRule& rule, int32_t unit) {
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
