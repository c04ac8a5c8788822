// A rule whose library loads for as long as a test wants: where PLIANT_TEST_SLOW names two descriptors, it writes a
// byte to the first of them and waits for one from the second.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "pliant/sdk/lr_rule.hpp"

namespace {

using namespace pliant::sdk;

const bool kHasWaited = [] {
  const char* const wanted = std::getenv("PLIANT_TEST_SLOW");
  int begun = -1;
  int go = -1;
  char byte = 'b';
  if (wanted == nullptr || std::sscanf(wanted, "%d %d", &begun, &go) != 2) return false;
  return ::write(begun, &byte, 1) == 1 && ::read(go, &byte, 1) == 1;
}();

struct Slow {
  [[nodiscard]] double scale(const LrInput& input) const { return kHasWaited ? input.base_lr : 2 * input.base_lr; }
};

}  // namespace

PLIANT_LR_RULE(Slow, "slow", "0.1.0", "loads slowly")
