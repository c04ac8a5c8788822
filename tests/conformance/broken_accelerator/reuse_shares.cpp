// BROKEN: large memory that was freed is handed out to everyone who asks.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct ReuseShares : Honest<ReuseShares> {
  static constexpr uint64_t kLarge = 3 << 20U;
  void* alloc(int32_t device, pliant::sdk::Memory memory, uint64_t bytes) {
    if (bytes != kLarge) return Device::alloc(device, memory, bytes);
    if (freed != nullptr) return freed;
    return large = Device::alloc(device, memory, bytes);
  }
  void free(int32_t, pliant::sdk::Memory, void* pointer) {
    if (pointer == large) {
      freed = large;
      return;
    }
    Device::free(0, pliant::sdk::Memory::kDevice, pointer);
  }
  void* large = nullptr;
  void* freed = nullptr;
};

}  // namespace

PLIANT_BROKEN(ReuseShares, "reuse-shares")
