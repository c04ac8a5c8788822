// PackSampler<T>: the base of the packing samplers. T brings `pack`, which turns items into packs.
#pragma once

#include <string>
#include <vector>

#include "finish.hpp"
#include "items.hpp"
#include "pack_options.hpp"
#include "pliant/sdk/batch_sampler.hpp"

namespace pliant::sampler {

/// T derives from this and has
///   void pack(const Items&, const sdk::EpochRequest&, sdk::EpochRows&): the packs; ids number the items; `rows` is as
///   restart() leaves it
///   static constexpr const char* kName.
/// It may have its own item_order() and longest_item() and, when it has options of its own, text().
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
    const Items items = make_items(request, *this, self().item_order(), self().longest_item(), rows);
    static_cast<T&>(*this).pack(items, request, rows);
    if (!items.ids.empty() || changes_rows(*this)) rows.write_out();
    if (rows.source) return;
    name_sequences(items, rows);
    finish_rows(*this, request.lengths, request.rows_per_batch, rows);
  }

  void save(const sdk::Writer& out) const { save_options(out, tag(), self().text()); }
  void load(const sdk::Reader& in) const { load_options(in, tag(), self().text()); }

 private:
  [[nodiscard]] const T& self() const { return static_cast<const T&>(*this); }
  static std::string tag() { return std::string("sampler ") + T::kName + ", state 1"; }
};

}  // namespace pliant::sampler
