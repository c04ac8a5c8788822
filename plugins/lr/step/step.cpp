// Schedule `step`: the rate falls by a factor at regular distances.
#include <cmath>
#include <string>

#include "../common/position.hpp"

namespace {

using namespace pliant::sdk;  // NOLINT(google-build-using-namespace)

/// lr gamma^floor(t / every).
struct Step {
  double every = 1000;
  double gamma = 0.1;
  std::string by = "progress";

  static void options(Options<Step>& o) {
    o.add("every", &Step::every, "Distance between two decays.").range(1e-3, 1e12).unit("steps");
    o.add("gamma", &Step::gamma, "Factor on the rate at each decay.").range(0.0, 1.0);
    o.add("by", &Step::by, pliant::lr::kByDoc).choices({"progress", "steps"});
  }

  [[nodiscard]] LrScaling scale(const LrInput& in) const {
    return pliant::lr::scheduled(in, 0, std::pow(gamma, std::floor(pliant::lr::position(in, by) / every)));
  }
};

}  // namespace

PLIANT_LR_RULE(Step, "step", "0.1.0", "Schedule: the rate decays by a factor at regular distances")
