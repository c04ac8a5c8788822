// Best fit over a bounded number of open packs, in one pass: what `streaming` does with each sequence as it comes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "pliant/sdk/batch_sampler.hpp"
#include "residual_index.hpp"

namespace pliant::sampler {

struct OpenPacksRule {
  int64_t budget = 0;
  uint64_t most_in_pack = 0;  ///< 0 = no limit
  uint64_t open_packs = 1;    ///< at least 1
  uint64_t max_wait = 2;      ///< rows that may be emitted while a sequence waits; at least 2 * open_packs
};

template <class Index, class Item>
class OpenPacks {
 public:
  struct Slot {
    int64_t room = 0;
    uint64_t opened_at = 0;  ///< rows that had been emitted
    uint64_t touched = 0;    ///< number of the sequence that came last
    std::vector<Item> items;
  };

  explicit OpenPacks(const OpenPacksRule& rule)
      : rule_(rule), index_(rule.budget), slots_(rule.open_packs), older_(rule.open_packs), newer_(rule.open_packs) {
    for (uint32_t slot = static_cast<uint32_t>(slots_.size()); slot-- > 0;) free_.push_back(slot);
  }

  /// Takes one more sequence of `size` 1 .. budget. `emit(items)` is called for each pack that is finished.
  template <class Emit>
  void push(const Item& item, int64_t size, Emit&& emit) {
    int64_t room = index_.find(size);
    uint32_t slot = kNone;
    if (room >= 0) {
      slot = index_.first(room);
      index_.erase(room, slot);
    } else {
      if (free_.empty()) close(index_.first(index_.find(0)), emit);
      slot = open();
    }
    Slot& pack = slots_[slot];
    pack.items.push_back(item);
    pack.room -= size;
    pack.touched = ++pushed_;
    index_.insert(pack.room, slot);
    if (pack.room == 0 || pack.items.size() == rule_.most_in_pack) close(slot, emit);
    // Up to open_packs may be due at once, and one row leaves at a time.
    while (oldest_ != kNone && emitted_ - slots_[oldest_].opened_at + rule_.open_packs > rule_.max_wait) {
      close(oldest_, emit);
    }
  }
  /// Emits what is still open, the oldest first.
  template <class Emit>
  void flush(Emit&& emit) {
    while (oldest_ != kNone) close(oldest_, emit);
  }

  [[nodiscard]] uint64_t emitted() const { return emitted_; }
  [[nodiscard]] bool is_empty() const { return oldest_ == kNone; }
  [[nodiscard]] uint64_t pushed() const { return pushed_; }
  [[nodiscard]] std::vector<Slot> open_from_oldest() const {
    std::vector<Slot> open;
    for (uint32_t slot = oldest_; slot != kNone; slot = newer_[slot]) open.push_back(slots_[slot]);
    return open;
  }
  /// Puts a new object where another was that had emitted and pushed so much and whose open_from_oldest() was `open`:
  /// at most open_packs, each with its room.
  void restore(uint64_t emitted, uint64_t pushed, const std::vector<Slot>& open) {
    emitted_ = emitted;
    pushed_ = pushed;
    std::vector<std::pair<uint64_t, uint32_t>> by_touch;
    for (const Slot& saved : open) {
      const uint32_t slot = this->open();
      slots_[slot] = saved;
      by_touch.emplace_back(saved.touched, slot);
    }
    // Of packs with the same room, the one that was touched last is taken first.
    std::sort(by_touch.begin(), by_touch.end());
    for (const auto& [touched, slot] : by_touch) index_.insert(slots_[slot].room, slot);
  }

 private:
  uint32_t open() {
    const uint32_t slot = free_.back();
    free_.pop_back();
    slots_[slot].room = rule_.budget;
    slots_[slot].opened_at = emitted_;
    slots_[slot].items.clear();
    older_[slot] = newest_;
    newer_[slot] = kNone;
    (newest_ == kNone ? oldest_ : newer_[newest_]) = slot;
    newest_ = slot;
    return slot;
  }
  template <class Emit>
  void close(uint32_t slot, Emit&& emit) {
    index_.erase(slots_[slot].room, slot);
    (older_[slot] == kNone ? oldest_ : newer_[older_[slot]]) = newer_[slot];
    (newer_[slot] == kNone ? newest_ : older_[newer_[slot]]) = older_[slot];
    free_.push_back(slot);
    ++emitted_;
    emit(slots_[slot].items);
  }

  OpenPacksRule rule_;
  Index index_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> older_;
  std::vector<uint32_t> newer_;
  std::vector<uint32_t> free_;
  uint32_t oldest_ = kNone;
  uint32_t newest_ = kNone;
  uint64_t emitted_ = 0;
  uint64_t pushed_ = 0;
};

}  // namespace pliant::sampler
