// BROKEN: event_destroy waits until the event is reached.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct EventDestroyWaits : Honest<EventDestroyWaits> {
  struct Event : Device::Event {
    using Device::Event::Event;
    ~Event() {
      try {
        synchronize();
      } catch (const pliant::sdk::Failure&) {
      }
    }
  };
  std::unique_ptr<Event> make_event(int32_t, bool timing) { return std::make_unique<Event>(timing); }
  std::unique_ptr<Event> make_exported_event(int32_t device) { return make_event(device, false); }
};

}  // namespace

PLIANT_BROKEN(EventDestroyWaits, "event-destroy-waits")
