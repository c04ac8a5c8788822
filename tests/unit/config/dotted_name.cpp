// A policy whose name needs quotes in TOML.
#include "pliant/sdk/elasticity_policy.hpp"

namespace {

struct Dotted {
  int64_t max_gpus = 10;
  static void options(pliant::sdk::Options<Dotted>& o) {
    o.add("max_gpus", &Dotted::max_gpus, "Devices at most.").at_least(1);
  }
  [[nodiscard]] pliant::sdk::Plan plan(const pliant::sdk::PlanRequest&) const {
    return {max_gpus, 1, 1, 1, {{1, max_gpus}}};
  }
};

}  // namespace

PLIANT_ELASTICITY_POLICY(Dotted, "v0.9", "1.0.0", "Has a dot in its name.")
