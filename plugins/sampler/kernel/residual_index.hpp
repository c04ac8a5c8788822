// Finds, among open packs, one whose room is the smallest that is large enough. Three forms with the same
// interface.
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

/// An item and the room that it has; room -1 = there is none.
struct Taken {
  int64_t room = -1;
  uint32_t item = kNone;
};

namespace detail {

template <class Index>
Taken take_found(Index& index, int64_t size) {
  const int64_t room = index.find(size);
  if (room < 0) return {};
  const uint32_t item = index.first(room);
  index.erase(room, item);
  return {room, item};
}

}  // namespace detail

/// For budgets up to kMostRoom: a bit a room, and above it a bit a word. Each item says whether it is the last with
/// its room: to ask the list behind it would make the next search wait.
class SmallIndex {
 public:
  static constexpr int64_t kMostRoom = int64_t{1} << 16U;
  static constexpr uint32_t kMostItem = (uint32_t{1} << 31U) - 1;

  explicit SmallIndex(int64_t budget)
      : heads_(static_cast<size_t>(budget) + 1),
        words_(heads_.size() / 64 + 2),
        filled_(words_.size() / 64 + 1),
        none_(static_cast<int64_t>(heads_.size())) {
    // So that a search ends: a room that is too large, and behind it a word to look at.
    words_[heads_.size() / 64] = uint64_t{1} << (heads_.size() % 64);
    words_.back() = 1;
    fill_words(heads_.size() / 64, true);
    fill_words(words_.size() - 1, true);
  }
  /// Takes out an item with the smallest room >= `size`; of those with the same room the one that came last.
  Taken take(int64_t size) {
    const Place place = find(size);
    if (static_cast<int64_t>(place.room()) == none_) return {};
    const uint32_t head = heads_[place.room()];
    const uint32_t item = head & kMostItem;
    heads_[place.room()] = next_[item];
    words_[place.word] &= ~(uint64_t{head >> 31U} << place.bit);
    fill_words(place.word, words_[place.word] != 0);
    return {static_cast<int64_t>(place.room()), item};
  }
  void insert(int64_t room, uint32_t item) {
    const auto at = static_cast<size_t>(room);
    if (item >= next_.size()) next_.resize(size_t{item} + 1);
    const uint64_t before = words_[at / 64];
    next_[item] = heads_[at];
    heads_[at] = item | ((before >> (at % 64) & 1U) != 0 ? 0U : kLast);
    words_[at / 64] = before | uint64_t{1} << (at % 64);
    filled_[at / 4096] |= uint64_t{1} << (at / 64 % 64);
  }
  void erase(int64_t room, uint32_t item) {
    const auto at = static_cast<size_t>(room);
    uint32_t* link = &heads_[at];
    while ((*link & kMostItem) != item) {
      uint32_t* const next = &next_[*link & kMostItem];
      // The one before the last is the last.
      if (*next == (item | kLast)) {
        *link |= kLast;
        return;
      }
      link = next;
    }
    if ((*link & kLast) == 0) {
      *link = next_[item];
      return;
    }
    words_[at / 64] &= ~(uint64_t{1} << (at % 64));
    fill_words(at / 64, words_[at / 64] != 0);
  }

 private:
  static constexpr uint32_t kLast = uint32_t{1} << 31U;
  struct Place {
    size_t word = 0;
    unsigned bit = 0;
    [[nodiscard]] size_t room() const { return word * 64 + bit; }
  };

  /// The smallest room >= `size`, which is at most the sentinel's.
  [[nodiscard]] Place find(int64_t size) const {
    // Both words are looked at: nobody can foresee which it is.
    const auto at = static_cast<size_t>(size);
    const size_t near = at / 64;
    const size_t far = filled_from(near + 1);
    const uint64_t here = words_[near] & (~uint64_t{0} << (at % 64));
    const uint64_t is_far = here == 0 ? ~uint64_t{0} : 0;
    const uint64_t bits = here | (words_[far] & is_far);
    return {near + ((far - near) & is_far), static_cast<unsigned>(std::countr_zero(bits))};
  }
  [[nodiscard]] size_t filled_from(size_t word) const {
    size_t above = word / 64;
    uint64_t filled = filled_[above] & (~uint64_t{0} << (word % 64));
    while (filled == 0) filled = filled_[++above];
    return above * 64 + static_cast<size_t>(std::countr_zero(filled));
  }
  void fill_words(size_t word, bool is_filled) {
    const uint64_t bit = uint64_t{1} << (word % 64);
    filled_[word / 64] = (filled_[word / 64] & ~bit) | (is_filled ? bit : 0);
  }

  std::vector<uint32_t> heads_;  ///< where the room's bit is set: its first item, with kLast where it is the only one
  std::vector<uint32_t> next_;   ///< of each item, in the same form
  std::vector<uint64_t> words_;
  std::vector<uint64_t> filled_;  ///< bit i: words_[i] is not 0
  int64_t none_;
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
  Taken take(int64_t size) { return detail::take_found(*this, size); }

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
  Taken take(int64_t size) { return detail::take_found(*this, size); }

 private:
  std::map<int64_t, uint32_t> heads_;
  detail::RoomLists lists_;
};

}  // namespace pliant::sampler
