// BROKEN: a stream goes on as if nothing were when the process dies that recorded its event.
#include "honest_ipc.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct PeerEventUntold : HonestIpc<PeerEventUntold> {
  void wait(Stream& stream, Event& event) {
    if (!is_imported(event)) return Device::wait(stream, event);
    auto own = std::make_shared<Stream>(nullptr, uint64_t{1});
    Device::wait(*own, event);
    stream.enqueue([own] {
      try {
        own->synchronize();
      } catch (const pliant::sdk::Failure&) {
      }
    });
  }
};

}  // namespace

PLIANT_BROKEN(PeerEventUntold, "peer-event-untold")
