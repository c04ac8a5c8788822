// Rule `adam_sde`: rate, betas and epsilon of Adam move together.
#include <algorithm>
#include <cmath>
#include <string>

#include "../common/ratio.hpp"

namespace {

using namespace pliant::sdk;  // NOLINT(google-build-using-namespace)

/// lr' = sqrt(k) lr, 1 - beta1' = k (1 - beta1), 1 - beta2' = k (1 - beta2), eps' = eps / sqrt(k): Malladi et al. 2022,
/// "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms", arXiv 2205.10287, the square root scaling rule for
/// Adam. Holds where noise dominates the gradient,
/// and as long as k (1 - beta) < 1: k < 10 at beta1 = 0.9. Betas that change make 1 - beta^t wrong as bias correction:
/// the optimizer must keep the product of its betas instead.
struct AdamSde {
  bool clamp = false;

  static void options(Options<AdamSde>& o) {
    o.add("clamp", &AdamSde::clamp, "Clamp a beta at 0 if the batch needs less, instead of refusing the batch.");
  }

  [[nodiscard]] LrFacts facts() const {
    return {optimizers(Optimizer::kAdam, Optimizer::kAdamW),
            "the rule follows from the stochastic differential equation of Adam; for sgd set use = \"linear\", for "
            "other optimizers use = \"sqrt\""};
  }

  [[nodiscard]] double factor(const char* name, const std::optional<double>& beta, double ratio) const {
    require(beta.has_value(),
            [&] { return std::string("it changes ") + name + ": set [lr] " + name + " to its value for base_batch"; });
    require(std::isfinite(*beta) && *beta >= 0 && *beta <= 1,
            [&] { return std::string("[lr] ") + name + " must be 0 to 1"; });
    const double reach = ratio * (1 - *beta);
    if (reach < 1 - 1e-9) return ratio;  // 10 * (1 - 0.9) is a little below 1 in doubles
    if (clamp) return 1 / (1 - *beta);
    throw Failure(PLIANT_OUT_OF_RANGE, "a batch of " + std::to_string(ratio) + " times the base needs 1 - " + name +
                                           " = " + std::to_string(reach) + ", which must be below 1: stay below " +
                                           std::to_string(1 / (1 - *beta)) + " times the base, or set clamp = true");
  }

  [[nodiscard]] LrScaling scale(const LrInput& in) const {
    const double ratio = pliant::lr::batch_ratio(in);
    if (ratio == 0) return pliant::lr::empty_batch(in);
    LrScaling made = in.so_far;
    made.multiply_lr(std::sqrt(ratio));
    made.one_minus_beta1 *= factor("beta1", in.beta1, ratio);
    made.one_minus_beta2 *= factor("beta2", in.beta2, ratio);
    made.epsilon /= std::sqrt(ratio);
    return made;
  }
};

}  // namespace

PLIANT_LR_RULE(AdamSde, "adam_sde", "0.1.0", "Adam: rate by sqrt(k), 1 - betas by k, epsilon by 1 / sqrt(k)")
