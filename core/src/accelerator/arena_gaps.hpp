// ArenaGaps: which bytes of an arena are free, wherever it lies: also of one on paper.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>

#include "pliant/arena.hpp"

namespace pliant::detail {

/// All are sizes that buffers take.
class ArenaGaps {
 public:
  explicit ArenaGaps(uint64_t bytes) {
    if (bytes != 0) gaps_.emplace(0, bytes);
  }

  /// Where so many bytes lie in the first gap that holds them, seen from that side. O(gaps).
  [[nodiscard]] std::optional<uint64_t> find(uint64_t size, ArenaSide side) const {
    const auto holds_it = [size](const auto& gap) { return gap.second >= size; };
    if (side == ArenaSide::kBegin) {
      const auto gap = std::find_if(gaps_.begin(), gaps_.end(), holds_it);
      return gap == gaps_.end() ? std::nullopt : std::optional(gap->first);
    }
    const auto gap = std::find_if(gaps_.rbegin(), gaps_.rend(), holds_it);
    return gap == gaps_.rend() ? std::nullopt : std::optional(gap->first + gap->second - size);
  }
  [[nodiscard]] bool has(uint64_t begin, uint64_t size) const {
    const auto after = gaps_.upper_bound(begin);
    if (after == gaps_.begin()) return false;
    const auto& [first, room] = *std::prev(after);
    return begin - first < room && size <= first + room - begin;
  }
  /// They lie in one gap.
  void take(uint64_t begin, uint64_t size) {
    const auto gap = std::prev(gaps_.upper_bound(begin));
    const auto [first, room] = *gap;
    gaps_.erase(gap);
    if (begin > first) gaps_.emplace(first, begin - first);
    if (first + room > begin + size) gaps_.emplace(begin + size, first + room - begin - size);
  }
  /// They lie in none.
  void give_back(uint64_t begin, uint64_t size) {
    auto after = gaps_.lower_bound(begin);
    if (after != gaps_.end() && after->first == begin + size) {
      size += after->second;
      after = gaps_.erase(after);
    }
    if (after != gaps_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == begin) {
        before->second += size;
        return;
      }
    }
    gaps_.emplace(begin, size);
  }

  [[nodiscard]] uint64_t bytes() const {
    uint64_t all = 0;
    for (const auto& [begin, size] : gaps_) all += size;
    return all;
  }
  [[nodiscard]] uint64_t largest() const {
    uint64_t most = 0;
    for (const auto& [begin, size] : gaps_) most = std::max(most, size);
    return most;
  }

 private:
  std::map<uint64_t, uint64_t> gaps_;  ///< sizes by offset; no two touch
};

}  // namespace pliant::detail
