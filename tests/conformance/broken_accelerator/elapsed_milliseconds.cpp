// BROKEN: event_elapsed tells milliseconds.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct ElapsedMilliseconds : Honest<ElapsedMilliseconds> {
  double elapsed(Event& begin, Event& end) { return 1000 * Device::elapsed(begin, end); }
};

}  // namespace

PLIANT_BROKEN(ElapsedMilliseconds, "elapsed-milliseconds")
