// Gives a sampler the extension pliant.packing/0: return packing_table<T>() from `extension` for PLIANT_PACKING.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "pliant/abi/packing.h"
#include "pliant/sdk/batch_sampler.hpp"

namespace pliant::sdk {

/// See pliant_packing_report.
struct PackingReport {
  int64_t budget = 0;
  int32_t unit = PLIANT_UNIT_TOKENS;
  uint64_t used = 0;
  uint64_t least_rows = 0;
};

/// The rows of the current epoch, as the host gets them.
class PackedEpoch {
 public:
  PackedEpoch(const pliant_batch_sampler& slots, void* self, uint64_t row_count, std::span<const int32_t> loss_tokens)
      : slots_(slots), self_(self), row_count_(row_count), loss_tokens_(loss_tokens) {}

  /// As in the request.
  [[nodiscard]] std::span<const int32_t> loss_tokens() const { return loss_tokens_; }
  /// Calls see(ids, tokens) for every row: of each of its entries the sequence and the number of tokens.
  template <class See>
  void for_each_row(See&& see) const {
    constexpr uint64_t kPortion = 4096;
    std::vector<uint64_t> offsets(kPortion + 1);
    std::vector<int64_t> ids;
    std::vector<int64_t> firsts;
    std::vector<int64_t> tokens;
    for (uint64_t row = 0; row < row_count_; row += kPortion) {
      const uint64_t count = std::min(kPortion, row_count_ - row);
      pliant_error error{};
      error.struct_size = sizeof(error);
      check(slots_.rows(self_, row, count, offsets.data(), nullptr, 0, &error), error);
      const uint64_t entries = offsets[count];
      for (std::vector<int64_t>* array : {&ids, &firsts, &tokens}) array->resize(entries);
      check(slots_.rows(self_, row, count, offsets.data(), ids.data(), entries, &error), error);
      check(slots_.pieces(self_, row, count, firsts.data(), tokens.data(), entries, &error), error);
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t size = offsets[i + 1] - offsets[i];
        see(std::span<const int64_t>(ids).subspan(offsets[i], size),
            std::span<const int64_t>(tokens).subspan(offsets[i], size));
      }
    }
  }

 private:
  static void check(int32_t status, const pliant_error& error) {
    if (status != PLIANT_OK) throw Failure(status, error.message);
  }

  const pliant_batch_sampler& slots_;
  void* self_;
  uint64_t row_count_;
  std::span<const int32_t> loss_tokens_;
};

namespace detail {

template <class T>
struct PackingAdapter {
  static int32_t report(void* self, pliant_packing_report* out, pliant_error* error) noexcept {
    return guarded(error, [&] {
      const auto& instance = *SamplerAdapter<T>::instance(self);
      if (!instance.has_epoch) {
        throw Failure(PLIANT_FAILED_PRECONDITION, "no epoch was begun; call begin_epoch first");
      }
      const auto& slots = *static_cast<const pliant_batch_sampler*>(SamplerAdapter<T>::vtable());
      const PackedEpoch epoch(slots, self, instance.epoch.row_count(), instance.loss_tokens);
      const PackingReport made = instance.plugin.packing_report(epoch);
      pliant_packing_report answer{};
      answer.budget = made.budget;
      answer.unit = made.unit;
      answer.used = made.used;
      answer.least_rows = made.least_rows;
      fill(out, answer);
    });
  }
};

}  // namespace detail

/// The extension's table for sampler class T, which has
///   PackingReport packing_report(const PackedEpoch&) const;
template <class T>
const pliant_packing* packing_table() noexcept {
  static const pliant_packing kTable{sizeof(pliant_packing), 0, &detail::PackingAdapter<T>::report};
  return &kTable;
}

}  // namespace pliant::sdk
