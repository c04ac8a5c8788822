// Concatenation: all sequences one after the other, cut every so many tokens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "pliant/sdk/batch_sampler.hpp"

namespace pliant::sampler {

/// Rows of exactly `row_tokens` tokens, the last one of what is left. Of the epoch it keeps a place for every kStride
/// rows, and the ids where they do not count up; rows are found by going on from a place.
class ConcatRows : public sdk::RowSource {
 public:
  /// Without `ids` 0, 1, ... up to the last length. lengths[i] >= 1 is that of sequence i and outlives this.
  void plan(std::optional<std::vector<int64_t>> ids, std::span<const int32_t> lengths, int64_t row_tokens) {
    ids_ = std::move(ids);
    lengths_ = lengths;
    row_tokens_ = row_tokens;
    sequences_ = ids_ ? ids_->size() : lengths.size();
    places_.clear();
    rows_ = 0;
    Place at;
    while (at.sequence < sequences_) {
      places_.push_back(at);
      rows_ += walk(
          at, kStride, [](int64_t, int64_t, int64_t) {}, [] {});
    }
    entries_ = at.entries;
    here_ = next_ = {};
  }
  [[nodiscard]] uint64_t sequence_count() const { return sequences_; }
  [[nodiscard]] uint64_t row_count() const override { return rows_; }
  [[nodiscard]] uint64_t entry_count() const override { return entries_; }
  void write(uint64_t first, uint64_t count, uint64_t* offsets, int64_t* ids) override {
    *offsets = 0;
    uint64_t entries = 0;
    see(
        first, count,
        [&](int64_t id, int64_t, int64_t) {
          if (ids != nullptr) ids[entries] = id;
          ++entries;
        },
        [&] { *++offsets = entries; });
  }
  [[nodiscard]] bool in_pieces() const override { return true; }
  void write_pieces(uint64_t first, uint64_t count, int64_t* first_tokens, int64_t* token_counts) override {
    see(
        first, count,
        [&](int64_t, int64_t first_token, int64_t tokens) {
          *first_tokens++ = first_token;
          *token_counts++ = tokens;
        },
        [] {});
  }

 private:
  static constexpr uint64_t kStride = 1024;
  /// Where a row begins.
  struct Place {
    uint64_t sequence = 0;  ///< position in the order of the epoch
    int64_t token = 0;      ///< of that sequence
    uint64_t entries = 0;   ///< of all rows before
  };
  struct Mark {
    uint64_t row = 0;
    Place place;
  };

  /// Goes on by `count` rows, or to the end: each(id, first token, tokens) for each entry, end() behind each row. Says
  /// how many rows there were.
  template <class Each, class End>
  uint64_t walk(Place& at, uint64_t count, Each&& each, End&& end) const {
    uint64_t row = 0;
    Place here = at;
    for (; row < count && here.sequence < sequences_; ++row) {
      for (int64_t room = row_tokens_; room > 0 && here.sequence < sequences_;) {
        const int64_t id = ids_ ? (*ids_)[here.sequence] : static_cast<int64_t>(here.sequence);
        const int64_t left = lengths_[static_cast<size_t>(id)] - here.token;
        const int64_t tokens = std::min(room, left);
        each(id, here.token, tokens);
        ++here.entries;
        room -= tokens;
        here.sequence += tokens == left ? 1 : 0;
        here.token = tokens == left ? 0 : here.token + tokens;
      }
      end();
    }
    at = here;
    return row;
  }
  /// The same for rows [first, first + count).
  template <class Each, class End>
  void see(uint64_t first, uint64_t count, Each&& each, End&& end) {
    if (count == 0) return;
    if (here_.row != first) {
      here_ = next_.row == first ? next_ : Mark{first / kStride * kStride, places_[first / kStride]};
      walk(
          here_.place, first - here_.row, [](int64_t, int64_t, int64_t) {}, [] {});
      here_.row = first;
    }
    next_ = here_;
    next_.row += walk(next_.place, count, each, end);
  }

  std::optional<std::vector<int64_t>> ids_;
  std::span<const int32_t> lengths_;
  int64_t row_tokens_ = 1;
  uint64_t sequences_ = 0;
  uint64_t rows_ = 0;
  uint64_t entries_ = 0;
  std::vector<Place> places_;
  Mark here_;  ///< the rows that were asked for last: they are asked for again, for ids and pieces
  Mark next_;  ///< behind them
};

/// Drops the rows from `kept` on for `reason`: a sequence that also has pieces before is truncated. The pieces of a
/// sequence follow each other.
inline void drop_rows_from(uint64_t kept, int32_t reason, sdk::EpochRows& rows) {
  const uint64_t entries = rows.offsets[kept];
  if (entries == rows.ids.size()) return;
  for (uint64_t i = entries; i < rows.ids.size(); ++i) {
    if (rows.pieces[i].first != 0) continue;
    rows.drop(rows.ids[i], reason);
    --rows.sequence_count;
  }
  rows.truncated_count += rows.pieces[entries].first != 0 ? 1 : 0;
  rows.ids.resize(entries);
  rows.pieces.resize(entries);
  rows.offsets.resize(kept + 1);
}

}  // namespace pliant::sampler
