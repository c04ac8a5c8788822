// Two policies that throw while they are made: one through the SDK's guard, one straight across the border.
#include <stdexcept>

#include "pliant/sdk/elasticity_policy.hpp"

namespace {

using pliant::sdk::Host;
using pliant::sdk::Plan;
using pliant::sdk::PlanRequest;

struct Throwing {
  void start(const Host&) { throw std::runtime_error("the moon is in the wrong phase"); }
  [[nodiscard]] Plan plan(const PlanRequest&) const { return {}; }
};

}  // namespace

#ifdef VARIANT_throws_across
namespace {
int32_t create(const pliant_host*, const pliant_option_values*, void**, pliant_error*) {
  throw std::runtime_error("the moon is in the wrong phase");
}
}  // namespace

extern "C" PLIANT_PLUGIN_EXPORT const pliant_plugin* pliant_plugin_entry_v1(void) {
  using Adapter = pliant::sdk::detail::ElasticityAdapter<Throwing>;
  static pliant_plugin made = *pliant::sdk::detail::record<Throwing, Adapter::Instance>(
      PLIANT_KIND_ELASTICITY_POLICY, Adapter::vtable(), "throws-across", "1.0.0", "Throws without a guard.");
  made.create = &create;
  return &made;
}
#else
PLIANT_ELASTICITY_POLICY(Throwing, "throws", "1.0.0", "Throws in create.")
#endif
