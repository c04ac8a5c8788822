// BROKEN: whatever handle of an event comes is taken.
#include "honest_ipc.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct PeerEventAny : HonestIpc<PeerEventAny> {
  std::unique_ptr<Event> import_event(int32_t device, const pliant_ipc_handle& handle) {
    try {
      return HonestIpc::import_event(device, handle);
    } catch (const pliant::sdk::Failure&) {
      return std::make_unique<Event>(false);
    }
  }
};

}  // namespace

PLIANT_BROKEN(PeerEventAny, "peer-event-any")
