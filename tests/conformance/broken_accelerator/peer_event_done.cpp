// BROKEN: the host is told that whatever another process recorded is done.
#include "honest_ipc.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct PeerEventDone : HonestIpc<PeerEventDone> {
  using Device::query;
  bool query(Event& event) { return is_imported(event) || Device::query(event); }
  using Device::synchronize;
  void synchronize(Event& event) {
    if (!is_imported(event)) Device::synchronize(event);
  }
};

}  // namespace

PLIANT_BROKEN(PeerEventDone, "peer-event-done")
