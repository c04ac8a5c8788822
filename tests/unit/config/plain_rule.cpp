// The rule that a config without [lr] uses.
#include "pliant/sdk/lr_rule.hpp"

namespace {

struct Plain {
  [[nodiscard]] double scale(const pliant::sdk::LrInput& input) const { return input.base_lr; }
};

}  // namespace

PLIANT_LR_RULE(Plain, "none", "1.0.0", "Changes nothing.")
