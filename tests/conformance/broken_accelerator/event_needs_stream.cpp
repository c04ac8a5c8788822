// BROKEN: an event is lost with the stream that it was recorded on.
#include <atomic>
#include <memory>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct EventNeedsStream : Honest<EventNeedsStream> {
  struct Stream : Device::Stream {
    using Device::Stream::Stream;
    ~Stream() { *alive = false; }
    std::shared_ptr<std::atomic<bool>> alive = std::make_shared<std::atomic<bool>>(true);
  };
  struct Event : Device::Event {
    using Device::Event::Event;
    std::shared_ptr<std::atomic<bool>> alive;
  };
  std::unique_ptr<Stream> make_stream(int32_t, pliant::sdk::StreamUse) {
    return std::make_unique<Stream>(nullptr, uint64_t{0});
  }
  std::unique_ptr<Event> make_event(int32_t, bool timing) { return std::make_unique<Event>(timing); }
  std::unique_ptr<Event> make_exported_event(int32_t device) { return make_event(device, false); }
  void record(Event& event, Stream& stream) {
    event.alive = stream.alive;
    Device::record(event, stream);
  }
  void wait(Stream& stream, Event& event) {
    if (event.alive && !*event.alive) throw pliant::sdk::Failure(PLIANT_FAILED_PRECONDITION, "its stream is gone");
    Device::wait(stream, event);
  }
};

}  // namespace

PLIANT_BROKEN(EventNeedsStream, "event-needs-stream")
