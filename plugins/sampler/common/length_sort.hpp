// Stable sorting by length in linear time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "huge_pages.hpp"

namespace pliant::sampler {

/// Samplers that plan a whole epoch at once number its sequences in 32 bits.
void require_32_bits(size_t count);

/// Positions grouped by value, the groups in ascending order of value; inside a group positions ascend.
struct ByValue {
  static constexpr size_t kLine = 16;  ///< positions in a line of the cache; as many may be asked for behind the last

  std::vector<int64_t> values;    ///< different values, ascending
  std::vector<uint64_t> begins;   ///< group g is positions[begins[g] .. begins[g + 1])
  HugeArray<uint32_t> positions;  ///< not initialised before it is filled
  size_t room = 0;                ///< of positions

  /// No groups; room for `count` positions, whose memory is kept from use to use.
  void restart(size_t count) {
    values.clear();
    begins.clear();
    if (room >= count && room / 2 <= count) return;
    positions.reset();
    positions = make_huge_array<uint32_t>(count + kLine);
    room = count;
  }
  [[nodiscard]] size_t groups() const { return values.size(); }
  [[nodiscard]] uint64_t count(size_t g) const { return begins[g + 1] - begins[g]; }
};

namespace detail {

/// Values up to `most` through histograms, one for each of `threads` parts of the values.
void count_sort(std::span<const int32_t> values, int64_t most, size_t threads, ByValue& sorted);
/// Any values >= 0.
void radix_sort(std::span<const int32_t> values, int64_t most, ByValue& sorted);
/// Few values, by comparing them.
void compare_sort(std::span<const int32_t> values, ByValue& sorted);

}  // namespace detail

/// Groups positions 0 .. values.size()-1 by value. Values are 0 .. limit; O(n), and a pass less where `limit` is small.
/// The same for every number of threads.
void group_by_value(std::span<const int32_t> values, int64_t limit, size_t threads, ByValue& sorted);
ByValue group_by_value(std::span<const int32_t> values);

}  // namespace pliant::sampler
