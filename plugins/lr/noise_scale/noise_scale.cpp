// Rule `noise_scale`: the rate follows the batch until gradient noise no longer limits it.
#include <cmath>
#include <limits>
#include <optional>

#include "../common/noise.hpp"
#include "../common/ratio.hpp"

namespace {

using namespace pliant::sdk;  // NOLINT(google-build-using-namespace)

/// lr(B) = lr_max / (1 + B_noise / B)^a: McCandlish et al. 2018, arXiv 1812.06162, eq. 2.6, and A.3 for a other
/// than 1, with B_simple, eq. 2.9, for B_noise; a = 1 for SGD, 0.5 to 1 for Adam (appendix E.2). base_lr is
/// lr(base_batch), so that
///   lr' = lr (k (B0 + Bn) / (B + Bn))^a.
/// The measured B_noise is a ratio of two averages, and so biased; Merrill et al. 2025, arXiv 2505.23971 doubt that it
/// gives the critical batch of a language model.
struct NoiseScale : pliant::lr::KeepsNoise<NoiseScale> {
  static constexpr char kMagic[9] = "noisescl";
  static constexpr uint32_t kVersion = 1;

  std::optional<double> exponent;
  double noise_batch = 0;
  double smoothing = 0.95;

  static void options(Options<NoiseScale>& o) {
    o.add("exponent", &NoiseScale::exponent, "a in lr_max / (1 + B_noise / B)^a; unset = 1 for SGD, 0.5 for others.")
        .range(0.0, 1.0);
    o.add("noise_batch", &NoiseScale::noise_batch, "B_noise in the unit of [lr]; 0 = measure it while training.")
        .range(0.0, 1e18);
    o.add("smoothing", &NoiseScale::smoothing, "Decay of the moving averages per step.").range(0.0, 0.9999999);
  }

  [[nodiscard]] LrFacts facts() const {
    LrFacts facts;
    facts.wants_gradient_norms = noise_batch == 0;
    if (!exponent) {
      facts.optimizers = kEveryOptimizer & ~optimizers(Optimizer::kUnknown, Optimizer::kOther);
      facts.reason = "the exponent depends on it, unless exponent is set";
    }
    return facts;
  }

  [[nodiscard]] double power(const LrInput& in) const {
    if (exponent) return *exponent;
    const bool sgd = in.optimizer == Optimizer::kSgd || in.optimizer == Optimizer::kSgdMomentum ||
                     in.optimizer == Optimizer::kNesterov || in.optimizer == Optimizer::kLars;
    return sgd ? 1 : 0.5;
  }

  [[nodiscard]] LrScaling scale(const LrInput& in) const {
    const double ratio = pliant::lr::batch_ratio(in);
    if (ratio == 0) return pliant::lr::empty_batch(in);
    if (noise_batch == 0 && noise.empty()) return in.so_far;  // nothing measured yet
    const double bn = noise_batch > 0 ? noise_batch : noise.noise_batch(std::numeric_limits<double>::max() / 4);
    LrScaling made = in.so_far;
    made.multiply_lr(std::pow(ratio * ((in.base_batch + bn) / (in.batch + bn)), power(in)));
    return made;
  }

  void commit(const LrInput&, const LrScaling&, const LrCommitted& step) { noise.add(step, smoothing); }
};

}  // namespace

PLIANT_LR_RULE(NoiseScale, "noise_scale", "0.1.0", "lr = lr_max / (1 + B_noise / batch) ^ a, B_noise given or measured")
