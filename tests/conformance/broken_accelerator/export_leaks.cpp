// BROKEN: each handle leaves a descriptor behind.
#include <unistd.h>

#include "honest_ipc.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct ExportLeaks : HonestIpc<ExportLeaks> {
  pliant_ipc_handle export_memory(int32_t device, const void* pointer) {
    const pliant_ipc_handle made = HonestIpc::export_memory(device, pointer);
    [[maybe_unused]] const int left_behind = ::dup(made.descriptor);
    return made;
  }
};

}  // namespace

PLIANT_BROKEN(ExportLeaks, "export-leaks")
