// Gives a sampler the extension pliant.packing/0: return packing_table<T>() from `extension` for PLIANT_PACKING.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

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

/// The rows of the current epoch and the lengths that they were made of.
struct PackedEpoch {
  const EpochRows& rows;
  std::span<const int32_t> lengths;
  std::span<const int32_t> loss_tokens;  ///< as in the request

  /// The sequence of entry i of all rows.
  [[nodiscard]] int64_t id(uint64_t i) const {
    return rows.ids_count_up ? static_cast<int64_t>(i) : rows.ids[static_cast<size_t>(i)];
  }
  /// Tokens of entry i.
  [[nodiscard]] int64_t tokens(uint64_t i) const {
    return rows.pieces.empty() ? lengths[static_cast<size_t>(id(i))] : rows.pieces[static_cast<size_t>(i)].count;
  }
};

namespace detail {

template <class T>
struct PackingAdapter {
  static int32_t report(void* self, pliant_packing_report* out, pliant_error* error) noexcept {
    return guarded(error, [&] {
      const auto& instance = *SamplerAdapter<T>::instance(self);
      if (!instance.has_epoch) {
        throw Failure(PLIANT_FAILED_PRECONDITION, "there is no epoch to report on; call begin_epoch first");
      }
      const PackingReport made =
          instance.plugin.packing_report(PackedEpoch{instance.epoch, instance.lengths, instance.loss_tokens});
      out->budget = made.budget;
      out->unit = made.unit;
      out->reserved2 = 0;
      out->used = made.used;
      out->least_rows = made.least_rows;
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
