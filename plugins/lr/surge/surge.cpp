// Rule `surge`: for Adam the rate rises as the root of the batch, peaks at the noise scale and falls after it.
#include <cmath>
#include <limits>

#include "../common/noise.hpp"
#include "../common/ratio.hpp"

namespace {

using namespace pliant::sdk;  // NOLINT(google-build-using-namespace)

/// lr(B) = lr_max 2 / (sqrt(Bn / B) + sqrt(B / Bn)): Li et al. 2024, arXiv 2405.14578, theorem 3, eq. 13, for Adam
/// and sign-like steps, with its peak at B = Bn. base_lr is lr(base_batch), so that
///   lr' = lr sqrt(k) (Bn + B0) / (Bn + B).
/// The form is for batches whose sign is mostly noise: far above Bn the paper's own rate levels off above 0 (theorem
/// 4). The paper's Bn is eq. 14, pi sum(H_ii) / (2 sum over i != j of mu_i mu_j H_ij / (sigma_i sigma_j)), which it
/// fits from runs; measured norms give S / G2 in its place.
struct Surge : pliant::lr::KeepsNoise<Surge> {
  static constexpr char kMagic[9] = "lr-surge";
  static constexpr uint32_t kVersion = 1;

  double noise_batch = 0;
  double smoothing = 0.95;

  static void options(Options<Surge>& o) {
    o.add("noise_batch", &Surge::noise_batch,
          "The batch with the highest rate, in the unit of [lr]; 0 = S / G2 of the gradients, measured while training.")
        .range(0.0, 1e18);
    o.add("smoothing", &Surge::smoothing, "Decay of the moving averages per step.").range(0.0, 0.9999999);
  }

  [[nodiscard]] LrFacts facts() const {
    LrFacts facts;
    facts.wants_gradient_norms = noise_batch == 0;
    facts.optimizers = optimizers(Optimizer::kAdam, Optimizer::kAdamW, Optimizer::kSign);
    facts.reason =
        "the peak comes from the sign in the step, which other optimizers lack; for sgd set use = \"noise_scale\"";
    return facts;
  }

  [[nodiscard]] LrScaling scale(const LrInput& in) const {
    const double ratio = pliant::lr::batch_ratio(in);
    if (ratio == 0) return pliant::lr::empty_batch(in);
    if (noise_batch == 0 && noise.empty()) return in.so_far;  // nothing measured yet
    const double bn = noise_batch > 0 ? noise_batch : noise.noise_batch(std::numeric_limits<double>::max() / 4);
    LrScaling made = in.so_far;
    made.multiply_lr(std::sqrt(ratio) * ((bn + in.base_batch) / (bn + in.batch)));
    return made;
  }

  void commit(const LrInput&, const LrScaling&, const LrCommitted& step) { noise.add(step, smoothing); }
};

}  // namespace

PLIANT_LR_RULE(Surge, "surge", "0.1.0", "Adam: lr rises as sqrt(k), peaks at the noise scale, then falls")
