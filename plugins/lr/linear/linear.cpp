// Rule `linear`: the rate grows as the batch does.
#include "pliant/sdk/lr_rule.hpp"

namespace {

struct Linear {
  [[nodiscard]] double scale(const pliant::sdk::LrInput& in) const {
    pliant::sdk::require(in.base_batch != 0, "base_batch is 0; the batch is measured against it, so it must not be");
    return in.base_lr * in.batch / in.base_batch;
  }
};

}  // namespace

PLIANT_LR_RULE(Linear, "linear", "0.1.0", "lr = base_lr * batch / base_batch")
