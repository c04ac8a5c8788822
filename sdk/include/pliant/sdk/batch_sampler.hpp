// Write a sampler as a class with `EpochRows plan_epoch(const EpochRequest&)` (and optionally `static reasons()`), then
// PLIANT_BATCH_SAMPLER. The SDK keeps the planned epoch and answers the host from it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pliant/abi/batch_sampler.h"
#include "pliant/sdk/plugin.hpp"

namespace pliant::sdk {

struct EpochRequest {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t rows_per_batch = 1;        ///< the global batch
  std::span<const int64_t> lengths;  ///< tokens of each sequence; valid until the next plan_epoch
  bool has_ids = false;
  std::span<const int64_t> ids;  ///< the sequences to use, in this order; without has_ids all of them
};

/// The rows of one epoch as flat arrays. ids[offsets[i] .. offsets[i+1]) is row i.
struct EpochRows {
  std::vector<uint64_t> offsets{0};
  std::vector<int64_t> ids;
  std::vector<int64_t> dropped_ids;
  std::vector<int32_t> dropped_reasons;  ///< index into the class's `reasons()`

  /// Ends the row that the ids pushed since the last call form.
  void end_row() { offsets.push_back(ids.size()); }
  void drop(int64_t id, int32_t reason) {
    dropped_ids.push_back(id);
    dropped_reasons.push_back(reason);
  }
};

namespace detail {

template <class T>
concept HasReasons = requires {
  T::reasons();
};

template <class T>
struct SamplerAdapter {
  /// A sampler and its current epoch.
  struct Instance {
    T plugin;
    EpochRows epoch;
  };
  static Instance* instance(void* self) { return static_cast<Instance*>(self); }

  static int32_t begin_epoch(void* self, const pliant_epoch_request* request, pliant_epoch* out,
                             pliant_error* error) noexcept {
    return guarded(error, [&] {
      EpochRequest asked;
      asked.seed = request->seed;
      asked.epoch = request->epoch;
      asked.rows_per_batch = request->rows_per_batch;
      asked.lengths = {request->lengths, static_cast<size_t>(request->sequence_count)};
      asked.has_ids = request->ids != nullptr;
      asked.ids = {request->ids, static_cast<size_t>(request->id_count)};
      EpochRows rows = instance(self)->plugin.plan_epoch(asked);
      out->row_count = rows.offsets.size() - 1;
      out->sequence_count = rows.ids.size();
      out->dropped_count = rows.dropped_ids.size();
      instance(self)->epoch = std::move(rows);
    });
  }
  static int32_t rows(void* self, uint64_t first, uint64_t count, uint64_t* offsets, int64_t* ids, uint64_t capacity,
                      pliant_error* error) noexcept {
    return guarded(error, [&] {
      const EpochRows& epoch = instance(self)->epoch;
      const uint64_t total = epoch.offsets.size() - 1;
      if (first > total || count > total - first) {
        throw Failure(PLIANT_OUT_OF_RANGE,
                      "rows " + std::to_string(first) + " + " + std::to_string(count) + " of " + std::to_string(total));
      }
      const uint64_t begin = epoch.offsets[first];
      for (uint64_t i = 0; i <= count; ++i) offsets[i] = epoch.offsets[first + i] - begin;
      if (ids == nullptr) return;
      if (offsets[count] > capacity)
        throw Failure(PLIANT_OUT_OF_RANGE, "room for " + std::to_string(capacity) + " ids only");
      std::copy_n(epoch.ids.begin() + static_cast<std::ptrdiff_t>(begin), offsets[count], ids);
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
        sizeof(pliant_batch_sampler), 0, &begin_epoch, &rows, &dropped, &drop_reason};
    return &kTable;
  }
};

}  // namespace detail
}  // namespace pliant::sdk

#define PLIANT_BATCH_SAMPLER(Type, name, version, summary) \
  PLIANT_DETAIL_EXPORT(Type, SamplerAdapter, PLIANT_KIND_BATCH_SAMPLER, name, version, summary)
