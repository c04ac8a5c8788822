// Memory of the program that the driver has pinned: functions that are no part of Level Zero, as Intel's driver has
// them, found by name.
#include <cstring>

#include "objects.hpp"

namespace soft_ze {
namespace {

struct Pinned {
  std::mutex mutex;
  std::map<uintptr_t, std::shared_ptr<Allocation>> ranges;
};

Pinned& pinned() {
  static auto* const kAll = new Pinned;
  return *kAll;
}

/// Under the mutex; NULL where there is none.
std::shared_ptr<Allocation> range_of(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto found = pinned().ranges.upper_bound(address);
  if (found == pinned().ranges.begin()) return nullptr;
  --found;
  return address - found->first < found->second->bytes ? found->second : nullptr;
}

/// Its functions know no handle but its own.
bool is_own(ze_driver_handle_t driver) {
  if (driver == the_driver()) return true;
  violation("a function of the driver itself was called with a handle of the loader");
  return false;
}

ze_result_t ZE_APICALL import_external_pointer(ze_driver_handle_t driver, void* pointer, size_t bytes) {
  if (!is_own(driver) || pointer == nullptr || bytes == 0) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  if (counts().pinned_ever++ + 1 == setting("PLIANT_SOFT_ZE_FAIL_IMPORT_AT", 0)) {
    return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  }
  const std::lock_guard lock(pinned().mutex);
  const auto begin = range_of(pointer);
  const auto end = range_of(static_cast<std::byte*>(pointer) + bytes - 1);
  if (begin != nullptr && begin == end) return ZE_RESULT_SUCCESS;  // it is one with the other then
  if (begin != nullptr || end != nullptr) return ZE_RESULT_ERROR_OVERLAPPING_REGIONS;
  auto made = std::make_shared<Allocation>();
  made->bytes = bytes;
  made->type = ZE_MEMORY_TYPE_HOST;
  made->lend(pointer, bytes);
  pinned().ranges.emplace(reinterpret_cast<uintptr_t>(pointer), std::move(made));
  ++counts().pinned;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL release_imported_pointer(ze_driver_handle_t driver, void* pointer) {
  if (!is_own(driver)) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  const std::lock_guard lock(pinned().mutex);
  const auto found = range_of(pointer);
  if (found == nullptr || found->address != pointer) {
    violation("memory was given back that is not pinned, or not from there on");
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  }
  if (found->in_use != 0 && counts().lost == 0) violation("memory was given back while commands use it");
  pinned().ranges.erase(reinterpret_cast<uintptr_t>(pointer));
  --counts().pinned;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL get_host_pointer_base_address(ze_driver_handle_t driver, void* pointer, void** base) {
  if (!is_own(driver)) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  const std::lock_guard lock(pinned().mutex);
  const auto found = range_of(pointer);
  if (found == nullptr) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  if (base != nullptr) *base = found->address;
  return ZE_RESULT_SUCCESS;
}

}  // namespace

std::shared_ptr<Allocation> find_pinned(const void* pointer, uint64_t bytes) {
  const std::lock_guard lock(pinned().mutex);
  const auto found = range_of(pointer);
  if (found == nullptr) return nullptr;
  const auto offset = static_cast<uint64_t>(static_cast<const std::byte*>(pointer) - found->address);
  return bytes <= found->bytes - offset ? found : nullptr;
}

ze_result_t ZE_APICALL driver_get_extension_function_address(ze_driver_handle_t, const char* name, void** out) {
  if (name == nullptr || out == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  *out = nullptr;
  if (setting("PLIANT_SOFT_ZE_IMPORT", 1) == 0) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  if (std::strcmp(name, "zexDriverImportExternalPointer") == 0) {
    *out = reinterpret_cast<void*>(&import_external_pointer);
  } else if (std::strcmp(name, "zexDriverReleaseImportedPointer") == 0) {
    *out = reinterpret_cast<void*>(&release_imported_pointer);
  } else if (std::strcmp(name, "zexDriverGetHostPointerBaseAddress") == 0) {
    *out = reinterpret_cast<void*>(&get_host_pointer_base_address);
  }
  return *out != nullptr ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

}  // namespace soft_ze
