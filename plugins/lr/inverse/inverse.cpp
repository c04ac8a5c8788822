// Schedule `inverse`: the rate falls as a power of the time.
#include <cmath>
#include <string>

#include "../common/position.hpp"

namespace {

using namespace pliant::sdk;  // NOLINT(google-build-using-namespace)

/// lr / (1 + (t - start) / over)^exponent: exponent 0.5 is the inverse square root of Vaswani et al. 2017,
/// "Attention Is All You Need", arXiv 1706.03762, exponent 1 the time decay of Robbins and Monro 1951.
struct Inverse {
  double start_at = 0;
  double over = 1;
  double exponent = 0.5;
  std::string by = "progress";

  static void options(Options<Inverse>& o) {
    o.add("start", &Inverse::start_at, "Where the decay begins.").range(0.0, 1e12).unit("steps");
    o.add("over", &Inverse::over, "The time in which 1 + t / over becomes 2.").range(1e-3, 1e12).unit("steps");
    o.add("exponent", &Inverse::exponent, "Power of 1 + t / over.").range(0.0, 10.0);
    o.add("by", &Inverse::by, pliant::lr::kByDoc).choices({"progress", "steps"});
  }

  [[nodiscard]] LrScaling scale(const LrInput& in) const {
    const double at = pliant::lr::position(in, by);
    if (at < start_at) return in.so_far;
    const double grown = 1 + (at - start_at) / over;
    return pliant::lr::scheduled(in, 0, exponent == 1 ? 1 / grown : std::pow(grown, -exponent));
  }
};

}  // namespace

PLIANT_LR_RULE(Inverse, "inverse", "0.1.0", "Schedule: the rate decays as a power of the time, such as 1 / sqrt(t)")
