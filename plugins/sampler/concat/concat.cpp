// Sampler `concat`: all sequences one after the other, cut into rows of the same number of tokens.
#include "../common/concat.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../common/cost_windows.hpp"
#include "../common/items.hpp"
#include "../common/order.hpp"
#include "../common/pack_options.hpp"
#include "../common/packing_report.hpp"
#include "../common/padding_rows.hpp"
#include "../common/stream_engines.hpp"
#include "../common/streaming_base.hpp"

namespace {

namespace sampler = pliant::sampler;
namespace sdk = pliant::sdk;

class Concat : public sampler::Streams<Concat, sampler::ConcatEngine> {
 public:
  static constexpr const char* kName = "concat";
  int64_t max_tokens = 0;
  std::string order = "dataloader";
  std::string tail = "keep";
  int64_t cost_window = 0;
  int64_t cost_window_length = 0;

  static void options(sdk::Options<Concat>& o) {
    o.add("max_tokens", &Concat::max_tokens, "Number of tokens of every row except the last.")
        .required()
        .at_least(1)
        .unit("tokens");
    o.add("order", &Concat::order, sampler::kOrderDoc).choices(sampler::order_choices());
    o.add("tail", &Concat::tail,
          "What to do with rows that do not fill the last batch: keep = a short batch; pad = fill it up with rows "
          "without sequences; drop = drop them: a sequence with tokens in earlier rows loses the rest, others count as "
          "incomplete_batch.")
        .choices({"keep", "pad", "drop"});
    sampler::add_cost_window(o, &Concat::cost_window, &Concat::cost_window_length,
                             "For cost_window: length at which attention costs as much as everything else; a row costs "
                             "the sum of l + l*l / this over its pieces.");
  }
  void start(const sdk::Host&) const {
    sampler::check_cost_window(cost_window, cost_window_length, cost_window_length);
  }
  static std::array<const char*, 1> reasons() { return {"incomplete_batch"}; }

  void plan_epoch(const sdk::EpochRequest& request, sdk::EpochRows& rows) {
    const bool as_given = order == "dataloader" && !request.has_ids;
    std::optional<std::vector<int64_t>> ids;
    if (as_given && sampler::detail::all_within(request.lengths, std::numeric_limits<int32_t>::max())) {
      sampler::check_request(request);
    } else {
      ids = sampler::ordered_ids(request, order);
      sampler::refuse_empty(*ids, request.lengths);
    }
    plan_->plan(std::move(ids), request.lengths, max_tokens);
    rows.source = plan_;
    rows.sequence_count = plan_->sequence_count();
    if (tail == "drop" || cost_window != 0) rows.write_out();
    if (tail == "drop") {
      const uint64_t made = rows.row_count();
      sampler::drop_rows_from(made - made % static_cast<uint64_t>(request.rows_per_batch), 0, rows);
    }
    if (cost_window != 0) {
      sampler::sort_in_cost_windows(request, static_cast<uint64_t>(cost_window), cost_window_length, rows);
    }
    if (tail == "pad") sampler::pad_last_batch(static_cast<uint64_t>(request.rows_per_batch), rows);
  }

  [[nodiscard]] sdk::PackingReport packing_report(const sdk::PackedEpoch& epoch) const {
    sampler::detail::Wide used = 0;
    epoch.for_each_row([&](std::span<const int64_t>, std::span<const int64_t> tokens) {
      for (const int64_t one : tokens) used += static_cast<uint64_t>(one);
    });
    // Cutting anywhere fills every row but the last one.
    const auto budget = static_cast<uint64_t>(max_tokens);
    return {max_tokens, PLIANT_UNIT_TOKENS, sampler::detail::saturated(used), sampler::detail::packs_for(used, budget)};
  }
  const void* extension(const char* id) const {
    return std::strcmp(id, PLIANT_PACKING) == 0 ? sdk::packing_table<Concat>() : Streams::extension(id);
  }

  [[nodiscard]] std::string why_no_stream() const {
    if (order != "dataloader") return "order = \"dataloader\"";
    if (tail != "keep") return "tail = \"keep\"";
    return cost_window == 0 ? std::string() : "cost_window = 0";
  }
  [[nodiscard]] sampler::FeedRule feed_rule() const {
    return {std::numeric_limits<int64_t>::max(), sampler::Cost(), "split"};
  }
  [[nodiscard]] sampler::ConcatEngine make_engine() const { return sampler::ConcatEngine(max_tokens); }
  [[nodiscard]] std::string text() const {
    return "max_tokens = " + std::to_string(max_tokens) + ", order = " + order + ", tail = " + tail +
           ", cost_window = " + std::to_string(cost_window) +
           ", cost_window_length = " + std::to_string(cost_window_length);
  }

 private:
  std::shared_ptr<sampler::ConcatRows> plan_ = std::make_shared<sampler::ConcatRows>();
};

}  // namespace

PLIANT_BATCH_SAMPLER(Concat, "concat", "0.1.0", "All sequences in a row, cut into rows of the same length")
