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
  void list(std::vector<int64_t>& sizes, std::vector<uint64_t>& counts) const;

 private:
  static constexpr int64_t kDense = int64_t{1} << 16U;
  std::vector<uint64_t> dense_ = std::vector<uint64_t>(static_cast<size_t>(kDense));
  std::unordered_map<int64_t, uint64_t> sparse_;
};

namespace detail {

/// At most 2^64 - 1.
uint64_t saturated(Wide sum);

}  // namespace detail

/// Sizes of entries, and their sum.
struct CountedSizes {
  SizeCounts by_size;
  uint64_t entries = 0;
  detail::Wide used = 0;

  void add(int64_t size) {
    used += static_cast<uint64_t>(size);
    by_size.add(size);
  }
};
/// What report_sums says of the entries that were counted.
sdk::PackingReport report_counted(const CountedSizes& counted, int64_t budget, uint64_t most_in_pack, int32_t unit);

/// Rows whose entries add up: size(id, tokens), 0 .. budget, is what an entry counts. budget 0 = none; most_in_pack 0 =
/// no limit.
template <class Size>
sdk::PackingReport report_sums(const sdk::PackedEpoch& epoch, int64_t budget, uint64_t most_in_pack, int32_t unit,
                               Size&& size) {
  CountedSizes counted;
  epoch.for_each_row([&](std::span<const int64_t> ids, std::span<const int64_t> tokens) {
    counted.entries += ids.size();
    for (size_t i = 0; i < ids.size(); ++i) counted.add(size(ids[i], tokens[i]));
  });
  return report_counted(counted, budget, most_in_pack, unit);
}

/// Rows that are padded as `rule` says.
sdk::PackingReport report_padded(const sdk::PackedEpoch& epoch, const PaddedRule& rule, int32_t unit);

}  // namespace pliant::sampler
