// Rule `none`: the rate does not follow the batch.
#include "pliant/sdk/lr_rule.hpp"

namespace {

struct None {
  [[nodiscard]] pliant::sdk::LrScaling scale(const pliant::sdk::LrInput& in) const { return in.so_far; }
};

}  // namespace

PLIANT_LR_RULE(None, "none", "0.2.0", "The learning rate does not depend on the batch")
