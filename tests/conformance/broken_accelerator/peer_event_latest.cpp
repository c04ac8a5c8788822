// BROKEN: a stream waits for the latest recording of another process, whichever that is meanwhile.
#include <thread>

#include "honest_ipc.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct PeerEventLatest : HonestIpc<PeerEventLatest> {
  void wait(Stream& stream, Event& event) {
    if (!is_imported(event)) return Device::wait(stream, event);
    stream.enqueue([shared = event.shared()->shared_from_this()] {
      while (!shared->is_over(shared->state(shared->latest()))) std::this_thread::yield();
    });
  }
};

}  // namespace

PLIANT_BROKEN(PeerEventLatest, "peer-event-latest")
