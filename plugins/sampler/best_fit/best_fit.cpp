// Sampler `best_fit`: the fullest packs, by best-fit-decreasing over the whole epoch, in random order.
#include "../kernel/best_fit.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include "../kernel/pack_emission.hpp"
#include "../kernel/pack_sampler.hpp"

namespace {

namespace sampler = pliant::sampler;
namespace sdk = pliant::sdk;

class BestFit : public sampler::PackSampler<BestFit> {
 public:
  static constexpr const char* kName = "best_fit";

  BestFit() { order = "random"; }

  static void options(sdk::Options<BestFit>& o) {
    sampler::add_pack_options(
        o, sampler::summed_budget(),
        "Order of the packs: random = every order, and every choice among sequences of one length, is equally likely, "
        "keyed by seed and epoch; dataloader = by the first of their sequences in the order given; seqlen = the pack "
        "with the longest sequence first.");
  }
  [[nodiscard]] std::string item_order() const { return "dataloader"; }

  void pack(const sampler::Items& items, const sdk::EpochRequest& request, sdk::EpochRows& rows) const {
    sampler::ByValue sorted = sampler::group_by_value(items.sizes, max_tokens);
    std::vector<uint64_t> counts(sorted.groups());
    for (size_t g = 0; g < counts.size(); ++g) counts[g] = sorted.count(g);
    const sampler::PackPlan plan =
        sampler::best_fit_decreasing(sorted.values, counts, max_tokens, static_cast<uint64_t>(max_sequences));
    if (order == "random") {
      sampler::emit_at_random(plan, sorted, request.seed, static_cast<uint64_t>(request.epoch), rows);
    } else {
      sampler::emit_as_planned(plan, sorted, rows);
      if (order == "dataloader") sampler::sort_by_first_item(items.count(), rows);
    }
  }
};

}  // namespace

PLIANT_BATCH_SAMPLER(BestFit, "best_fit", "0.1.0", "The fullest packs: best-fit-decreasing over the whole epoch")
