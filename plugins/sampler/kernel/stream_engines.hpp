// The engines of RowStream: next fit, best fit over open packs, concatenation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "open_packs.hpp"
#include "row_stream.hpp"

namespace pliant::sampler {

namespace detail {

/// Room that `row` leaves in `budget`; a damaged state when it does not fit.
inline int64_t room_of(const Row& row, int64_t budget, const Cost& cost) {
  int64_t room = budget;
  for (const sdk::Entry& entry : row) {
    const int64_t size = cost(entry.piece.count);
    if (size > room) damaged("a pack above the budget");
    room -= size;
  }
  return room;
}

}  // namespace detail

class NextFitEngine {
 public:
  /// most_in_pack 0 = no limit.
  NextFitEngine(int64_t budget, uint64_t most_in_pack) : budget_(budget), most_(most_in_pack) {}

  template <class Emit>
  void push(const sdk::Entry& entry, int64_t size, Emit&& emit) {
    if (!row_.empty() && (size > room_ || row_.size() == most_)) flush(emit);
    if (row_.empty()) room_ = budget_;
    row_.push_back(entry);
    room_ -= size;
  }
  template <class Emit>
  void flush(Emit&& emit) {
    emit(std::exchange(row_, {}));
  }
  [[nodiscard]] bool is_empty() const { return row_.empty(); }
  void save(ByteWriter& out) const { save_row(out, row_); }
  void load(ByteReader& in, const Cost& cost) {
    row_ = load_row(in);
    room_ = detail::room_of(row_, budget_, cost);
  }
  template <class See>
  void see_open(See&& see) const {
    std::for_each(row_.begin(), row_.end(), see);
  }

 private:
  int64_t budget_;
  uint64_t most_;
  int64_t room_ = 0;
  Row row_;
};

/// Cuts what it gets; every piece costs its tokens.
class ConcatEngine {
 public:
  explicit ConcatEngine(int64_t row_tokens) : row_tokens_(row_tokens), room_(row_tokens) {}

  template <class Emit>
  void push(const sdk::Entry& entry, int64_t, Emit&& emit) {
    const int64_t end = entry.piece.first + entry.piece.count;
    for (int64_t first = entry.piece.first; first < end;) {
      const int64_t count = std::min(room_, end - first);
      row_.push_back({entry.id, {first, count}});
      first += count;
      room_ -= count;
      if (room_ == 0) flush(emit);
    }
  }
  template <class Emit>
  void flush(Emit&& emit) {
    emit(std::exchange(row_, {}));
    room_ = row_tokens_;
  }
  [[nodiscard]] bool is_empty() const { return row_.empty(); }
  void save(ByteWriter& out) const { save_row(out, row_); }
  void load(ByteReader& in, const Cost& cost) {
    row_ = load_row(in);
    room_ = detail::room_of(row_, row_tokens_, cost);
    if (room_ == 0) damaged("a full row that is still open");
  }
  template <class See>
  void see_open(See&& see) const {
    std::for_each(row_.begin(), row_.end(), see);
  }

 private:
  int64_t row_tokens_;
  int64_t room_;
  Row row_;
};

template <class Index>
class OpenPacksEngine {
 public:
  explicit OpenPacksEngine(const OpenPacksRule& rule) : rule_(rule), packs_(rule) {}

  template <class Emit>
  void push(const sdk::Entry& entry, int64_t size, Emit&& emit) {
    packs_.push(entry, size, rows_to(emit));
  }
  template <class Emit>
  void flush(Emit&& emit) {
    packs_.flush(rows_to(emit));
  }
  [[nodiscard]] bool is_empty() const { return packs_.is_empty(); }
  void save(ByteWriter& out) const {
    const auto open = packs_.open_from_oldest();
    out.number(packs_.emitted());
    out.number(packs_.pushed());
    out.number(uint64_t{open.size()});
    for (const auto& pack : open) {
      out.number(pack.opened_at);
      out.number(pack.touched);
      save_row(out, pack.items);
    }
  }
  void load(ByteReader& in, const Cost& cost) {
    const uint64_t emitted = in.number();
    const uint64_t pushed = in.number();
    std::vector<typename Packs::Open> open(in.count(3 * sizeof(uint64_t)));
    if (open.size() > rule_.open_packs) damaged("more open packs than there may be");
    for (auto& pack : open) {
      pack.opened_at = in.number();
      pack.touched = in.number();
      pack.items = load_row(in);
      pack.room = detail::room_of(pack.items, rule_.budget, cost);
      const bool sound = pack.opened_at <= emitted && pack.touched <= pushed && !pack.items.empty() && pack.room > 0 &&
                         pack.room < rule_.budget &&
                         (rule_.most_in_pack == 0 || pack.items.size() < rule_.most_in_pack);
      if (!sound) damaged("an open pack that cannot be");
    }
    packs_.restore(emitted, pushed, open);
  }
  template <class See>
  void see_open(See&& see) const {
    for (const auto& pack : packs_.open_from_oldest()) std::for_each(pack.items.begin(), pack.items.end(), see);
  }

 private:
  using Packs = OpenPacks<Index, sdk::Entry>;
  template <class Emit>
  static auto rows_to(Emit& emit) {
    return [&emit](const typename Packs::Lists& lists, uint32_t slot) {
      Row row;
      row.reserve(lists.size(slot));
      lists.see(slot, [&](const sdk::Entry* items, size_t count) { row.insert(row.end(), items, items + count); });
      emit(std::move(row));
    };
  }
  OpenPacksRule rule_;
  Packs packs_;
};

}  // namespace pliant::sampler
