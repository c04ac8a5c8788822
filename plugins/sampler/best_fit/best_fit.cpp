// Sampler `best_fit`: the fullest packs, by best-fit-decreasing over the whole epoch, in random order.
#include "../common/best_fit.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../common/best_fit_rows.hpp"
#include "../common/pack_sampler.hpp"
#include "../common/row_order.hpp"

namespace {

namespace sampler = pliant::sampler;
namespace sdk = pliant::sdk;

class BestFit : public sampler::PackSampler<BestFit>, public sampler::ThreadOption {
 public:
  static constexpr const char* kName = "best_fit";

  std::string shuffle = "blocks";

  BestFit() { order = "random"; }

  static void options(sdk::Options<BestFit>& o) {
    sampler::add_pack_options(
        o, sampler::summed_budget(),
        "Order of the packs: random = shuffled by seed and epoch, every order equally likely; dataloader = by the "
        "position of their first sequence; seqlen = the pack with the longest sequence first.");
    o.add("shuffle", &BestFit::shuffle,
          "How sequences of the same length are shuffled in a random order: blocks = in blocks of 8 neighbours if "
          "there are 256 or more, which takes a third of the time; each = one by one, every order equally likely.")
        .choices({"blocks", "each"});
    sampler::add_thread_option(o);
  }
  [[nodiscard]] std::string item_order() const { return "dataloader"; }

  void pack(const sampler::Items& items, const sdk::EpochRequest& request, sdk::EpochRows& rows) {
    sampler::BestFitRows& plan = *plan_;
    plan.threads = thread_count();
    sampler::group_by_value(items.sizes, max_tokens, plan.threads, plan.sorted);
    std::vector<uint64_t> counts(plan.sorted.groups());
    for (size_t g = 0; g < counts.size(); ++g) counts[g] = plan.sorted.count(g);
    plan.plan =
        sampler::best_fit_decreasing(plan.sorted.values, counts, max_tokens, static_cast<uint64_t>(max_sequences));
    if (order == "random") {
      plan.order_at_random({request.seed, static_cast<uint64_t>(request.epoch)},
                           shuffle == "each" ? sampler::Shuffled::kEach : sampler::Shuffled::kBlocks);
    } else {
      plan.order_as_planned();
    }
    rows.source = plan_;
    if (order == "dataloader") {
      rows.write_out();
      sampler::sort_by_first_item(items.count(), rows);
    }
  }

 private:
  std::shared_ptr<sampler::BestFitRows> plan_ = std::make_shared<sampler::BestFitRows>();
};

}  // namespace

PLIANT_BATCH_SAMPLER(BestFit, "best_fit", "0.2.0", "The fullest packs: best-fit-decreasing over the whole epoch")
