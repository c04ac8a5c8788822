// BROKEN: a broadcast moves bytes, and does not see that the types differ.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct BroadcastUntyped : Honest<BroadcastUntyped> {
  void broadcast(Comm& comm, void* buffer, pliant::sdk::Elements elements, int32_t root, Stream& stream) {
    Device::broadcast(comm, buffer, {elements.bytes(), pliant::sdk::DType::kU8}, root, stream);
  }
};

}  // namespace

PLIANT_BROKEN(BroadcastUntyped, "broadcast-untyped")
