// A sampler that loads and breaks nearly every other promise, to see that the conformance check notices each.
#include "pliant/sdk/batch_sampler.hpp"

namespace {

int plans_made = 0;  // shared by all instances

struct BrokenSampler {
  int64_t depth = 0;  // below its own minimum
  int64_t saved = 5;

  static void options(pliant::sdk::Options<BrokenSampler>& table) {
    table.add("depth", &BrokenSampler::depth, "no sentence").range(1, 8);
  }
  void start(const pliant::sdk::Host& /*host*/) const {
    if (depth == 8) throw pliant::sdk::Failure(PLIANT_INTERNAL, "an allowed value that it cannot bear");
    if (depth == 0 && ++starts_ > 900) throw pliant::sdk::Failure(PLIANT_RESOURCE_EXHAUSTED, "leaked away");
  }
  pliant::sdk::EpochRows plan_epoch(const pliant::sdk::EpochRequest& request) const {
    if (depth == 0 && plans_made == 1) {
      ++plans_made;
      throw pliant::sdk::Failure(PLIANT_INTERNAL, "an epoch that it cannot plan");
    }
    pliant::sdk::EpochRows rows;
    for (size_t i = 0; i < request.lengths.size(); ++i) {
      rows.ids.push_back(static_cast<int64_t>(i) + plans_made);
      rows.end_row();
    }
    ++plans_made;
    return rows;
  }
  void save(pliant::sdk::Writer& out) const { out.value(saved); }
  void load(pliant::sdk::Reader& in) {
    saved = 0;  // before the new state is known to be whole
    saved = in.value<int64_t>() + 1;
  }
  const void* extension(const char*) { return this; }

  static inline int starts_ = 0;
};

}  // namespace

PLIANT_BATCH_SAMPLER(BrokenSampler, "broken", "1", "breaks its promises")
