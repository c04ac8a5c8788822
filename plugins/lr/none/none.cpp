// Rule `none`: the rate does not follow the batch.
#include "pliant/sdk/lr_rule.hpp"

namespace {

struct None {
  [[nodiscard]] double scale(const pliant::sdk::LrInput& in) const { return in.base_lr; }
};

}  // namespace

PLIANT_LR_RULE(None, "none", "0.1.0", "The learning rate stays as it is, whatever the batch")
