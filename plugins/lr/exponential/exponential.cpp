// Schedule `exponential`: the rate falls by the same factor at every step.
#include <cmath>
#include <string>

#include "../common/position.hpp"

namespace {

using namespace pliant::sdk;  // NOLINT(google-build-using-namespace)

/// lr gamma^(t / every).
struct Exponential {
  double gamma = 0.999;
  double every = 1;
  std::string by = "progress";

  static void options(Options<Exponential>& o) {
    o.add("gamma", &Exponential::gamma, "Factor on the rate after each distance `every`.").range(0.0, 1.0);
    o.add("every", &Exponential::every, "The distance that gamma refers to.").range(1e-3, 1e12).unit("steps");
    o.add("by", &Exponential::by, pliant::lr::kByDoc).choices({"progress", "steps"});
  }

  [[nodiscard]] LrScaling scale(const LrInput& in) const {
    return pliant::lr::scheduled(in, 0, std::pow(gamma, pliant::lr::position(in, by) / every));
  }
};

}  // namespace

PLIANT_LR_RULE(Exponential, "exponential", "0.1.0", "Schedule: the rate decays by the same factor at every step")
