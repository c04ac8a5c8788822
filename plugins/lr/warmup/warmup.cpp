// Schedule `warmup`: the rate rises to its value.
#include <algorithm>
#include <cmath>
#include <string>

#include "../common/position.hpp"

namespace {

using namespace pliant::sdk;  // NOLINT(google-build-using-namespace)

/// from + (lr - from) t / T, or with shape "log" from + (lr - from) log(t + 1) / log(T), as DeepSpeed's WarmupLR.
struct Warmup {
  double steps = 0;
  double from = 0;
  std::string shape = "linear";
  std::string by = "progress";

  static void options(Options<Warmup>& o) {
    o.add("steps", &Warmup::steps, "Length of the rise; 0 = none.").range(0.0, 1e12).unit("steps");
    o.add("from", &Warmup::from, "The rate at the start.").range(0.0, 1e6);
    o.add("shape", &Warmup::shape, "How the rate rises: linearly, or with the logarithm.").choices({"linear", "log"});
    o.add("by", &Warmup::by, pliant::lr::kByDoc).choices({"progress", "steps"});
  }

  [[nodiscard]] LrScaling scale(const LrInput& in) const {
    const double at = pliant::lr::position(in, by);
    const double length = shape == "log" ? std::max(2.0, steps) : steps;
    if (at >= length || steps == 0) return in.so_far;
    if (shape != "log") return pliant::lr::scheduled(in, from, at / length);
    // Between the last two steps, where batches are no whole number of base batches, the logarithm is past its end.
    return pliant::lr::scheduled(in, from, at + 1 > length ? 1 : 1 / std::log(length) * std::log(at + 1));
  }
};

}  // namespace

PLIANT_LR_RULE(Warmup, "warmup", "0.1.0", "Schedule: the rate rises to its value, linearly or with the logarithm")
