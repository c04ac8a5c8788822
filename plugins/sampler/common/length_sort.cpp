// Stable sorting by length in linear time.
#include "length_sort.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include "threads.hpp"

namespace pliant::sampler {

namespace {

/// How often each value comes up in `values`, added to counts; four counters a value, so that one value that comes
/// again and again does not wait for itself.
void count_values(std::span<const int32_t> values, std::vector<std::array<uint32_t, 4>>& counts) {
  size_t i = 0;
  for (; i + 4 <= values.size(); i += 4) {
    for (size_t k = 0; k < 4; ++k) ++counts[static_cast<size_t>(values[i + k])][k];
  }
  for (; i < values.size(); ++i) ++counts[static_cast<size_t>(values[i])][0];
}

/// The groups of positions that are sorted.
void find_groups(std::span<const int32_t> values, ByValue& sorted) {
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t value = values[sorted.positions[i]];
    if (!sorted.values.empty() && sorted.values.back() == value) continue;
    sorted.values.push_back(value);
    sorted.begins.push_back(i);
  }
  sorted.begins.push_back(values.size());
}

/// One pass of a radix sort by the 16 bits of values from bit `shift` on.
void radix_pass(std::span<const int32_t> values, unsigned shift, const uint32_t* from, uint32_t* to) {
  std::vector<uint32_t> next(1U << 16U);
  const auto digit = [&](uint32_t i) { return (static_cast<uint64_t>(values[i]) >> shift) & 0xffffU; };
  for (size_t i = 0; i < values.size(); ++i) ++next[digit(from[i])];
  uint32_t at = 0;
  for (uint32_t& slot : next) at += std::exchange(slot, at);
  for (size_t i = 0; i < values.size(); ++i) to[next[digit(from[i])]++] = from[i];
}

}  // namespace

void detail::count_sort(std::span<const int32_t> values, int64_t most, size_t threads, ByValue& sorted) {
  const size_t parts = useful_threads(threads, values.size() - std::min(values.size(), static_cast<size_t>(most)));
  const size_t kinds = static_cast<size_t>(most) + 1;
  const auto part_of = [&](size_t part) {
    const size_t begin = slice(values.size(), part, parts);
    return std::pair(begin, slice(values.size(), part + 1, parts));
  };
  std::vector<std::vector<uint32_t>> next(parts);
  in_parallel(parts, [&](size_t part) {
    const auto [begin, end] = part_of(part);
    std::vector<std::array<uint32_t, 4>> counts(kinds);
    count_values(values.subspan(begin, end - begin), counts);
    next[part].resize(kinds);
    for (size_t v = 0; v < kinds; ++v) next[part][v] = counts[v][0] + counts[v][1] + counts[v][2] + counts[v][3];
  });
  uint32_t at = 0;
  for (size_t value = 0; value < kinds; ++value) {
    const uint32_t begin = at;
    for (size_t part = 0; part < parts; ++part) at += std::exchange(next[part][value], at);
    if (at == begin) continue;
    sorted.values.push_back(static_cast<int64_t>(value));
    sorted.begins.push_back(begin);
  }
  sorted.begins.push_back(at);
  uint32_t* const positions = sorted.positions.get();
  in_parallel(parts, [&](size_t part) {
    const auto [begin, end] = part_of(part);
    uint32_t* const to = next[part].data();
    for (size_t i = begin; i < end; ++i) {
      const uint32_t place = to[static_cast<size_t>(values[i])]++;
      positions[place] = static_cast<uint32_t>(i);
      // Nobody else sees that thousands of values each go on in a line of their own.
      __builtin_prefetch(positions + place + ByValue::kLine, 1);
    }
  });
}

void detail::radix_sort(std::span<const int32_t> values, int64_t most, ByValue& sorted) {
  auto other = make_huge_array<uint32_t>(sorted.room + ByValue::kLine);
  for (size_t i = 0; i < values.size(); ++i) sorted.positions[i] = static_cast<uint32_t>(i);
  for (unsigned shift = 0; shift < 64 && (static_cast<uint64_t>(most) >> shift) != 0; shift += 16) {
    radix_pass(values, shift, sorted.positions.get(), other.get());
    sorted.positions.swap(other);
  }
  find_groups(values, sorted);
}

void detail::compare_sort(std::span<const int32_t> values, ByValue& sorted) {
  std::vector<uint64_t> keys(values.size());
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<uint64_t>(values[i]) << 32U | i;
  std::sort(keys.begin(), keys.end());
  for (size_t i = 0; i < keys.size(); ++i) sorted.positions[i] = static_cast<uint32_t>(keys[i]);
  find_groups(values, sorted);
}

void require_32_bits(size_t count) {
  if (count <= std::numeric_limits<uint32_t>::max()) return;
  throw sdk::Failure(PLIANT_OUT_OF_RANGE, std::to_string(count) +
                                              " sequences: a sampler that sorts supports at most 4294967295; use one "
                                              "that keeps the order (next_fit, streaming, concat)");
}

void group_by_value(std::span<const int32_t> values, int64_t limit, size_t threads, ByValue& sorted) {
  require_32_bits(values.size());
  sorted.restart(values.size());
  constexpr int64_t kPerValue = 32;  // counters that take as long as comparing a value
  if (static_cast<int64_t>(values.size()) < limit / kPerValue && values.size() < (size_t{1} << 12U)) {
    return detail::compare_sort(values, sorted);
  }
  const auto dense = static_cast<int64_t>(std::max<size_t>(values.size() / 4, size_t{1} << 16U));
  int64_t most = limit;
  if (limit > dense) {
    most = 0;
    for (const int32_t value : values) most = std::max<int64_t>(most, value);
  }
  if (most <= dense) {
    detail::count_sort(values, most, threads, sorted);
  } else {
    detail::radix_sort(values, most, sorted);
  }
}

ByValue group_by_value(std::span<const int32_t> values) {
  ByValue sorted;
  group_by_value(values, std::numeric_limits<int64_t>::max(), 1, sorted);
  return sorted;
}

}  // namespace pliant::sampler
