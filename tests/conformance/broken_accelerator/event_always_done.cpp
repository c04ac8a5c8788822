// BROKEN: event_query says that every event is done.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct EventAlwaysDone : Honest<EventAlwaysDone> {
  using Device::query;
  bool query(Event&) { return true; }
};

}  // namespace

PLIANT_BROKEN(EventAlwaysDone, "event-always-done")
