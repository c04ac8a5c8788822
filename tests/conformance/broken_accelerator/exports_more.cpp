// BROKEN: it was linked without the SDK's list of what may be seen.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct ExportsMore : Honest<ExportsMore> {};

}  // namespace

extern "C" __attribute__((visibility("default"))) int pliant_broken_one_more() {
  return 1;
}

PLIANT_BROKEN(ExportsMore, "exports-more")
