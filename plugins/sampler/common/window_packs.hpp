// Packs over windows of the sequences, in one pass: what `streaming` does.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "best_fit.hpp"
#include "length_sort.hpp"
#include "listed_rows.hpp"
#include "residual_index.hpp"

namespace pliant::sampler {

struct WindowRule {
  int64_t budget = 0;
  uint64_t most_in_pack = 0;  ///< 0 = no limit
  uint64_t open_packs = 1;    ///< that may stay open from window to window; at least 1
  uint64_t max_wait = 2;      ///< rows that may be emitted while a sequence waits; at least 2 * open_packs
  uint64_t window = 1;        ///< sequences that are packed together, at least 1; fewer where max_wait is small

  /// Sequences that are packed together: no more than leave a pack the time to meet a second window.
  [[nodiscard]] uint64_t together() const {
    return max_wait / 2 <= open_packs + 1 ? 1 : std::min(window, max_wait / 2 - open_packs);
  }
};

/// A window's sequences are packed in three steps. The long ones, above a quarter of the budget, by best fit, the
/// longest first: they decide how full packs can get. Then those of middle length are poured as they came, so that
/// sequences of all lengths meet: into the emptiest packs, each until the next does not fit. The shortest are kept
/// back, about as many tokens as leave gaps, and fill these by best fit, the longest first.
///
/// Of the packs that are not full then, the emptiest stay open for the next window. Rows come out in the order in which
/// the first sequence of the window that was put into each came; packs without one come first.
template <class Index, class Item>
class WindowPacks {
 public:
  /// A pack that stays open, as it is saved.
  struct Open {
    int64_t room = 0;
    uint64_t opened_at = 0;  ///< rows that had been emitted
    std::vector<Item> items;
  };

  explicit WindowPacks(const WindowRule& rule) : rule_(rule), kinds_(rule.budget, rule.most_in_pack) {}

  /// Packs `sizes`, each 1 .. budget, at most rule.together(). item_of(position) is the item that has a size.
  /// emit(std::span<const Item> held, std::span<const uint32_t> positions) gets each finished pack: what it held
  /// before, and positions in the window; as many as ListedRows::kPortion may be read.
  template <class ItemOf, class Emit>
  void pack(std::span<const int32_t> sizes, ItemOf&& item_of, Emit&& emit) {
    group_by_value(sizes, rule_.budget, 1, sorted_);
    kinds_.restart(1);
    for (const Held& pack : held_) kinds_.open(pack.room, items_[pack.items].size());
    const size_t groups = sorted_.groups();
    const auto long_ones = std::upper_bound(sorted_.values.begin(), sorted_.values.end(), rule_.budget / 4);
    const auto first_long = static_cast<size_t>(long_ones - sorted_.values.begin());
    next_.assign(sorted_.begins.begin(), sorted_.begins.end());
    place(first_long, groups);
    if (first_long > 0) pour(sizes, first_long);
    place(0, first_long);
    first_open_ = kinds_.finish();
    choose_rows();
    write_rows(sizes.size());
    emit_rows(item_of, emit);
  }
  /// Emits what is still open, the oldest first.
  template <class Emit>
  void flush(Emit&& emit) {
    std::stable_sort(held_.begin(), held_.end(),
                     [](const Held& a, const Held& b) { return a.opened_at < b.opened_at; });
    row_.resize(ListedRows<Item>::kPortion);
    for (const Held& pack : held_) {
      emit(std::span<const Item>(items_[pack.items]), std::span<const uint32_t>(row_.data(), 0));
      forget(pack);
    }
    emitted_ += held_.size();
    held_.clear();
  }

  [[nodiscard]] uint64_t emitted() const { return emitted_; }
  [[nodiscard]] bool is_empty() const { return held_.empty(); }
  [[nodiscard]] std::vector<Open> open() const {
    std::vector<Open> all;
    for (const Held& pack : held_) all.push_back({pack.room, pack.opened_at, items_[pack.items]});
    return all;
  }
  /// Puts a new object where another was that had emitted so much and whose open() was `open`.
  void restore(uint64_t emitted, const std::vector<Open>& open) {
    emitted_ = emitted;
    for (const Open& pack : open) {
      held_.push_back({pack.room, pack.opened_at, empty_list()});
      items_[held_.back().items] = pack.items;
    }
  }

 private:
  struct Held {
    int64_t room = 0;
    uint64_t opened_at = 0;
    size_t items = 0;  ///< in items_
  };
  /// A pack that the window has changed.
  struct Changed {
    uint32_t begin = 0;  ///< of row_
    uint32_t count = 0;
    uint32_t kind = 0;
    bool is_new_row = false;  ///< it was not held and does not stay
    bool stays = false;
  };
  /// The next sequences for a part of packs that are alike.
  struct Source {
    const uint32_t* next = nullptr;
    uint32_t times = 0;
  };
  /// What becomes of a held pack that the window has not changed.
  enum class Fate : uint8_t { kChanged, kStays, kLeaves };

  /// Parts with this bit were poured: the others are the number of the first in poured_.
  static constexpr uint32_t kPoured = uint32_t{1} << 31U;

  /// In items_.
  size_t empty_list() {
    if (free_.empty()) {
      items_.emplace_back();
      return items_.size() - 1;
    }
    const size_t list = free_.back();
    free_.pop_back();
    return list;
  }
  void forget(const Held& pack) {
    items_[pack.items].clear();
    free_.push_back(pack.items);
  }
  [[nodiscard]] const Alike& kind(size_t at) { return kinds_.kinds()[at]; }
  [[nodiscard]] uint64_t opened_at(const Alike& kind) const {
    return kind.born < held_.size() ? held_[kind.born].opened_at : emitted_;
  }
  /// What is not poured of value groups begin .. end-1 by best fit, the largest first.
  void place(size_t begin, size_t end) {
    for (size_t g = end; g-- > begin;) {
      kinds_.place(static_cast<uint32_t>(g), sorted_.values[g], sorted_.begins[g + 1] - next_[g]);
    }
  }
  /// Pours sequences of value groups below `end` > 0, but for the shortest of them.
  void pour(std::span<const int32_t> sizes, size_t end) {
    taken_.clear();
    kinds_.take_open(taken_);
    const Gaps gaps = expected_gaps(end);
    size_t kept = 0;
    int64_t kept_tokens = 0;
    for (; kept < end && kept_tokens < gaps.tokens; ++kept) {
      kept_tokens += sorted_.values[kept] * static_cast<int64_t>(sorted_.count(kept));
    }
    if (kept < end) {
      find_poured(sizes, kept == 0 ? 0 : sorted_.values[kept - 1], sorted_.values[end - 1]);
      skip_poured(kept, end, pour_into(sizes, gaps.least_room, kept_tokens));
    }
    while (!taken_.empty()) {
      kinds_.keep(taken_.back());
      taken_.pop_back();
    }
  }
  /// Of value groups begin .. end-1 those before position `stop` are poured.
  void skip_poured(size_t begin, size_t end, uint32_t stop) {
    for (size_t g = begin; g < end; ++g) {
      const uint32_t* const first = sorted_.positions.get() + sorted_.begins[g];
      const uint32_t* const last = sorted_.positions.get() + sorted_.begins[g + 1];
      const bool all = last[-1] < stop;
      next_[g] += static_cast<uint32_t>((all ? last : std::lower_bound(first, last, stop)) - first);
    }
  }
  struct Gaps {
    int64_t least_room = 0;  ///< of a pack that is worth pouring into
    int64_t tokens = 0;      ///< that pouring leaves free
  };
  /// Where value groups below `end` are poured into taken_ and then into new packs. A pack whose sequences come by
  /// chance is left with half of what the sequence that does not fit has, which is met in proportion to its size.
  [[nodiscard]] Gaps expected_gaps(size_t end) const {
    // Scaled, so that the square of a size times a number of sequences fits 64 bits.
    const auto bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(rule_.budget)));
    const int shift = std::max(bits - 20, 0);
    uint64_t tokens = 0;
    uint64_t squares = 0;
    uint64_t count = 0;
    for (size_t g = 0; g < end; ++g) {
      const auto size = static_cast<uint64_t>(sorted_.values[g]) >> shift;
      count += sorted_.count(g);
      tokens += sorted_.count(g) * size;
      squares += sorted_.count(g) * size * size;
    }
    const auto budget = static_cast<uint64_t>(rule_.budget) >> shift;
    const uint64_t gap = tokens == 0 ? 0 : (squares / tokens + 1) / 2;
    const uint64_t least_room = std::min(2 * tokens / count + 1, budget);
    uint64_t narrow = 0;
    uint64_t wide = 0;
    uint64_t wide_packs = 0;
    for (const Alike& alike : taken_) {
      const uint64_t room = static_cast<uint64_t>(alike.room) >> shift;
      (room < least_room ? narrow : wide) += room * alike.count;
      if (room >= least_room) wide_packs += alike.count;
    }
    const uint64_t poured = tokens - std::min(tokens, narrow);
    const uint64_t into_open = std::min(poured, wide);
    uint64_t packs = (poured - into_open + budget - 1) / budget;
    if (wide > 0) packs += (into_open * wide_packs + wide - 1) / wide;
    return {static_cast<int64_t>(least_room << shift), static_cast<int64_t>((narrow + packs * gap) << shift)};
  }
  /// poured_ = the positions of sizes above `least` and up to `most`.
  void find_poured(std::span<const int32_t> sizes, int64_t least, int64_t most) {
    poured_.resize(sizes.size() + ListedRows<Item>::kPortion);
    uint32_t* const positions = poured_.data();
    const auto below = static_cast<uint32_t>(least) + 1;
    const auto span = static_cast<uint32_t>(most - least);
    size_t found = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      positions[found] = static_cast<uint32_t>(i);
      found += static_cast<uint32_t>(sizes[i]) - below < span ? 1 : 0;
    }
    poured_count_ = found;
  }
  /// Pours poured_ into the emptiest of taken_ down to `least_room`, then into new packs, as long as more is left than
  /// fills the gaps, with the `kept` tokens that are not poured. Says before which position all is poured.
  uint32_t pour_into(std::span<const int32_t> sizes, int64_t least_room, int64_t kept) {
    int64_t left = kept;
    for (size_t i = 0; i < poured_count_; ++i) left += sizes[poured_[i]];
    for (const Alike& alike : taken_) left -= alike.room * static_cast<int64_t>(alike.count);
    size_t next = 0;
    while (next < poured_count_ && left > 0) {
      Alike pack;
      if (!taken_.empty() && taken_.back().room >= least_room) {
        pack = taken_.back();
        pack.count = 1;
        if (--taken_.back().count == 0) taken_.pop_back();
      } else {
        pack = kinds_.empty_pack();
        left -= pack.room;
      }
      const size_t begin = next;
      const size_t end = begin + std::min<uint64_t>(kinds_.places(pack), poured_count_ - begin);
      int64_t room = pack.room;
      for (; next < end && sizes[poured_[next]] <= room; ++next) room -= sizes[poured_[next]];
      if (next > begin) {
        pack =
            kinds_.with(pack, 1, {static_cast<uint32_t>(begin) | kPoured, static_cast<uint32_t>(next - begin)}, room);
      }
      kinds_.keep(pack);
    }
    return next < poured_count_ ? poured_[next] : static_cast<uint32_t>(sizes.size());
  }
  /// leaves_: of each kind that is open, how many packs become rows. The fullest, where more than open_packs are open;
  /// and the oldest, where they might wait too long for the next window's rows and all that is open then.
  void choose_rows() {
    const std::span<const Alike> kinds = kinds_.kinds();
    const auto packs = [](std::span<const Alike> some) {
      return std::accumulate(some.begin(), some.end(), uint64_t{0},
                             [](uint64_t sum, const Alike& alike) { return sum + alike.count; });
    };
    const uint64_t open = packs(kinds.subspan(first_open_));
    uint64_t too_many = open - std::min(open, rule_.open_packs);
    const uint64_t stay = open - too_many;
    uint64_t rows = emitted_ + packs(kinds.first(first_open_)) + too_many;
    const uint64_t still = rule_.together() + rule_.open_packs;
    const auto is_due = [&](uint64_t opened, uint64_t more) { return rows + more - opened + still > rule_.max_wait; };
    leaves_.assign(kinds.size() - first_open_, 0);
    by_age_.clear();
    for (size_t k = 0; k < leaves_.size(); ++k) {
      const Alike& alike = kinds[first_open_ + k];
      leaves_[k] = std::min(alike.count, too_many);
      too_many -= leaves_[k];
      const uint64_t opened = opened_at(alike);
      if (is_due(opened, stay)) by_age_.insert(by_age_.end(), alike.count - leaves_[k], {opened, k});
    }
    std::sort(by_age_.begin(), by_age_.end());
    for (const auto& [opened, k] : by_age_) {
      if (!is_due(opened, 0)) return;
      ++leaves_[k];
      ++rows;
    }
  }
  /// row_: the positions in each pack; changed_: where they are, by the first that was put into it.
  void write_rows(size_t count) {
    row_.resize(count + ListedRows<Item>::kPortion);
    changed_.resize(count);
    marks_.assign(count / 64 + 1, 0);
    fates_.assign(held_.size(), Fate::kChanged);
    const std::span<const Alike> kinds = kinds_.kinds();
    uint32_t* to = row_.data();
    for (size_t k = 0; k < kinds.size(); ++k) {
      const uint64_t leaves = k < first_open_ ? kinds[k].count : leaves_[k - first_open_];
      if (kinds[k].part == kNone) {
        fates_[kinds[k].born] = leaves == 0 ? Fate::kStays : Fate::kLeaves;
        continue;
      }
      find_sources(kinds[k]);
      const bool was_held = kinds[k].born < held_.size();
      for (uint64_t pack = 0; pack < kinds[k].count; ++pack) {
        uint32_t* const begin = to;
        uint32_t first = 0;
        for (Source& source : sources_) {
          first = *source.next;
          // Portions of a fixed size; what is too much is written over.
          constexpr size_t kPortion = 8;
          for (size_t i = 0; i < source.times; i += kPortion) {
            std::memcpy(to + i, source.next + i, kPortion * sizeof(*to));
          }
          to += source.times;
          source.next += source.times;
        }
        const bool stays = pack >= leaves;
        changed_[first] = {static_cast<uint32_t>(begin - row_.data()), static_cast<uint32_t>(to - begin),
                           static_cast<uint32_t>(k), !was_held && !stays, stays};
        marks_[first / 64] |= uint64_t{1} << (first % 64);
      }
    }
  }
  /// sources_ for each part of packs of `kind`. As many positions as ListedRows::kPortion may be read from each.
  void find_sources(const Alike& kind) {
    sources_.clear();
    kinds_.see_parts(kind, [&](const PackPart& part) {
      if ((part.group & kPoured) != 0) {
        sources_.push_back({poured_.data() + (part.group & ~kPoured), part.times});
        return;
      }
      uint32_t& next = next_[part.group];
      sources_.push_back({sorted_.positions.get() + next, part.times});
      next += part.times * static_cast<uint32_t>(kind.count);
    });
  }
  template <class ItemOf, class Emit>
  void emit_rows(ItemOf& item_of, Emit& emit) {
    before_.swap(held_);
    held_.clear();
    const uint64_t emitted = emitted_;
    const auto emit_row = [&](const Held* held, std::span<const uint32_t> positions) {
      emit(held == nullptr ? std::span<const Item>() : std::span<const Item>(items_[held->items]), positions);
      if (held != nullptr) forget(*held);
      ++emitted_;
    };
    for (size_t at = 0; at < before_.size(); ++at) {
      if (fates_[at] == Fate::kStays) held_.push_back(before_[at]);
      if (fates_[at] == Fate::kLeaves) emit_row(&before_[at], {row_.data(), 0});
    }
    for (size_t word = 0; word < marks_.size(); ++word) {
      for (uint64_t marks = marks_[word]; marks != 0; marks &= marks - 1) {
        const Changed& row = changed_[word * 64 + static_cast<size_t>(std::countr_zero(marks))];
        const std::span<const uint32_t> positions(row_.data() + row.begin, row.count);
        if (row.is_new_row) {
          emit_row(nullptr, positions);
          continue;
        }
        const Alike& alike = kind(row.kind);
        const Held* const held = alike.born < before_.size() ? &before_[alike.born] : nullptr;
        if (!row.stays) {
          emit_row(held, positions);
          continue;
        }
        held_.push_back(held != nullptr ? *held : Held{0, emitted, empty_list()});
        held_.back().room = alike.room;
        std::vector<Item>& items = items_[held_.back().items];
        for (const uint32_t position : positions) items.push_back(item_of(position));
      }
    }
  }

  WindowRule rule_;
  uint64_t emitted_ = 0;
  std::vector<Held> held_;
  std::vector<std::vector<Item>> items_;
  std::vector<size_t> free_;  ///< of items_: those of no pack, which are empty

  // Of the window that is packed; kept for their memory.
  KindsOfPacks<Index> kinds_;
  ByValue sorted_;
  std::vector<Alike> taken_;
  std::vector<uint32_t> poured_;  ///< the first poured_count_ of it
  size_t poured_count_ = 0;
  size_t first_open_ = 0;  ///< the first of kinds_.kinds() that is not done
  std::vector<uint64_t> leaves_;
  std::vector<std::pair<uint64_t, size_t>> by_age_;
  std::vector<uint32_t> next_;  ///< of each value group
  std::vector<uint32_t> row_;
  std::vector<Changed> changed_;
  std::vector<Source> sources_;
  std::vector<uint64_t> marks_;
  std::vector<Fate> fates_;
  std::vector<Held> before_;
};

/// All of `sizes` (1 .. budget) at once; `rows` becomes what is emitted, with the items as ids.
template <class Index, class Id>
void pack_windows(std::span<const int32_t> sizes, const WindowRule& rule, ListedRows<Id>& rows) {
  WindowPacks<Index, Id> packs(rule);
  rows.restart(sizes.size());
  const auto together = static_cast<size_t>(rule.together());
  Id base = 0;
  const auto emit = [&](std::span<const Id> held, std::span<const uint32_t> positions) {
    rows.append_row(held, base, positions);
  };
  for (size_t begin = 0; begin < sizes.size(); begin += together) {
    base = static_cast<Id>(begin);
    packs.pack(
        sizes.subspan(begin, std::min(together, sizes.size() - begin)),
        [&](uint32_t position) { return static_cast<Id>(base + position); }, emit);
  }
  packs.flush(emit);
  rows.finish();
}

}  // namespace pliant::sampler
