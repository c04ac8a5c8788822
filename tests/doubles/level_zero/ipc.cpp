// Memory of the software driver in other processes: its file, whose descriptor is in the first bytes of the handle, as
// in those of real drivers: it means nothing in another process before it was passed there and put back.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "objects.hpp"

namespace soft_ze {
namespace {

/// The bytes of a handle.
struct Label {
  int32_t fd;
  uint32_t reserved;
  uint64_t bytes;
  uint64_t mapped;
};
static_assert(sizeof(Label) <= sizeof(ze_ipc_mem_handle_t));

}  // namespace

ze_result_t ZE_APICALL mem_get_ipc_handle(ze_context_handle_t handle, const void* pointer, ze_ipc_mem_handle_t* out) {
  if (pointer == nullptr || out == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  if (setting("PLIANT_SOFT_ZE_IPC", 1) == 0) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  Context& context = of(handle);
  const std::lock_guard lock(context.mutex);
  const auto found = context.allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == context.allocations.end() || found->second->imported || found->second->type != ZE_MEMORY_TYPE_DEVICE) {
    violation("a handle was wanted of what is no device memory of this process");
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  }
  Allocation& one = *found->second;
  if (one.ipc_fd < 0) one.ipc_fd = ::fcntl(one.fd, F_DUPFD_CLOEXEC, 0);
  if (one.ipc_fd < 0) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  const Label label{one.ipc_fd, 0, one.bytes, one.mapped};
  *out = {};
  std::memcpy(out->data, &label, sizeof(label));
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL mem_open_ipc_handle(ze_context_handle_t handle, ze_device_handle_t device,
                                           ze_ipc_mem_handle_t given, ze_ipc_memory_flags_t, void** out) {
  if (out == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  Label label{};
  std::memcpy(&label, given.data, sizeof(label));
  struct stat file {};
  if (::fstat(label.fd, &file) != 0 || static_cast<uint64_t>(file.st_size) != label.mapped || label.mapped == 0) {
    violation("a handle was opened whose descriptor is not that of the memory");
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  }
  Context& context = of(handle);
  const std::lock_guard lock(context.mutex);
  for (const auto& [address, one] : context.allocations) {
    if (one->imported && one->file == file.st_ino) violation("a handle was opened twice");
  }
  auto made = std::make_shared<Allocation>();
  made->bytes = label.bytes;
  made->file = file.st_ino;
  made->imported = true;
  made->type = ZE_MEMORY_TYPE_DEVICE;
  made->device = &of(device);
  if (!made->map(label.fd, label.mapped, true)) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  context.allocations.emplace(reinterpret_cast<uintptr_t>(made->address), made);
  ++counts().imports;
  *out = made->address;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL mem_close_ipc_handle(ze_context_handle_t handle, const void* pointer) {
  Context& context = of(handle);
  const std::lock_guard lock(context.mutex);
  const auto found = context.allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == context.allocations.end() || !found->second->imported) {
    violation("memory was closed that was not opened");
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  }
  if (found->second->in_use != 0 && !context.lost) violation("memory was closed while commands use it");
  context.allocations.erase(found);
  --counts().imports;
  return ZE_RESULT_SUCCESS;
}

}  // namespace soft_ze
