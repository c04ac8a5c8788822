// Finds, among open packs, one whose room is the smallest that is large enough. Three forms with the same interface.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
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
  void pop(uint32_t& head) { head = next_[head]; }
  /// Constant time for the first item, a walk for another.
  void erase(uint32_t& head, uint32_t item) {
    uint32_t* link = &head;
    while (*link != item) link = &next_[*link];
    *link = next_[item];
  }

 private:
  std::vector<uint32_t> next_;
};

}  // namespace detail

/// For budgets up to kMostRoom: a bit a room, and above it a bit a word. Most calls look at one word.
class SmallIndex {
 public:
  static constexpr int64_t kMostRoom = int64_t{1} << 16U;

  explicit SmallIndex(int64_t budget)
      : heads_(static_cast<size_t>(budget) + 1, kNone),
        words_(heads_.size() / 64 + 1),
        filled_(words_.size() / 64 + 1),
        none_(static_cast<int64_t>(heads_.size())) {
    set(heads_.size());  // so that a search ends
  }
  [[nodiscard]] int64_t find(int64_t size) const {
    const auto at = static_cast<size_t>(size);
    if (at >= heads_.size()) return -1;
    size_t word = at / 64;
    uint64_t bits = words_[word] & (~uint64_t{0} << (at % 64));
    if (bits == 0) {
      size_t above = (word + 1) / 64;
      uint64_t filled = filled_[above] & (~uint64_t{0} << ((word + 1) % 64));
      while (filled == 0) filled = filled_[++above];
      word = above * 64 + static_cast<size_t>(std::countr_zero(filled));
      bits = words_[word];
    }
    const auto room = static_cast<int64_t>(word * 64) + std::countr_zero(bits);
    return room == none_ ? -1 : room;
  }
  [[nodiscard]] uint32_t first(int64_t room) const { return heads_[static_cast<size_t>(room)]; }
  void insert(int64_t room, uint32_t item) {
    const auto at = static_cast<size_t>(room);
    if (heads_[at] == kNone) set(at);
    lists_.push(heads_[at], item);
  }
  void erase(int64_t room, uint32_t item) {
    lists_.erase(heads_[static_cast<size_t>(room)], item);
    clear_if_empty(static_cast<size_t>(room));
  }
  /// Takes out first(room).
  void pop(int64_t room) {
    lists_.pop(heads_[static_cast<size_t>(room)]);
    clear_if_empty(static_cast<size_t>(room));
  }

 private:
  void clear_if_empty(size_t at) {
    if (heads_[at] != kNone) return;
    const uint64_t bits = words_[at / 64] &= ~(uint64_t{1} << (at % 64));
    filled_[at / 4096] &= ~(uint64_t{bits == 0 ? 1U : 0U} << (at / 64 % 64));
  }
  void set(size_t at) {
    words_[at / 64] |= uint64_t{1} << (at % 64);
    filled_[at / 4096] |= uint64_t{1} << (at / 64 % 64);
  }

  std::vector<uint32_t> heads_;
  std::vector<uint64_t> words_;
  std::vector<uint64_t> filled_;  ///< bit i: words_[i] is not 0
  int64_t none_;
  detail::RoomLists lists_;
};

/// For larger budgets up to kMostRoom: a bitmap over rooms with as many summaries above it as it takes.
class BitmapIndex {
 public:
  static constexpr int64_t kMostRoom = int64_t{1} << 20U;

  explicit BitmapIndex(int64_t budget) : heads_(static_cast<size_t>(budget) + 1, kNone) {
    size_t bits = heads_.size();
    do {
      bits = (bits + 63) / 64;
      levels_.emplace_back(bits);
    } while (bits > 1);
  }
  /// The smallest room >= `size` that an item has; -1 when there is none.
  [[nodiscard]] int64_t find(int64_t size) const {
    auto at = static_cast<size_t>(size);
    if (at >= heads_.size()) return -1;
    for (size_t level = 0; level < levels_.size(); ++level) {
      const size_t word = at / 64;
      if (word >= levels_[level].size()) return -1;
      const uint64_t rest = levels_[level][word] & (~uint64_t{0} << (at % 64));
      if (rest != 0) return descend(level, word * 64 + static_cast<size_t>(std::countr_zero(rest)));
      at = word + 1;
    }
    return -1;
  }
  /// An item with exactly `room`; one is there.
  [[nodiscard]] uint32_t first(int64_t room) const { return heads_[static_cast<size_t>(room)]; }
  void insert(int64_t room, uint32_t item) {
    const auto at = static_cast<size_t>(room);
    if (heads_[at] == kNone) set(at);
    lists_.push(heads_[at], item);
  }
  void erase(int64_t room, uint32_t item) {
    const auto at = static_cast<size_t>(room);
    lists_.erase(heads_[at], item);
    if (heads_[at] == kNone) clear(at);
  }
  void pop(int64_t room) { erase(room, first(room)); }

 private:
  [[nodiscard]] int64_t descend(size_t level, size_t bit) const {
    while (level > 0) {
      --level;
      bit = bit * 64 + static_cast<size_t>(std::countr_zero(levels_[level][bit]));
    }
    return static_cast<int64_t>(bit);
  }
  void set(size_t bit) {
    for (auto& words : levels_) {
      const bool was_empty = words[bit / 64] == 0;
      words[bit / 64] |= uint64_t{1} << (bit % 64);
      if (!was_empty) return;
      bit /= 64;
    }
  }
  void clear(size_t bit) {
    for (auto& words : levels_) {
      words[bit / 64] &= ~(uint64_t{1} << (bit % 64));
      if (words[bit / 64] != 0) return;
      bit /= 64;
    }
  }

  std::vector<uint32_t> heads_;
  std::vector<std::vector<uint64_t>> levels_;
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
  [[nodiscard]] uint32_t first(int64_t room) const { return heads_.at(room); }
  void insert(int64_t room, uint32_t item) { lists_.push(heads_.try_emplace(room, kNone).first->second, item); }
  void erase(int64_t room, uint32_t item) {
    const auto found = heads_.find(room);
    lists_.erase(found->second, item);
    if (found->second == kNone) heads_.erase(found);
  }
  void pop(int64_t room) { erase(room, first(room)); }

 private:
  std::map<int64_t, uint32_t> heads_;
  detail::RoomLists lists_;
};

}  // namespace pliant::sampler
