// Rule `sqrt`: the rate grows as the square root of the batch does.
#include <cmath>
#include <string>

#include "pliant/sdk/lr_rule.hpp"

namespace {

struct Sqrt {
  [[nodiscard]] double scale(const pliant::sdk::LrInput& in) const {
    pliant::sdk::require(in.base_batch != 0, "base_batch is 0; the batch is measured against it, so it must not be");
    const double ratio = in.batch / in.base_batch;
    pliant::sdk::require(!(ratio < 0), "a batch of " + std::to_string(in.batch) + " over a base_batch of " +
                                           std::to_string(in.base_batch) + " is negative and has no square root");
    return in.base_lr * std::sqrt(ratio);
  }
};

}  // namespace

PLIANT_LR_RULE(Sqrt, "sqrt", "0.1.0", "lr = base_lr * sqrt(batch / base_batch)")
