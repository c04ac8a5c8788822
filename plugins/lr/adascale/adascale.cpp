// Rule `adascale`: the rate grows by as much as the larger batch really helps, measured in gradient noise.
#include <algorithm>
#include <cmath>
#include <string>

#include "../common/noise.hpp"
#include "../common/ratio.hpp"

namespace {

using namespace pliant::sdk;  // NOLINT(google-build-using-namespace)

/// lr' = r lr with the gain r = (var + sqr) / (var / k + sqr), and a step makes the progress of r steps of the base
/// batch: Johnson et al. 2020, "AdaScale SGD: A User-Friendly Algorithm for Distributed Training", arXiv 2007.05105,
/// the gain ratio. var is the variance of a base-batch gradient, sqr the squared norm of the true one. The averages
/// keep max(1 - k / 1000, 0) of the past, as the authors' own implementation does. With Adam the gain is r^0.5
/// (AdaptDL's AdamScale), a heuristic.
struct AdaScale : pliant::lr::KeepsNoise<AdaScale> {
  static constexpr char kMagic[9] = "adascale";
  static constexpr uint32_t kVersion = 1;

  std::string variant = "sgd";
  double smoothing = 0;

  static void options(Options<AdaScale>& o) {
    o.add("variant", &AdaScale::variant, "\"sgd\" = as in the paper; \"adam\" = use the square root of the gain.")
        .choices({"sgd", "adam"});
    o.add("smoothing", &AdaScale::smoothing,
          "Decay of the moving averages per step; 0 = 1 - k / 1000 for a batch of k times the base.")
        .range(0.0, 0.9999999);
  }

  [[nodiscard]] LrFacts facts() const {
    LrFacts facts;
    facts.wants_gradient_norms = true;
    const bool adam = variant == "adam";
    facts.optimizers = adam ? optimizers(Optimizer::kAdam, Optimizer::kAdamW)
                            : optimizers(Optimizer::kSgd, Optimizer::kSgdMomentum, Optimizer::kNesterov);
    facts.reason = adam ? "variant = \"adam\" uses the square root of the gain; set variant = \"sgd\" for sgd"
                        : "its gain compares the variance of gradients, but the steps of these optimizers are not "
                          "proportional to gradients; for adam set use = \"sqrt\" or variant = \"adam\" of this rule";
    return facts;
  }

  /// Between 1 and the ratio; 1 as long as nothing was measured.
  [[nodiscard]] double gain(double ratio, double base_batch) const {
    const double variance = noise.s() / base_batch;
    const double signal = noise.g2();
    const double whole = variance + signal;
    if (noise.empty() || !(whole > 0)) return 1;
    return 1 / ((variance / whole) / ratio + signal / whole);
  }

  [[nodiscard]] LrScaling scale(const LrInput& in) const {
    const double ratio = pliant::lr::batch_ratio(in);
    if (ratio == 0) return pliant::lr::empty_batch(in);
    const double gained = ratio == 1 ? 1 : gain(ratio, in.base_batch);
    LrScaling made = in.so_far;
    made.multiply_lr(variant == "adam" ? std::sqrt(gained) : gained);
    made.progress = gained * in.base_batch;
    return made;
  }

  void commit(const LrInput& in, const LrScaling&, const LrCommitted& step) {
    noise.add(step, smoothing > 0 ? smoothing : std::max(1 - pliant::lr::batch_ratio(in) / 1000, 0.0));
  }
};

}  // namespace

PLIANT_LR_RULE(AdaScale, "adascale", "0.1.0",
               "lr = base_lr * gain, where the gain is the measured worth of a batch in base batches")
