// BROKEN: comm_abort does nothing.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct AbortForgets : Honest<AbortForgets> {
  void abort(Comm&) {}
};

}  // namespace

PLIANT_BROKEN(AbortForgets, "abort-forgets")
