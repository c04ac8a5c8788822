// The engines of RowStream: next fit, windows, concatenation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "row_stream.hpp"
#include "window_packs.hpp"

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
class WindowEngine {
 public:
  explicit WindowEngine(const WindowRule& rule) : rule_(rule), packs_(rule) {}

  template <class Emit>
  void push(const sdk::Entry& entry, int64_t size, Emit&& emit) {
    waiting_.push_back(entry);
    sizes_.push_back(static_cast<int32_t>(size));
    if (waiting_.size() == rule_.together()) pack_waiting(emit);
  }
  template <class Emit>
  void flush(Emit&& emit) {
    if (!waiting_.empty()) pack_waiting(emit);
    packs_.flush(rows_to(emit));
  }
  [[nodiscard]] bool is_empty() const { return waiting_.empty() && packs_.is_empty(); }
  void save(ByteWriter& out) const {
    const auto open = packs_.open();
    out.number(packs_.emitted());
    out.number(uint64_t{open.size()});
    for (const auto& pack : open) {
      out.number(pack.opened_at);
      save_row(out, pack.items);
    }
  }
  void load(ByteReader& in, const Cost& cost) {
    const uint64_t emitted = in.number();
    std::vector<typename Packs::Open> open(in.count(2 * sizeof(uint64_t)));
    if (open.size() > rule_.open_packs) damaged("more open packs than there may be");
    for (auto& pack : open) {
      pack.opened_at = in.number();
      pack.items = load_row(in);
      pack.room = detail::room_of(pack.items, rule_.budget, cost);
      const bool sound = pack.opened_at <= emitted && !pack.items.empty() && pack.room > 0 &&
                         pack.room < rule_.budget &&
                         (rule_.most_in_pack == 0 || pack.items.size() < rule_.most_in_pack);
      if (!sound) damaged("an open pack that cannot be");
    }
    packs_.restore(emitted, open);
  }
  template <class See>
  void see_open(See&& see) const {
    for (const auto& pack : packs_.open()) std::for_each(pack.items.begin(), pack.items.end(), see);
  }

 private:
  using Packs = WindowPacks<Index, sdk::Entry>;
  template <class Emit>
  auto rows_to(Emit& emit) const {
    return [&](std::span<const sdk::Entry> held, std::span<const uint32_t> positions) {
      Row row(held.begin(), held.end());
      for (const uint32_t position : positions) row.push_back(waiting_[position]);
      emit(std::move(row));
    };
  }
  template <class Emit>
  void pack_waiting(Emit& emit) {
    packs_.pack(
        sizes_, [&](uint32_t position) { return waiting_[position]; }, rows_to(emit));
    waiting_.clear();
    sizes_.clear();
  }

  WindowRule rule_;
  Row waiting_;  ///< to be packed together
  std::vector<int32_t> sizes_;
  Packs packs_;
};

}  // namespace pliant::sampler
