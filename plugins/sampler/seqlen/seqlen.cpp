// Sampler `seqlen`: packs sequences in order up to a token budget; DeepSpeed's batch_by_seqlens in one pass.
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "../common/order.hpp"
#include "../common/packing.hpp"
#include "../common/packing_report.hpp"
#include "pliant/sdk/batch_sampler.hpp"

namespace {

namespace sampler = pliant::sampler;
namespace sdk = pliant::sdk;

class Seqlen {
 public:
  int64_t max_tokens = 0;
  int64_t min_batch_size = 1;
  int64_t max_batch_size = 0;
  std::string sequence_picking_order = "dataloader";
  bool required_microbatches_of_same_size = false;
  std::string over_long = "error";
  bool strict = false;

  static void options(sdk::Options<Seqlen>& o) {
    o.add("max_tokens", &Seqlen::max_tokens, "Most tokens in a pack: the sum of the lengths of its sequences.")
        .required()
        .at_least(0)
        .unit("tokens");
    o.add("min_batch_size", &Seqlen::min_batch_size,
          "Fewest sequences in a pack; 0 = no minimum. The first pack that has fewer ends the epoch, unless strict.")
        .at_least(0)
        .unit("sequences");
    o.add("max_batch_size", &Seqlen::max_batch_size, "Most sequences in a pack; 0 = no maximum.")
        .at_least(0)
        .unit("sequences");
    o.add("sequence_picking_order", &Seqlen::sequence_picking_order, sampler::kOrderDoc)
        .choices(sampler::order_choices());
    o.add("required_microbatches_of_same_size", &Seqlen::required_microbatches_of_same_size,
          "All packs of a global batch hold the same number of sequences, assigned in turn.");
    o.add("over_long", &Seqlen::over_long, sampler::kOverLongDoc).choices(sampler::over_long_choices());
    o.add("strict", &Seqlen::strict,
          "false = as DeepSpeed: the last sequence is not used, a pack below min_batch_size ends the epoch, and packs "
          "that do not fill the last batch are dropped. true = only a pack below min_batch_size is dropped; the last "
          "batch may be short.");
  }

  static std::array<const char*, 4> reasons() {
    return {"too_long", "below_min_batch_size", "last_sequence", "incomplete_batch"};
  }

  void start(const sdk::Host&) const {
    if (max_batch_size == 0 || min_batch_size <= max_batch_size) return;
    throw sdk::Failure(PLIANT_OUT_OF_RANGE,
                       "min_batch_size = " + std::to_string(min_batch_size) + " is above max_batch_size = " +
                           std::to_string(max_batch_size) + "; no pack can have that many sequences",
                       "min_batch_size max_batch_size");
  }

  [[nodiscard]] sdk::EpochRows plan_epoch(const sdk::EpochRequest& request) const {
    std::vector<int64_t> order = sampler::ordered_ids(request, sequence_picking_order);
    sdk::EpochRows rows;
    rows.ids.reserve(order.size());
    sampler::take_out_over_long(order, request.lengths, max_tokens, over_long, sampler::kTooLong, rows);
    sampler::PackRule rule;
    rule.max_tokens = max_tokens;
    rule.min_sequences = static_cast<uint64_t>(min_batch_size);
    rule.max_sequences = static_cast<uint64_t>(max_batch_size);
    rule.packs_at_once = required_microbatches_of_same_size ? static_cast<uint64_t>(request.rows_per_batch) : 1;
    rule.strict = strict;
    sampler::Packer(order, request.lengths, rule, rows).run();
    if (!strict) {
      sampler::drop_incomplete_batch(
          rows, request.rows_per_batch, sampler::kIncompleteBatch,
          "Use a smaller global batch or max_tokens, or set strict = true to keep a short one");
    }
    return rows;
  }

  [[nodiscard]] sdk::PackingReport packing_report(const sdk::PackedEpoch& epoch) const {
    return sampler::report_sums(epoch, max_tokens, static_cast<uint64_t>(max_batch_size), PLIANT_UNIT_TOKENS,
                                [](int64_t, int64_t tokens) { return tokens; });
  }
  const void* extension(const char* id) const {
    return std::strcmp(id, PLIANT_PACKING) == 0 ? sdk::packing_table<Seqlen>() : nullptr;
  }

  void save(const sdk::Writer& out) const { sampler::save_options(out, kStateTag, options_text()); }
  void load(const sdk::Reader& in) const { sampler::load_options(in, kStateTag, options_text()); }

 private:
  static constexpr const char* kStateTag = "sampler seqlen, state 1";

  [[nodiscard]] std::string options_text() const {
    return "max_tokens = " + std::to_string(max_tokens) + ", min_batch_size = " + std::to_string(min_batch_size) +
           ", max_batch_size = " + std::to_string(max_batch_size) +
           ", sequence_picking_order = " + sequence_picking_order +
           ", required_microbatches_of_same_size = " + (required_microbatches_of_same_size ? "true" : "false") +
           ", over_long = " + over_long + ", strict = " + (strict ? "true" : "false");
  }
};

}  // namespace

PLIANT_BATCH_SAMPLER(Seqlen, "seqlen", "0.1.0", "Packs sequences in order up to a token budget, as DeepSpeed does")
