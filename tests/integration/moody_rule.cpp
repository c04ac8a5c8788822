// A learning-rate rule that breaks its contract: in the worker of the first restart its rate is another one from step
// 10 on, as if its file had been replaced.
#include <cstdlib>
#include <string>

#include "pliant/sdk/lr_rule.hpp"

namespace {

struct Moody {
  [[nodiscard]] static pliant::sdk::LrScaling scale(const pliant::sdk::LrInput& in) {
    const char* const restart = std::getenv("TORCHELASTIC_RESTART_COUNT");
    const bool is_replaced = restart != nullptr && std::string(restart) == "1";
    pliant::sdk::LrScaling made = in.so_far;
    if (is_replaced && in.step >= 10) made.lr *= 2;
    return made;
  }
};

}  // namespace

PLIANT_LR_RULE(Moody, "moody", "1.0.0", "Answers differently in the worker of the first restart")
