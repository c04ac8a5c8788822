// Length buckets: which bucket a length belongs to, edges that share the tokens evenly, and filling a pack in each
// bucket.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "length_sort.hpp"
#include "padded.hpp"
#include "pliant/sdk/batch_sampler.hpp"

namespace pliant::sampler {

/// Upper edges (inclusive, ascending) of up to `buckets` buckets that hold about the same number of tokens each.
inline std::vector<int64_t> even_edges(std::span<const int32_t> lengths, uint64_t buckets) {
  const ByValue sorted = group_by_value(lengths);
  double all = 0;
  for (size_t g = 0; g < sorted.groups(); ++g) {
    all += static_cast<double>(sorted.values[g]) * static_cast<double>(sorted.count(g));
  }
  std::vector<int64_t> edges;
  double tokens = 0;
  for (size_t g = 0; g < sorted.groups(); ++g) {
    tokens += static_cast<double>(sorted.values[g]) * static_cast<double>(sorted.count(g));
    if (tokens * static_cast<double>(buckets) < all * static_cast<double>(edges.size() + 1)) continue;
    edges.push_back(sorted.values[g]);
  }
  return edges;
}

/// Each sequence joins the open pack of its bucket (lengths above the last edge share one more); a pack becomes a row
/// when the next sequence does not fit it, and what is open at the end follows by bucket. `rows` is as restart() leaves
/// it; its ids number the sequences.
inline void fill_buckets(std::span<const int32_t> lengths, std::span<const int64_t> edges, const PaddedRule& rule,
                         sdk::EpochRows& rows) {
  struct Bucket {
    PaddedPack pack;
    std::vector<int64_t> items;
  };
  std::vector<Bucket> buckets(edges.size() + 1, Bucket{PaddedPack(rule), {}});
  rows.ids.resize(lengths.size());
  uint64_t at = 0;
  const auto emit = [&](Bucket& bucket) {
    std::copy(bucket.items.begin(), bucket.items.end(), rows.ids.begin() + static_cast<std::ptrdiff_t>(at));
    at += bucket.items.size();
    rows.offsets.push_back(at);
    bucket.items.clear();
    bucket.pack = PaddedPack(rule);
  };
  for (size_t i = 0; i < lengths.size(); ++i) {
    Bucket& bucket =
        buckets[static_cast<size_t>(std::lower_bound(edges.begin(), edges.end(), lengths[i]) - edges.begin())];
    if (!bucket.pack.add(lengths[i])) {
      emit(bucket);
      bucket.pack.add(lengths[i]);
    }
    bucket.items.push_back(static_cast<int64_t>(i));
  }
  for (Bucket& bucket : buckets) {
    if (!bucket.items.empty()) emit(bucket);
  }
}

}  // namespace pliant::sampler
