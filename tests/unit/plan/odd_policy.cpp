// A policy that answers whatever its options say, right or wrong.
#include <stdexcept>

#include "pliant/sdk/elasticity_policy.hpp"

namespace {

struct OddPolicy {
  int64_t global_batch = 12;
  int64_t micro_batch = 2;
  int64_t granule = 2;
  int64_t model_parallel_size = 1;
  std::vector<int64_t> bounds{1, 3, 6, 6};
  bool throws = false;

  static void options(pliant::sdk::Options<OddPolicy>& table) {
    table.add("global_batch", &OddPolicy::global_batch, "What to answer.");
    table.add("micro_batch", &OddPolicy::micro_batch, "What to answer.");
    table.add("granule", &OddPolicy::granule, "What to answer.");
    table.add("model_parallel_size", &OddPolicy::model_parallel_size, "What to answer.");
    table.add("bounds", &OddPolicy::bounds, "First and last of each range.");
    table.add("throws", &OddPolicy::throws, "Throw instead.");
  }

  [[nodiscard]] pliant::sdk::Plan plan(const pliant::sdk::PlanRequest& /*request*/) const {
    if (throws) throw std::runtime_error("the odd policy threw");
    pliant::sdk::Plan made;
    made.global_batch = global_batch;
    made.micro_batch = micro_batch;
    made.granule = granule;
    made.model_parallel_size = model_parallel_size;
    for (size_t i = 0; i + 1 < bounds.size(); i += 2) made.world_sizes.push_back({bounds[i], bounds[i + 1]});
    return made;
  }
};

}  // namespace

PLIANT_ELASTICITY_POLICY(OddPolicy, "odd", "1.0.0", "Answers what it is told to")
