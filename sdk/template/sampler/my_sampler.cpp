// my-sampler: sequences in their own order, one per row; those that are too long are dropped and counted.
#include "pliant/sdk/batch_sampler.hpp"

struct MySampler {
  int64_t max_tokens = 4096;

  static void options(pliant::sdk::Options<MySampler>& table) {
    table.add("max_tokens", &MySampler::max_tokens, "Length of the longest sequence that is used.")
        .at_least(1)
        .unit("tokens");
  }

  static std::vector<const char*> reasons() { return {"too_long"}; }

  pliant::sdk::EpochRows plan_epoch(const pliant::sdk::EpochRequest& request) const {
    pliant::sdk::EpochRows rows;
    const auto use = [&](int64_t id) {
      if (request.lengths[static_cast<size_t>(id)] > max_tokens) return rows.drop(id, 0);
      rows.ids.push_back(id);
      rows.end_row();
    };
    if (request.has_ids) {
      for (const int64_t id : request.ids) use(id);
    } else {
      for (size_t id = 0; id < request.lengths.size(); ++id) use(static_cast<int64_t>(id));
    }
    return rows;
  }
};

PLIANT_BATCH_SAMPLER(MySampler, "my-sampler", "0.1.0", "sequences in their own order, one per row")
