// Write a sampler as a class with `EpochRows plan_epoch(const EpochRequest&)` (and optionally `static reasons()`), then
// PLIANT_BATCH_SAMPLER. The SDK keeps the planned epoch and answers the host from it. A sampler for millions of
// sequences may have `void plan_epoch(const EpochRequest&, EpochRows&)` instead and write over the memory of the epoch
// before, or give a RowSource, which keeps a plan as small as it can and writes rows when they are asked for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pliant/abi/batch_sampler.h"
#include "pliant/sdk/plugin.hpp"

namespace pliant::sdk {

struct EpochRequest {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t rows_per_batch = 1;        ///< the global batch
  std::span<const int32_t> lengths;  ///< tokens of each sequence; valid until the next plan_epoch
  bool has_ids = false;
  std::span<const int64_t> ids;          ///< the sequences to use, in this order; without has_ids all of them
  std::span<const int32_t> loss_tokens;  ///< tokens of each sequence that have a loss; empty = all of them
  /// Rows made beforehand: row i is row_ids[row_offsets[i] .. row_offsets[i + 1]). Checked by the host; valid as long
  /// as lengths. Without has_rows there are none.
  bool has_rows = false;
  std::span<const uint64_t> row_offsets;
  std::span<const int64_t> row_ids;
};

/// Tokens [first, first + count) of a sequence.
struct Piece {
  int64_t first = 0;
  int64_t count = 0;
  bool operator==(const Piece&) const = default;
};

/// The rows of one planned epoch, written when they are asked for. Called by one thread at a time; asked again for the
/// same rows it writes the same. Every sequence in them is whole unless in_pieces().
class RowSource {
 public:
  RowSource() = default;
  RowSource(const RowSource&) = delete;
  RowSource& operator=(const RowSource&) = delete;
  virtual ~RowSource() = default;

  [[nodiscard]] virtual uint64_t row_count() const = 0;
  [[nodiscard]] virtual uint64_t entry_count() const = 0;
  /// Rows [first, first + count), which there are: count + 1 offsets from 0 on and, unless `ids` is null, their ids.
  virtual void write(uint64_t first, uint64_t count, uint64_t* offsets, int64_t* ids) = 0;
  [[nodiscard]] virtual bool in_pieces() const { return false; }
  /// With in_pieces(): of the entries that write gives for the same rows, the first token and the number of tokens.
  virtual void write_pieces(uint64_t /*first*/, uint64_t /*count*/, int64_t* /*first_tokens*/,
                            int64_t* /*token_counts*/) {}
};

/// The rows of one epoch as flat arrays. ids[offsets[i] .. offsets[i+1]) is row i.
struct EpochRows {
  std::vector<uint64_t> offsets{0};
  std::vector<int64_t> ids;
  /// The ids are 0, 1, 2, ... up to the last offset, each sequence whole; `ids` stays empty.
  bool ids_count_up = false;
  /// What of its sequence each of `ids` stands for; empty = every sequence is whole. Pieces of one sequence begin at
  /// its first token and leave no gap; tokens that are left over at the end make it a truncated one.
  std::vector<Piece> pieces;
  uint64_t sequence_count = 0;   ///< with pieces: different sequences in rows
  uint64_t truncated_count = 0;  ///< with pieces: those of them that lose tokens at their end
  std::vector<int64_t> dropped_ids;
  std::vector<int32_t> dropped_reasons;  ///< index into the class's `reasons()`
  /// Where it is set, the rows are what it writes; `offsets` stays {0}, `ids` and `pieces` are not used.
  std::shared_ptr<RowSource> source;

  /// Ends the row that the ids pushed since the last call form.
  void end_row() { offsets.push_back(ids.size()); }
  void drop(int64_t id, int32_t reason) {
    dropped_ids.push_back(id);
    dropped_reasons.push_back(reason);
  }
  /// No rows; `ids`, `pieces` and `offsets` keep their memory, and `ids` and `pieces` their elements: resize, then
  /// write.
  void restart() {
    offsets.assign(1, 0);
    ids_count_up = false;
    sequence_count = truncated_count = 0;
    dropped_ids.clear();
    dropped_reasons.clear();
    source.reset();
  }
  [[nodiscard]] uint64_t row_count() const { return source ? source->row_count() : offsets.size() - 1; }
  [[nodiscard]] uint64_t entry_count() const { return source ? source->entry_count() : offsets.back(); }
  [[nodiscard]] bool in_pieces() const { return source ? source->in_pieces() : !pieces.empty(); }
  /// Puts what `source` writes into `offsets`, `ids` and `pieces`.
  void write_out() {
    if (!source) return;
    offsets.resize(source->row_count() + 1);
    ids.resize(source->entry_count());
    source->write(0, offsets.size() - 1, offsets.data(), ids.data());
    pieces.clear();
    if (source->in_pieces()) {
      std::vector<int64_t> firsts(ids.size());
      std::vector<int64_t> counts(ids.size());
      source->write_pieces(0, offsets.size() - 1, firsts.data(), counts.data());
      for (size_t i = 0; i < ids.size(); ++i) pieces.push_back({firsts[i], counts[i]});
    }
    source.reset();
  }
};

namespace detail {

template <class T>
concept HasReasons = requires {
  T::reasons();
};

template <class T>
concept PlansInPlace = requires(T& plugin, const EpochRequest& request, EpochRows& rows) {
  plugin.plan_epoch(request, rows);
};

template <class T>
struct SamplerAdapter {
  /// A sampler and its current epoch.
  struct Instance {
    T plugin;
    EpochRows epoch;
    const int32_t* lengths = nullptr;  ///< of the current epoch's request
    std::span<const int32_t> loss_tokens;
    bool has_epoch = false;
  };
  static Instance* instance(void* self) { return static_cast<Instance*>(self); }

  static EpochRequest request_of(const pliant_epoch_request* given) {
    const pliant_epoch_request request = taken(given, &pliant_epoch_request::loss_tokens, "pliant_epoch_request");
    EpochRequest asked;
    asked.seed = request.seed;
    asked.epoch = request.epoch;
    asked.rows_per_batch = request.rows_per_batch;
    asked.lengths = {request.lengths, static_cast<size_t>(request.sequence_count)};
    asked.has_ids = request.ids != nullptr;
    asked.ids = {request.ids, static_cast<size_t>(request.id_count)};
    if (request.loss_tokens != nullptr) {
      asked.loss_tokens = {request.loss_tokens, static_cast<size_t>(request.sequence_count)};
    }
    asked.has_rows = request.row_offsets != nullptr;
    if (asked.has_rows) {
      asked.row_offsets = {request.row_offsets, static_cast<size_t>(request.given_rows) + 1};
      asked.row_ids = {request.row_ids, static_cast<size_t>(asked.row_offsets.back())};
    }
    return asked;
  }
  static int32_t begin_epoch(void* self, const pliant_epoch_request* request, pliant_epoch* out,
                             pliant_error* error) noexcept {
    return guarded(error, [&] {
      instance(self)->has_epoch = false;
      const EpochRequest asked = request_of(request);
      EpochRows& rows = plan(*instance(self), asked);
      pliant_epoch made{};
      made.row_count = rows.row_count();
      made.sequence_count = rows.in_pieces() ? rows.sequence_count : rows.entry_count();
      made.dropped_count = rows.dropped_ids.size();
      made.entry_count = rows.entry_count();
      made.truncated_count = rows.in_pieces() ? rows.truncated_count : 0;
      fill(out, made);
      instance(self)->lengths = asked.lengths.data();
      instance(self)->loss_tokens = asked.loss_tokens;
      instance(self)->has_epoch = true;
    });
  }
  static EpochRows& plan(Instance& instance, const EpochRequest& asked) {
    EpochRows rows = std::exchange(instance.epoch, EpochRows());  // a failure leaves no epoch
    if constexpr (PlansInPlace<T>) {
      rows.restart();
      instance.plugin.plan_epoch(asked, rows);
    } else {
      rows = EpochRows();
      rows = instance.plugin.plan_epoch(asked);
    }
    return instance.epoch = std::move(rows);
  }
  static void check_rows(const EpochRows& epoch, uint64_t first, uint64_t count) {
    const uint64_t total = epoch.row_count();
    if (first <= total && count <= total - first) return;
    throw Failure(PLIANT_OUT_OF_RANGE,
                  "rows " + std::to_string(first) + " + " + std::to_string(count) + " of " + std::to_string(total));
  }
  static void check_room(uint64_t entries, uint64_t capacity) {
    if (entries <= capacity) return;
    throw Failure(PLIANT_OUT_OF_RANGE,
                  "room for " + std::to_string(capacity) + " of " + std::to_string(entries) + " ids only");
  }
  static void write_rows(RowSource& source, uint64_t first, uint64_t count, uint64_t* offsets, int64_t* ids,
                         uint64_t capacity) {
    if (ids == nullptr || capacity < source.entry_count()) {
      source.write(first, count, offsets, nullptr);
      if (ids == nullptr) return;
      check_room(offsets[count], capacity);
    }
    source.write(first, count, offsets, ids);
  }
  static int32_t rows(void* self, uint64_t first, uint64_t count, uint64_t* offsets, int64_t* ids, uint64_t capacity,
                      pliant_error* error) noexcept {
    return guarded(error, [&] {
      const EpochRows& epoch = instance(self)->epoch;
      check_rows(epoch, first, count);
      if (epoch.source) return write_rows(*epoch.source, first, count, offsets, ids, capacity);
      const uint64_t begin = epoch.offsets[first];
      for (uint64_t i = 0; i <= count; ++i) offsets[i] = epoch.offsets[first + i] - begin;
      if (ids == nullptr) return;
      check_room(offsets[count], capacity);
      if (epoch.ids_count_up) {
        std::iota(ids, ids + offsets[count], static_cast<int64_t>(begin));
      } else {
        std::copy_n(epoch.ids.begin() + static_cast<std::ptrdiff_t>(begin), offsets[count], ids);
      }
    });
  }
  static void pieces_of_source(const Instance& instance, uint64_t first, uint64_t count, int64_t* first_tokens,
                               int64_t* token_counts, uint64_t capacity) {
    RowSource& source = *instance.epoch.source;
    std::vector<uint64_t> offsets(count + 1);
    source.write(first, count, offsets.data(), nullptr);
    check_room(offsets.back(), capacity);
    if (source.in_pieces()) return source.write_pieces(first, count, first_tokens, token_counts);
    source.write(first, count, offsets.data(), token_counts);
    for (uint64_t i = 0; i < offsets.back(); ++i) {
      first_tokens[i] = 0;
      token_counts[i] = instance.lengths[static_cast<uint64_t>(token_counts[i])];
    }
  }
  static int32_t pieces(void* self, uint64_t first, uint64_t count, int64_t* first_tokens, int64_t* token_counts,
                        uint64_t capacity, pliant_error* error) noexcept {
    return guarded(error, [&] {
      const EpochRows& epoch = instance(self)->epoch;
      check_rows(epoch, first, count);
      if (epoch.source) return pieces_of_source(*instance(self), first, count, first_tokens, token_counts, capacity);
      const uint64_t begin = epoch.offsets[first];
      const uint64_t entries = epoch.offsets[first + count] - begin;
      check_room(entries, capacity);
      for (uint64_t i = 0; i < entries; ++i) {
        const uint64_t at = begin + i;
        const uint64_t id = epoch.ids_count_up ? at : static_cast<uint64_t>(epoch.ids[at]);
        const Piece piece = epoch.pieces.empty() ? Piece{0, instance(self)->lengths[id]} : epoch.pieces[at];
        first_tokens[i] = piece.first;
        token_counts[i] = piece.count;
      }
    });
  }
  static int32_t dropped(void* self, uint64_t first, uint64_t count, int64_t* ids, int32_t* reasons,
                         pliant_error* error) noexcept {
    return guarded(error, [&] {
      const EpochRows& epoch = instance(self)->epoch;
      const uint64_t total = epoch.dropped_ids.size();
      if (first > total || count > total - first)
        throw Failure(PLIANT_OUT_OF_RANGE, "only " + std::to_string(total) + " dropped");
      std::copy_n(epoch.dropped_ids.begin() + static_cast<std::ptrdiff_t>(first), count, ids);
      std::copy_n(epoch.dropped_reasons.begin() + static_cast<std::ptrdiff_t>(first), count, reasons);
    });
  }
  static const char* drop_reason(void*, int32_t reason) noexcept {
    if constexpr (HasReasons<T>) {
      const auto words = T::reasons();
      if (reason >= 0 && static_cast<size_t>(reason) < std::size(words)) return words[static_cast<size_t>(reason)];
    }
    return nullptr;
  }
  static const void* vtable() noexcept {
    static const pliant_batch_sampler kTable{
        sizeof(pliant_batch_sampler), 0, &begin_epoch, &rows, &dropped, &drop_reason, &pieces};
    return &kTable;
  }
};

}  // namespace detail
}  // namespace pliant::sdk

#define PLIANT_BATCH_SAMPLER(Type, name, version, summary) \
  PLIANT_DETAIL_EXPORT(Type, SamplerAdapter, PLIANT_KIND_BATCH_SAMPLER, name, version, summary)
