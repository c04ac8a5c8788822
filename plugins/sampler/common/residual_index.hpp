// Finds, among open packs, one whose room is the smallest that is large enough. Two forms with the same interface.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace pliant::sampler {

inline constexpr uint32_t kNone = ~uint32_t{0};

namespace detail {

/// Lists of items, one for each room; the item that came last is the first.
class RoomLists {
 public:
  void push(uint32_t& head, uint32_t item) {
    if (item >= next_.size()) next_.resize(size_t{item} + 1, kNone);
    next_[item] = head;
    head = item;
  }
  uint32_t pop(uint32_t& head) { return std::exchange(head, next_[head]); }

 private:
  std::vector<uint32_t> next_;
};

}  // namespace detail

/// For budgets up to kMostRoom: a bitmap over rooms with as many summaries above it as it takes.
class BitmapIndex {
 public:
  static constexpr int64_t kMostRoom = int64_t{1} << 20U;

  explicit BitmapIndex(int64_t budget) : heads_(static_cast<size_t>(budget) + 1, kNone) {
    size_t words = 0;
    size_t bits = heads_.size();
    do {
      bits = (bits + 63) / 64;
      begins_[levels_++] = words;
      words += bits;
    } while (bits > 1);
    begins_[levels_] = words;
    words_.resize(words);
  }
  /// The smallest room >= `size` that an item has; -1 when there is none.
  [[nodiscard]] int64_t find(int64_t size) const {
    auto at = static_cast<size_t>(size);
    if (at >= heads_.size()) return -1;
    const uint64_t here = words_[at / 64] & (~uint64_t{0} << (at % 64));
    if (here != 0) return static_cast<int64_t>((at & ~size_t{63}) + static_cast<size_t>(std::countr_zero(here)));
    for (size_t level = 1; level < levels_; ++level) {
      at = at / 64 + 1;
      const size_t word = begins_[level] + at / 64;
      if (word >= begins_[level + 1]) return -1;
      const uint64_t rest = words_[word] & (~uint64_t{0} << (at % 64));
      if (rest != 0) return descend(level, at / 64 * 64 + static_cast<size_t>(std::countr_zero(rest)));
    }
    return -1;
  }
  void insert(int64_t room, uint32_t item) {
    const auto at = static_cast<size_t>(room);
    if (heads_[at] == kNone) set(at);
    lists_.push(heads_[at], item);
  }
  /// Takes out the item with exactly `room` that came last; one is there.
  uint32_t take(int64_t room) {
    const auto at = static_cast<size_t>(room);
    const uint32_t item = lists_.pop(heads_[at]);
    if (heads_[at] == kNone) clear(at);
    return item;
  }

 private:
  [[nodiscard]] int64_t descend(size_t level, size_t bit) const {
    while (level > 0) {
      --level;
      bit = bit * 64 + static_cast<size_t>(std::countr_zero(words_[begins_[level] + bit]));
    }
    return static_cast<int64_t>(bit);
  }
  void set(size_t bit) {
    for (size_t level = 0; level < levels_; ++level, bit /= 64) {
      uint64_t& word = words_[begins_[level] + bit / 64];
      const bool was_empty = word == 0;
      word |= uint64_t{1} << (bit % 64);
      if (!was_empty) return;
    }
  }
  void clear(size_t bit) {
    for (size_t level = 0; level < levels_; ++level, bit /= 64) {
      uint64_t& word = words_[begins_[level] + bit / 64];
      word &= ~(uint64_t{1} << (bit % 64));
      if (word != 0) return;
    }
  }

  std::vector<uint32_t> heads_;
  std::vector<uint64_t> words_;  ///< a level after the other; a bit of one says that a word of the one below is not 0
  std::array<size_t, 5> begins_{};  ///< of each level, and the end
  size_t levels_ = 0;
  detail::RoomLists lists_;
};

/// For any budget: an ordered map.
class MapIndex {
 public:
  explicit MapIndex(int64_t /*budget*/) {}
  [[nodiscard]] int64_t find(int64_t size) const {
    const auto found = heads_.lower_bound(size);
    return found == heads_.end() ? -1 : found->first;
  }
  void insert(int64_t room, uint32_t item) { lists_.push(heads_.try_emplace(room, kNone).first->second, item); }
  uint32_t take(int64_t room) {
    const auto found = heads_.find(room);
    const uint32_t item = lists_.pop(found->second);
    if (found->second == kNone) heads_.erase(found);
    return item;
  }

 private:
  std::map<int64_t, uint32_t> heads_;
  detail::RoomLists lists_;
};

}  // namespace pliant::sampler
