// BROKEN: a barrier does not wait.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct BarrierForgets : Honest<BarrierForgets> {
  void barrier(Comm&, Stream&) {}
};

}  // namespace

PLIANT_BROKEN(BarrierForgets, "barrier-forgets")
