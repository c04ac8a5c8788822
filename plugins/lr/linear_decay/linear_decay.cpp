// Schedule `linear_decay`: the rate falls evenly.
#include <algorithm>
#include <string>

#include "../common/position.hpp"

namespace {

using namespace pliant::sdk;  // NOLINT(google-build-using-namespace)

/// lowest + (lr - lowest) max(0, (end - t) / max(1, end - start)) from `start` on, as DeepSpeed's WarmupDecayLR.
struct LinearDecay {
  double start_at = 0;
  double end = 0;
  double lowest = 0;
  std::string by = "progress";

  static void options(Options<LinearDecay>& o) {
    o.add("start", &LinearDecay::start_at, "Where the decay begins.").range(0.0, 1e12).unit("steps");
    o.add("end", &LinearDecay::end, "Where the decay ends; 0 = at the end of the job.").range(0.0, 1e12).unit("steps");
    o.add("lowest", &LinearDecay::lowest, "The rate at the end and after it.").range(0.0, 1e6);
    o.add("by", &LinearDecay::by, pliant::lr::kByDoc).choices({"progress", "steps"});
  }

  [[nodiscard]] LrFacts facts() const {
    LrFacts facts;
    facts.wants_total = end == 0;
    return facts;
  }

  [[nodiscard]] LrScaling scale(const LrInput& in) const {
    const double at = pliant::lr::position(in, by);
    if (at < start_at) return in.so_far;
    const double last = pliant::lr::length(in, by, end, "end");
    return pliant::lr::scheduled(in, lowest, std::max(0.0, (last - at) / std::max(1.0, last - start_at)));
  }
};

}  // namespace

PLIANT_LR_RULE(LinearDecay, "linear_decay", "0.1.0", "Schedule: the rate decays linearly to the end of the job")
