// PackSampler<T>: the base of the packing samplers. T brings `pack`, which turns items into packs.
#pragma once

#include <concepts>
#include <cstring>
#include <string>
#include <vector>

#include "finish.hpp"
#include "items.hpp"
#include "pack_options.hpp"
#include "packing_report.hpp"
#include "padding_rows.hpp"
#include "pliant/sdk/batch_sampler.hpp"
#include "threads.hpp"

namespace pliant::sampler {

/// Of packs that are sums.
sdk::PackingReport report_packs(const PackOptions& options, const sdk::PackedEpoch& epoch);

/// T derives from this and has
///   void pack(const Items&, const sdk::EpochRequest&, sdk::EpochRows&): the packs; ids number the items; `rows` is as
///   restart() leaves it
///   static constexpr const char* kName.
/// It may have its own item_order() and longest_item(), when it has options of its own text(), and when its packs are
/// not sums packing_report().
template <class T>
class PackSampler : public PackOptions {
 public:
  static std::vector<const char*> reasons() { return pack_drop_reasons(); }

  /// In which order the sequences become items.
  [[nodiscard]] std::string item_order() const { return order; }

  [[nodiscard]] int64_t longest_item() const { return longest(); }

  void start(const sdk::Host&) const { check(); }

  void plan_epoch(const sdk::EpochRequest& request, sdk::EpochRows& rows) {
    rows.pieces.clear();
    size_t threads = 1;
    if constexpr (std::derived_from<T, ThreadOption>) threads = self().thread_count();
    const Items items = make_items(request, *this, self().item_order(), self().longest_item(), threads, rows);
    static_cast<T&>(*this).pack(items, request, rows);
    if (!items.ids.empty() || changes_rows(*this)) rows.write_out();
    if (!rows.source) {
      name_sequences(items, rows);
      finish_rows(*this, request, rows);
    }
    if (tail == "pad") pad_last_batch(static_cast<uint64_t>(request.rows_per_batch), rows);
  }

  [[nodiscard]] sdk::PackingReport packing_report(const sdk::PackedEpoch& epoch) const {
    return report_packs(*this, epoch);
  }
  const void* extension(const char* id) const {
    return std::strcmp(id, PLIANT_PACKING) == 0 ? sdk::packing_table<T>() : nullptr;
  }

  void save(const sdk::Writer& out) const { save_options(out, tag(), self().text()); }
  void load(const sdk::Reader& in) const { load_options(in, tag(), self().text()); }

 private:
  [[nodiscard]] const T& self() const { return static_cast<const T&>(*this); }
  static std::string tag() { return std::string("sampler ") + T::kName + ", state 1"; }
};

}  // namespace pliant::sampler
