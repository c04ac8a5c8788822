// Rule `power`: the rate grows with a power of the batch.
#include <cmath>

#include "../common/ratio.hpp"

namespace {

using namespace pliant::sdk;  // NOLINT(google-build-using-namespace)

/// lr' = k^p lr. p = 1 is `linear`, p = 1/2 is `sqrt`; Shallue et al. 2018, "Measuring the Effects of Data
/// Parallelism on Neural Network Training", arXiv 1811.03600, find large differences between workloads, so p is to be
/// fitted.
struct Power {
  double exponent = 0.5;

  static void options(Options<Power>& o) {
    o.add("exponent", &Power::exponent, "Power of batch / base_batch; 1 is linear, 0.5 is sqrt, 0 is none.")
        .range(0.0, 1.0);
  }

  [[nodiscard]] LrScaling scale(const LrInput& in) const {
    LrScaling made = in.so_far;
    made.multiply_lr(std::pow(pliant::lr::batch_ratio(in), exponent));
    return made;
  }
};

}  // namespace

PLIANT_LR_RULE(Power, "power", "0.1.0", "lr = base_lr * (batch / base_batch) ^ exponent")
