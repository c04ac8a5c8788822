// BROKEN: streams do not wait for events of other processes.
#include "honest_ipc.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct PeerEventUnwaited : HonestIpc<PeerEventUnwaited> {
  void wait(Stream& stream, Event& event) {
    if (!is_imported(event)) Device::wait(stream, event);
  }
};

}  // namespace

PLIANT_BROKEN(PeerEventUnwaited, "peer-event-unwaited")
