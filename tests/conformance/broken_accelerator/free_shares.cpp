// BROKEN: memory that was freed can still be imported.
#include "honest_ipc.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct FreeShares : HonestIpc<FreeShares> {
  void free(int32_t device, pliant::sdk::Memory memory, void* pointer) {
    if (memory != pliant::sdk::Memory::kExchange) HonestIpc::free(device, memory, pointer);
  }
};

}  // namespace

PLIANT_BROKEN(FreeShares, "free-shares")
