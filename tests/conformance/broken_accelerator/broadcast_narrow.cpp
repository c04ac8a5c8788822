// BROKEN: the count of a broadcast has 32 bits.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct BroadcastNarrow : Honest<BroadcastNarrow> {
  void broadcast(Comm& comm, void* buffer, pliant::sdk::Elements elements, int32_t root, Stream& stream) {
    elements.count = static_cast<uint32_t>(elements.count);
    Device::broadcast(comm, buffer, elements, root, stream);
  }
};

}  // namespace

PLIANT_BROKEN(BroadcastNarrow, "broadcast-narrow")
