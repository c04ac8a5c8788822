// Sampler `fixed`: every row is one sequence.
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "../common/order.hpp"
#include "../common/packing_report.hpp"
#include "../common/padding_rows.hpp"
#include "pliant/sdk/batch_sampler.hpp"

namespace {

namespace sampler = pliant::sampler;
namespace sdk = pliant::sdk;

class Fixed {
 public:
  std::string order = "dataloader";
  int64_t max_tokens = 0;
  std::string over_long = "error";
  std::string tail = "keep";

  static void options(sdk::Options<Fixed>& o) {
    o.add("order", &Fixed::order, sampler::kOrderDoc).choices(sampler::order_choices());
    o.add("max_tokens", &Fixed::max_tokens, "Most tokens in a sequence; 0 = no limit.").at_least(0).unit("tokens");
    o.add("over_long", &Fixed::over_long, sampler::kOverLongDoc).choices(sampler::over_long_choices());
    o.add("tail", &Fixed::tail,
          "What to do with rows that do not fill the last batch: keep = a short batch; pad = fill it up with rows "
          "without sequences; drop = drop them, counted as incomplete_batch.")
        .choices({"keep", "pad", "drop"});
  }

  static std::array<const char*, 2> reasons() { return {"too_long", "incomplete_batch"}; }

  [[nodiscard]] sdk::EpochRows plan_epoch(const sdk::EpochRequest& request) const {
    sdk::EpochRows rows;
    rows.ids = sampler::ordered_ids(request, order);
    if (max_tokens > 0) {
      sampler::take_out_over_long(rows.ids, request.lengths, max_tokens, over_long, kTooLong, rows);
    }
    rows.offsets.resize(rows.ids.size() + 1);
    for (uint64_t i = 0; i < rows.offsets.size(); ++i) rows.offsets[i] = i;
    if (tail == "drop") {
      sampler::drop_incomplete_batch(rows, request.rows_per_batch, kIncompleteBatch,
                                     "Use a smaller global batch, or set tail = \"keep\" to keep a short one");
    }
    if (tail == "pad") sampler::pad_last_batch(static_cast<uint64_t>(request.rows_per_batch), rows);
    return rows;
  }

  /// The fewest rows are those that packing up to max_tokens could come down to.
  [[nodiscard]] sdk::PackingReport packing_report(const sdk::PackedEpoch& epoch) const {
    // One sequence a row is the rule: max_tokens says which may be one, it is no room to be filled.
    return sampler::report_sums(epoch, 0, 1, PLIANT_UNIT_TOKENS, [](int64_t, int64_t tokens) { return tokens; });
  }
  const void* extension(const char* id) const {
    return std::strcmp(id, PLIANT_PACKING) == 0 ? sdk::packing_table<Fixed>() : nullptr;
  }

  void save(const sdk::Writer& out) const { sampler::save_options(out, kStateTag, options_text()); }
  void load(const sdk::Reader& in) const { sampler::load_options(in, kStateTag, options_text()); }

 private:
  enum Reason : int32_t { kTooLong = 0, kIncompleteBatch = 1 };
  static constexpr const char* kStateTag = "sampler fixed, state 1";

  [[nodiscard]] std::string options_text() const {
    return "order = " + order + ", max_tokens = " + std::to_string(max_tokens) + ", over_long = " + over_long +
           ", tail = " + tail;
  }
};

}  // namespace

PLIANT_BATCH_SAMPLER(Fixed, "fixed", "0.1.0", "One sequence per row")
