// BROKEN: what is not exchange memory gets a handle, too.
#include "honest_ipc.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct ExportAny : HonestIpc<ExportAny> {
  pliant_ipc_handle export_memory(int32_t device, const void* pointer) {
    try {
      return HonestIpc::export_memory(device, pointer);
    } catch (const pliant::sdk::Failure&) {
      pliant_ipc_handle made{};
      made.bytes[0] = 1;
      made.descriptor = -1;
      return made;
    }
  }
};

}  // namespace

PLIANT_BROKEN(ExportAny, "export-any")
