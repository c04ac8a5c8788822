// Faults of what events say.
#include "faults.hpp"

namespace pliant::broken {
namespace {

/// event_query says that every event is done.
struct EventAlwaysDone : Honest {
  using Honest::query;
  bool query(Event&) override { return true; }
};

/// event_elapsed takes the events the other way round.
struct ElapsedBackwards : Honest {
  double elapsed(Event& begin, Event& end) override { return Device::elapsed(end, begin); }
};

/// event_elapsed tells milliseconds.
struct ElapsedMilliseconds : Honest {
  double elapsed(Event& begin, Event& end) override { return 1000 * Device::elapsed(begin, end); }
};

}  // namespace

std::vector<Fault> event_faults() {
  return {{"event-always-done", {}, make<EventAlwaysDone>},
          {"elapsed-backwards", {}, make<ElapsedBackwards>},
          {"elapsed-milliseconds", {}, make<ElapsedMilliseconds>}};
}

}  // namespace pliant::broken
