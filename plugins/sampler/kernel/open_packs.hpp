// Best fit over a bounded number of open packs, in one pass: what `streaming` does with each sequence as it comes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "listed_rows.hpp"
#include "pliant/sdk/batch_sampler.hpp"
#include "residual_index.hpp"

namespace pliant::sampler {

struct OpenPacksRule {
  int64_t budget = 0;
  uint64_t most_in_pack = 0;  ///< 0 = no limit
  uint64_t open_packs = 1;    ///< at least 1
  uint64_t max_wait = 2;      ///< rows that may be emitted while a sequence waits; at least 2 * open_packs
};

namespace detail {

/// Lists of items, one for each slot, in chunks: what is kept grows with the items that are open.
template <class Item>
class ItemLists {
 public:
  static constexpr size_t kChunk = 16;

  explicit ItemLists(size_t slots) : chunks_(slots), ends_(slots) {
    for (uint32_t slot = 0; slot < slots; ++slot) ends_[slot] = {slot, 0};
  }
  [[nodiscard]] size_t size(uint32_t slot) const { return ends_[slot].count; }
  void push(uint32_t slot, const Item& item) {
    End& end = ends_[slot];
    if (end.count % kChunk == 0 && end.count != 0) {
      const uint32_t fresh = free_ == kNone ? static_cast<uint32_t>(chunks_.size()) : free_;
      if (free_ == kNone) {
        chunks_.emplace_back();
      } else {
        free_ = chunks_[free_].next;
      }
      chunks_[end.last].next = fresh;
      end.last = fresh;
    }
    chunks_[end.last].items[end.count++ % kChunk] = item;
  }
  /// see(const Item* items, size_t count) for each portion of the list, in order; items[kChunk - 1] may be read.
  template <class See>
  void see(uint32_t slot, See&& see) const {
    size_t left = ends_[slot].count;
    for (uint32_t at = slot; left > kChunk; at = chunks_[at].next, left -= kChunk)
      see(chunks_[at].items.data(), kChunk);
    if (left > 0) see(chunks_[ends_[slot].last].items.data(), left);
  }
  void clear(uint32_t slot) {
    End& end = ends_[slot];
    if (end.last != slot) {
      chunks_[end.last].next = free_;
      free_ = chunks_[slot].next;
    }
    end = {slot, 0};
  }

 private:
  struct Chunk {
    std::array<Item, kChunk> items{};
    uint32_t next = kNone;
  };
  struct End {
    uint32_t last = 0;
    uint32_t count = 0;
  };
  std::vector<Chunk> chunks_;  ///< the first of slot s is s
  std::vector<End> ends_;
  uint32_t free_ = kNone;
};

}  // namespace detail

/// Beside the open packs the index always has an empty one, so that a search ends with a pack and only taking the empty
/// one is a case of its own.
template <class Index, class Item>
class OpenPacks {
 public:
  using Lists = detail::ItemLists<Item>;
  /// A pack on its own, as it is saved.
  struct Open {
    int64_t room = 0;
    uint64_t opened_at = 0;  ///< rows that had been emitted
    uint64_t touched = 0;    ///< number of the sequence that came last
    std::vector<Item> items;
  };

  explicit OpenPacks(const OpenPacksRule& rule)
      : rule_(rule),
        index_(rule.budget),
        lists_(rule.open_packs + 1),
        slots_(rule.open_packs + 2),
        end_(static_cast<uint32_t>(rule.open_packs) + 1) {
    for (uint32_t slot = end_; slot-- > 1;) free_.push_back(slot);
    index_.insert(rule_.budget, 0);
    slots_[end_].older = slots_[end_].newer = end_;
  }

  /// Takes one more sequence of `size` 1 .. budget. `emit(lists, slot)` is called for each pack that is finished.
  template <class Emit>
  void push(const Item& item, int64_t size, Emit&& emit) {
    const uint64_t emitted_before = emitted_;
    const auto [before, slot] = index_.take(size);  // the empty pack has room at the latest
    if (before == rule_.budget) open(slot, emit);
    lists_.push(slot, item);
    const int64_t room = before - size;
    slots_[slot].room = room;
    slots_[slot].touched = ++pushed_;
    if (room == 0 || lists_.size(slot) == rule_.most_in_pack) {
      close(slot, emit);
    } else {
      index_.insert(room, slot);
    }
    if (emitted_ != emitted_before) close_old(emit);
  }
  /// Emits what is still open, the oldest first.
  template <class Emit>
  void flush(Emit&& emit) {
    while (!is_empty()) close_oldest(emit);
  }

  [[nodiscard]] uint64_t emitted() const { return emitted_; }
  [[nodiscard]] bool is_empty() const { return oldest() == end_; }
  [[nodiscard]] uint64_t pushed() const { return pushed_; }
  [[nodiscard]] std::vector<Open> open_from_oldest() const {
    std::vector<Open> all;
    for (uint32_t slot = oldest(); slot != end_; slot = slots_[slot].newer) {
      const Slot& pack = slots_[slot];
      Open& open = all.emplace_back(Open{pack.room, pack.opened_at, pack.touched, {}});
      lists_.see(slot, [&](const Item* items, size_t n) { open.items.insert(open.items.end(), items, items + n); });
    }
    return all;
  }
  /// Puts a new object where another was that had emitted and pushed so much and whose open_from_oldest() was `open`:
  /// at most open_packs, each with its room.
  void restore(uint64_t emitted, uint64_t pushed, const std::vector<Open>& open) {
    emitted_ = emitted;
    pushed_ = pushed;
    std::vector<std::pair<uint64_t, uint32_t>> by_touch;
    for (const Open& saved : open) {
      const uint32_t slot = index_.take(rule_.budget).item;
      this->open(slot, [](const Lists&, uint32_t) {});
      slots_[slot].room = saved.room;
      slots_[slot].opened_at = saved.opened_at;
      slots_[slot].touched = saved.touched;
      for (const Item& item : saved.items) lists_.push(slot, item);
      by_touch.emplace_back(saved.touched, slot);
    }
    // Of packs with the same room, the one that was touched last is taken first.
    std::sort(by_touch.begin(), by_touch.end());
    for (const auto& [touched, slot] : by_touch) index_.insert(slots_[slot].room, slot);
  }

 private:
  struct Slot {
    int64_t room = 0;
    uint64_t opened_at = 0;
    uint64_t touched = 0;
    uint32_t older = 0;  ///< the ring of open packs; slot end_ lies between the newest and the oldest
    uint32_t newer = 0;
  };

  [[nodiscard]] uint32_t oldest() const { return slots_[end_].newer; }
  /// The empty pack is one of the open ones from now on, and another is the empty one.
  template <class Emit>
  void open(uint32_t slot, Emit&& emit) {
    if (free_.empty()) {
      close(index_.take(0).item, emit);
    }
    Slot& pack = slots_[slot];
    pack.opened_at = emitted_;
    pack.newer = end_;
    pack.older = slots_[end_].older;
    slots_[pack.older].newer = slot;
    slots_[end_].older = slot;
    index_.insert(rule_.budget, free_.back());
    free_.pop_back();
  }
  /// `slot` is not in the index any more.
  template <class Emit>
  void close(uint32_t slot, Emit&& emit) {
    slots_[slots_[slot].older].newer = slots_[slot].newer;
    slots_[slots_[slot].newer].older = slots_[slot].older;
    free_.push_back(slot);
    ++emitted_;
    emit(lists_, slot);
    lists_.clear(slot);
  }
  template <class Emit>
  void close_oldest(Emit&& emit) {
    const uint32_t slot = oldest();
    index_.erase(slots_[slot].room, slot);
    close(slot, emit);
  }
  /// Up to open_packs may be due at once, and one row leaves at a time.
  template <class Emit>
  void close_old(Emit&& emit) {
    while (oldest() != end_ && emitted_ - slots_[oldest()].opened_at + rule_.open_packs > rule_.max_wait) {
      close_oldest(emit);
    }
  }

  OpenPacksRule rule_;
  Index index_;
  Lists lists_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  uint32_t end_;
  uint64_t emitted_ = 0;
  uint64_t pushed_ = 0;
};

/// All of `sizes` (1 .. budget) at once; `rows` becomes what is emitted, with the items as ids.
template <class Index, class Id>
void pack_streaming(std::span<const int32_t> sizes, const OpenPacksRule& rule, ListedRows<Id>& rows) {
  OpenPacks<Index, Id> packs(rule);
  using Lists = detail::ItemLists<Id>;
  rows.restart(sizes.size());
  const auto emit = [&](const Lists& lists, uint32_t slot) {
    rows.begin_row();
    lists.see(slot, [&](const Id* ids, size_t count) { rows.template append<Lists::kChunk>(ids, count); });
  };
  for (size_t i = 0; i < sizes.size(); ++i) packs.push(static_cast<Id>(i), sizes[i], emit);
  packs.flush(emit);
  rows.finish();
}

}  // namespace pliant::sampler
