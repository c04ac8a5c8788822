// BROKEN: event_elapsed takes the events the other way round.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct ElapsedBackwards : Honest<ElapsedBackwards> {
  double elapsed(Event& begin, Event& end) { return Device::elapsed(end, begin); }
};

}  // namespace

PLIANT_BROKEN(ElapsedBackwards, "elapsed-backwards")
