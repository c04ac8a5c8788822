// Finds the functions by name, and calls them with the handle that they know.
#include "host_pointers.hpp"

#include "result.hpp"

namespace pliant::level_zero {
namespace {

/// False where there is no function of that name.
template <class Function>
bool find_function(const Api& api, ze_driver_handle_t driver, const char* name, Function& function) {
  void* found = nullptr;
  if (api.zeDriverGetExtensionFunctionAddress(driver, name, &found) != ZE_RESULT_SUCCESS) return false;
  function = reinterpret_cast<Function>(found);
  return found != nullptr;
}

}  // namespace

HostPointers::HostPointers(const Api& api, ze_driver_handle_t driver) {
  if (api.zeDriverGetExtensionFunctionAddress == nullptr || api.zelLoaderTranslateHandle == nullptr) return;
  if (!find_function(api, driver, "zexDriverImportExternalPointer", import_) ||
      !find_function(api, driver, "zexDriverReleaseImportedPointer", release_) ||
      !find_function(api, driver, "zexDriverGetHostPointerBaseAddress", base_of_)) {
    return;
  }
  void* own = nullptr;
  if (api.zelLoaderTranslateHandle(Api::kDriverHandle, driver, &own) == ZE_RESULT_SUCCESS) {
    driver_ = static_cast<ze_driver_handle_t>(own);
  }
}

void HostPointers::pin(void* pointer, uint64_t bytes) const {
  for (const uint64_t offset : {uint64_t{0}, bytes - 1}) {
    void* base = nullptr;
    const bool is_known = base_of_(driver_, static_cast<char*>(pointer) + offset, &base) == ZE_RESULT_SUCCESS;
    if (is_known && base != nullptr) {
      throw sdk::Failure(PLIANT_UNIMPLEMENTED,
                         "the driver has already pinned a part of this memory for another part of this process");
    }
  }
  check(import_(driver_, pointer, bytes), "zexDriverImportExternalPointer");
}

void HostPointers::unpin(void* pointer) const noexcept {
  release_(driver_, pointer);
}

}  // namespace pliant::level_zero
