// Stable sorting by length in linear time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pliant/sdk/failure.hpp"

namespace pliant::sampler {

/// Samplers that plan a whole epoch at once number its sequences in 32 bits.
inline void require_32_bits(size_t count) {
  if (count <= std::numeric_limits<uint32_t>::max()) return;
  throw sdk::Failure(PLIANT_OUT_OF_RANGE, std::to_string(count) +
                                              " sequences: a sampler that sorts plans at most 4294967295; use one that "
                                              "keeps the order (next_fit, streaming, concat)");
}

/// Positions grouped by value, the groups in ascending order of value; inside a group positions ascend.
struct ByValue {
  std::vector<int64_t> values;            ///< different values, ascending
  std::vector<uint64_t> begins;           ///< group g is positions[begins[g] .. begins[g + 1])
  std::unique_ptr<uint32_t[]> positions;  ///< not initialised before it is filled

  [[nodiscard]] size_t groups() const { return values.size(); }
  [[nodiscard]] uint64_t count(size_t g) const { return begins[g + 1] - begins[g]; }
};

namespace detail {

/// Values up to `most` through one histogram.
inline ByValue count_sort(std::span<const int32_t> values, int64_t most) {
  ByValue sorted;
  std::vector<uint32_t> next(static_cast<size_t>(most) + 1);
  for (const int32_t value : values) ++next[static_cast<size_t>(value)];
  uint32_t at = 0;
  for (size_t value = 0; value < next.size(); ++value) {
    const uint32_t count = next[value];
    if (count == 0) continue;
    sorted.values.push_back(static_cast<int64_t>(value));
    sorted.begins.push_back(at);
    next[value] = at;
    at += count;
  }
  sorted.begins.push_back(at);
  sorted.positions.reset(new uint32_t[values.size()]);
  for (size_t i = 0; i < values.size(); ++i) {
    sorted.positions[next[static_cast<size_t>(values[i])]++] = static_cast<uint32_t>(i);
  }
  return sorted;
}

/// One pass of a radix sort by the 16 bits of values from bit `shift` on.
inline void radix_pass(std::span<const int32_t> values, unsigned shift, const uint32_t* from, uint32_t* to) {
  std::vector<uint32_t> next(1U << 16U);
  const auto digit = [&](uint32_t i) { return (static_cast<uint64_t>(values[i]) >> shift) & 0xffffU; };
  for (size_t i = 0; i < values.size(); ++i) ++next[digit(from[i])];
  uint32_t at = 0;
  for (uint32_t& slot : next) at += std::exchange(slot, at);
  for (size_t i = 0; i < values.size(); ++i) to[next[digit(from[i])]++] = from[i];
}

/// Any values >= 0.
inline ByValue radix_sort(std::span<const int32_t> values, int64_t most) {
  ByValue sorted;
  sorted.positions.reset(new uint32_t[values.size()]);
  std::unique_ptr<uint32_t[]> other(new uint32_t[values.size()]);
  for (size_t i = 0; i < values.size(); ++i) sorted.positions[i] = static_cast<uint32_t>(i);
  for (unsigned shift = 0; shift < 64 && (static_cast<uint64_t>(most) >> shift) != 0; shift += 16) {
    radix_pass(values, shift, sorted.positions.get(), other.get());
    sorted.positions.swap(other);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t value = values[sorted.positions[i]];
    if (!sorted.values.empty() && sorted.values.back() == value) continue;
    sorted.values.push_back(value);
    sorted.begins.push_back(i);
  }
  sorted.begins.push_back(values.size());
  return sorted;
}

}  // namespace detail

/// Groups positions 0 .. values.size()-1 by value. Values are 0 .. limit; O(n), and a pass less where `limit` is small.
inline ByValue group_by_value(std::span<const int32_t> values, int64_t limit) {
  require_32_bits(values.size());
  const auto dense = static_cast<int64_t>(std::max<size_t>(values.size() / 4, size_t{1} << 16U));
  int64_t most = limit;
  if (limit > dense) {
    most = 0;
    for (const int32_t value : values) most = std::max<int64_t>(most, value);
  }
  return most <= dense ? detail::count_sort(values, most) : detail::radix_sort(values, most);
}
inline ByValue group_by_value(std::span<const int32_t> values) {
  return group_by_value(values, std::numeric_limits<int64_t>::max());
}

}  // namespace pliant::sampler
