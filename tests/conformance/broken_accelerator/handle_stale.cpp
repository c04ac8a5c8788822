// BROKEN: a handle belongs to an address, not to the allocation there.
#include <unistd.h>

#include <map>

#include "honest_ipc.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct HandleStale : HonestIpc<HandleStale> {
  std::map<const void*, pliant_ipc_handle> handles;
  pliant_ipc_handle export_memory(int32_t device, const void* pointer) {
    const auto found = handles.find(pointer);
    if (found != handles.end()) {
      pliant_ipc_handle again = found->second;
      again.descriptor = ::dup(again.descriptor);
      return again;
    }
    pliant_ipc_handle made = HonestIpc::export_memory(device, pointer);
    pliant_ipc_handle kept = made;
    kept.descriptor = ::dup(made.descriptor);
    handles.emplace(pointer, kept);
    return made;
  }
  ~HandleStale() {
    for (const auto& [pointer, handle] : handles) ::close(handle.descriptor);
  }
};

}  // namespace

PLIANT_BROKEN(HandleStale, "handle-stale")
