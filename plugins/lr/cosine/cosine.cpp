// Schedule `cosine`: the rate falls along half a cosine.
#include <algorithm>
#include <cmath>
#include <string>

#include "../common/position.hpp"

namespace {

using namespace pliant::sdk;  // NOLINT(google-build-using-namespace)

/// lowest + (lr - lowest) (1 + cos(pi (t - start) / (end - start))) / 2: Loshchilov and Hutter 2016, "SGDR:
/// Stochastic Gradient Descent with Warm Restarts", arXiv 1608.03983, one period of it.
struct Cosine {
  double start_at = 0;
  double end = 0;
  double lowest = 0;
  std::string after = "hold";
  std::string by = "progress";

  static void options(Options<Cosine>& o) {
    o.add("start", &Cosine::start_at, "Where the decay begins.").range(0.0, 1e12).unit("steps");
    o.add("end", &Cosine::end, "Where the decay ends; 0 = at the end of the job.").range(0.0, 1e12).unit("steps");
    o.add("lowest", &Cosine::lowest, "The rate at the end.").range(0.0, 1e6);
    o.add("after", &Cosine::after,
          "After the end: stay at the final rate, or rise again as torch's CosineAnnealingLR does.")
        .choices({"hold", "rise"});
    o.add("by", &Cosine::by, pliant::lr::kByDoc).choices({"progress", "steps"});
  }

  [[nodiscard]] LrFacts facts() const {
    LrFacts facts;
    facts.wants_total = end == 0;
    return facts;
  }

  [[nodiscard]] LrScaling scale(const LrInput& in) const {
    const double at = pliant::lr::position(in, by);
    if (at < start_at) return in.so_far;
    const double length = pliant::lr::length(in, by, end, "end") - start_at;
    double share = length > 0 ? (at - start_at) / length : 1;
    if (after == "hold") share = std::min(1.0, share);
    return pliant::lr::scheduled(in, lowest, (1 + std::cos(std::acos(-1.0) * share)) / 2);
  }
};

}  // namespace

PLIANT_LR_RULE(Cosine, "cosine", "0.1.0", "Schedule: the rate decays along half a cosine to the end of the job")
