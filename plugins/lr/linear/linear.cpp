// Rule `linear`: the rate grows as the batch does.
#include "pliant/sdk/lr_rule.hpp"

namespace {

using namespace pliant::sdk;  // NOLINT(google-build-using-namespace)

/// lr' = k lr, k = batch / base_batch: Goyal et al. 2017, arXiv 1706.02677, section 2.1. Holds for SGD while the batch
/// is far below the noise scale, after a warm-up (section 2.2).
struct Linear {
  [[nodiscard]] LrFacts facts() const {
    return {optimizers(Optimizer::kUnknown, Optimizer::kSgd, Optimizer::kSgdMomentum, Optimizer::kNesterov,
                       Optimizer::kLars, Optimizer::kOther),
            "k small steps equal one of k times the length only if a step is proportional to its gradient, and these "
            "optimizers normalise it; set use = \"sqrt\", or force it with use = \"power\" and exponent = 1"};
  }

  [[nodiscard]] LrScaling scale(const LrInput& in) const {
    require(in.base_batch != 0, "base_batch must not be 0, because the batch is measured against it");
    LrScaling made = in.so_far;
    made.lr = in.base_lr * in.batch / in.base_batch;  // the reference multiplies first too
    made.lr_factor *= in.batch / in.base_batch;
    return made;
  }
};

}  // namespace

PLIANT_LR_RULE(Linear, "linear", "0.2.0", "lr = base_lr * batch / base_batch")
