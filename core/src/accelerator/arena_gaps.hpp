// ArenaGaps: which bytes of an arena are free, wherever it lies: also of one on paper.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include "pliant/arena.hpp"

namespace pliant::detail {

/// All are sizes that buffers take. A gap moves those behind it, 16 bytes each: there are few.
class ArenaGaps {
 public:
  explicit ArenaGaps(uint64_t bytes) {
    if (bytes != 0) gaps_.push_back({0, bytes});
  }

  /// Where so many bytes lie in the first gap that holds them, seen from that side. O(gaps).
  [[nodiscard]] std::optional<uint64_t> find(uint64_t size, ArenaSide side) const {
    const auto holds_it = [size](const Gap& gap) { return gap.size >= size; };
    if (side == ArenaSide::kBegin) {
      const auto gap = std::find_if(gaps_.begin(), gaps_.end(), holds_it);
      return gap == gaps_.end() ? std::nullopt : std::optional(gap->begin);
    }
    const auto gap = std::find_if(gaps_.rbegin(), gaps_.rend(), holds_it);
    return gap == gaps_.rend() ? std::nullopt : std::optional(gap->begin + gap->size - size);
  }
  [[nodiscard]] bool has(uint64_t begin, uint64_t size) const {
    const auto after = std::upper_bound(gaps_.begin(), gaps_.end(), begin, is_before);
    if (after == gaps_.begin()) return false;
    const auto [first, room] = *std::prev(after);
    return begin - first < room && size <= first + room - begin;
  }
  /// They lie in one gap.
  void take(uint64_t begin, uint64_t size) {
    auto gap = std::prev(std::upper_bound(gaps_.begin(), gaps_.end(), begin, is_before));
    const Gap behind{begin + size, gap->begin + gap->size - begin - size};
    gap->size = begin - gap->begin;
    if (gap->size == 0 && behind.size == 0) {
      gaps_.erase(gap);
    } else if (gap->size == 0) {
      *gap = behind;
    } else if (behind.size > 0) {
      gaps_.insert(std::next(gap), behind);
    }
  }
  /// They lie in none.
  void give_back(uint64_t begin, uint64_t size) {
    auto after = std::upper_bound(gaps_.begin(), gaps_.end(), begin, is_before);
    const bool meets_after = after != gaps_.end() && after->begin == begin + size;
    const bool meets_before = after != gaps_.begin() && std::prev(after)->begin + std::prev(after)->size == begin;
    if (meets_before) {
      std::prev(after)->size += size + (meets_after ? after->size : 0);
      if (meets_after) gaps_.erase(after);
    } else if (meets_after) {
      *after = {begin, size + after->size};
    } else {
      gaps_.insert(after, {begin, size});
    }
  }

  [[nodiscard]] uint64_t bytes() const {
    uint64_t all = 0;
    for (const Gap& gap : gaps_) all += gap.size;
    return all;
  }
  [[nodiscard]] uint64_t largest() const {
    uint64_t most = 0;
    for (const Gap& gap : gaps_) most = std::max(most, gap.size);
    return most;
  }

 private:
  struct Gap {
    uint64_t begin;
    uint64_t size;
  };
  static bool is_before(uint64_t begin, const Gap& gap) { return begin < gap.begin; }

  std::vector<Gap> gaps_;  ///< ascending; no two touch
};

}  // namespace pliant::detail
