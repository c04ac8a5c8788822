// Rule `sqrt`: the rate grows as the square root of the batch does.
#include <cmath>
#include <string>

#include "pliant/sdk/lr_rule.hpp"

namespace {

using namespace pliant::sdk;  // NOLINT(google-build-using-namespace)

/// lr' = sqrt(k) lr: Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks", arXiv
/// 1404.5997. It keeps the variance of a step; for Adam see adam_sde.
struct Sqrt {
  [[nodiscard]] LrScaling scale(const LrInput& in) const {
    require(in.base_batch != 0, "base_batch must not be 0, because the batch is measured against it");
    const double ratio = in.batch / in.base_batch;
    require(!(ratio < 0), [&] {
      return "a batch of " + std::to_string(in.batch) + " over a base_batch of " + std::to_string(in.base_batch) +
             " is negative and has no square root";
    });
    LrScaling made = in.so_far;
    made.multiply_lr(std::sqrt(ratio));
    return made;
  }
};

}  // namespace

PLIANT_LR_RULE(Sqrt, "sqrt", "0.2.0", "lr = base_lr * sqrt(batch / base_batch)")
