// BROKEN: imported memory is a copy as of the import.
#include <map>
#include <vector>

#include "honest_ipc.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct ImportCopies : HonestIpc<ImportCopies> {
  std::map<void*, std::vector<std::byte>> copies;
  void* import_memory(int32_t device, const pliant_ipc_handle& handle) {
    auto* const there = static_cast<std::byte*>(HonestIpc::import_memory(device, handle));
    uint64_t bytes = 0;
    std::memcpy(&bytes, handle.bytes + 40, sizeof(bytes));
    std::vector<std::byte> copy(there, there + bytes);
    HonestIpc::release_memory(device, there);
    void* const at = copy.data();
    copies.emplace(at, std::move(copy));
    return at;
  }
  void release_memory(int32_t, void* pointer) { copies.erase(pointer); }
};

}  // namespace

PLIANT_BROKEN(ImportCopies, "import-copies")
