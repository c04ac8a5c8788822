// BROKEN: an event for other processes is recorded at once, not in stream order.
#include "honest_ipc.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct PeerEventEarly : HonestIpc<PeerEventEarly> {
  void record(Event& event, Stream& stream) {
    if (event.shared() == nullptr) return Device::record(event, stream);
    Stream idle(nullptr, 1);
    Device::record(event, idle);
  }
};

}  // namespace

PLIANT_BROKEN(PeerEventEarly, "peer-event-early")
