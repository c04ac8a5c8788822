// Memory of the software driver: files without a name, mapped for the user and for the driver.
#include <unistd.h>

#include <algorithm>

#include "objects.hpp"

namespace soft_ze {
namespace {

constexpr uint64_t kPage = 4096;

ze_result_t refused(bool on_device) {
  return on_device ? ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

bool is_relaxed(const void* next) {
  const auto* one = static_cast<const ze_relaxed_allocation_limits_exp_desc_t*>(next);
  return one != nullptr && one->stype == ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC &&
         (one->flags & ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE) != 0;
}

ze_result_t allocate(Context& context, ze_memory_type_t type, Device* device, uint64_t bytes, size_t alignment,
                     void** out) {
  const bool on_device = type == ZE_MEMORY_TYPE_DEVICE;
  if (bytes == 0) return ZE_RESULT_ERROR_INVALID_SIZE;
  if (alignment > kPage || (alignment & (alignment - 1)) != 0) return ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
  const std::lock_guard lock(context.mutex);
  if (context.lost) return ZE_RESULT_ERROR_DEVICE_LOST;
  if (context.busy) return ZE_RESULT_ERROR_NOT_AVAILABLE;
  if (++context.allocations_made == context.fail_alloc_at) return refused(on_device);
  const auto limit = static_cast<uint64_t>(context.memory_bytes);
  if (on_device && bytes > limit - std::min(limit, context.device_bytes_used)) return refused(true);
  auto made = std::make_shared<Allocation>();
  made->bytes = bytes;
  if (!made->make("soft-ze", (bytes + kPage - 1) / kPage * kPage, on_device)) return refused(on_device);
  made->type = type;
  made->device = device;
  made->id = static_cast<uint64_t>(context.allocations_made);
  if (on_device) context.device_bytes_used += bytes;
  context.allocations.emplace(reinterpret_cast<uintptr_t>(made->address), made);
  ++counts().allocations;
  *out = made->address;
  return ZE_RESULT_SUCCESS;
}

}  // namespace

Allocation::~Allocation() {
  if (ipc_fd >= 0) ::close(ipc_fd);
}

std::shared_ptr<Allocation> Context::find(const void* pointer, uint64_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto found = allocations.upper_bound(address);
  if (found == allocations.begin()) return nullptr;
  --found;
  const uint64_t offset = address - found->first;
  return offset < found->second->bytes && bytes <= found->second->bytes - offset ? found->second : nullptr;
}

ze_result_t ZE_APICALL mem_alloc_device(ze_context_handle_t context, const ze_device_mem_alloc_desc_t* wanted,
                                        size_t bytes, size_t alignment, ze_device_handle_t device, void** out) {
  if (wanted == nullptr || out == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  if (bytes > kLargestAlloc && !is_relaxed(wanted->pNext)) return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
  return allocate(of(context), ZE_MEMORY_TYPE_DEVICE, &of(device), bytes, alignment, out);
}

ze_result_t ZE_APICALL mem_alloc_host(ze_context_handle_t context, const ze_host_mem_alloc_desc_t* wanted, size_t bytes,
                                      size_t alignment, void** out) {
  if (wanted == nullptr || out == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  return allocate(of(context), ZE_MEMORY_TYPE_HOST, nullptr, bytes, alignment, out);
}

ze_result_t ZE_APICALL mem_alloc_shared(ze_context_handle_t context, const ze_device_mem_alloc_desc_t* wanted,
                                        const ze_host_mem_alloc_desc_t* on_host, size_t bytes, size_t alignment,
                                        ze_device_handle_t device, void** out) {
  if (wanted == nullptr || on_host == nullptr || out == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  return allocate(of(context), ZE_MEMORY_TYPE_SHARED, &of(device), bytes, alignment, out);
}

ze_result_t ZE_APICALL mem_free(ze_context_handle_t handle, void* pointer) {
  Context& context = of(handle);
  const std::lock_guard lock(context.mutex);
  const auto found = context.allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == context.allocations.end()) {
    violation("memory was freed that is not allocated");
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  }
  const Allocation& one = *found->second;
  if (one.imported) {
    violation("memory of another process was freed");
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  }
  if (one.in_use != 0 && !context.lost) violation("memory was freed while commands use it");
  if (one.type == ZE_MEMORY_TYPE_DEVICE) context.device_bytes_used -= one.bytes;
  context.allocations.erase(found);
  --counts().allocations;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL mem_get_alloc_properties(ze_context_handle_t handle, const void* pointer,
                                                ze_memory_allocation_properties_t* properties,
                                                ze_device_handle_t* device) {
  Context& context = of(handle);
  const std::lock_guard lock(context.mutex);
  const auto found = context.find(pointer, 0);
  properties->type = found == nullptr ? ZE_MEMORY_TYPE_UNKNOWN : found->type;
  properties->id = found == nullptr ? 0 : found->id;
  properties->pageSize = found == nullptr ? 0 : kPage;
  if (device != nullptr) *device = found == nullptr ? nullptr : handle_of(found->device);
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL mem_get_address_range(ze_context_handle_t handle, const void* pointer, void** base,
                                             size_t* bytes) {
  Context& context = of(handle);
  const std::lock_guard lock(context.mutex);
  const auto found = context.find(pointer, 0);
  if (found == nullptr) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  if (base != nullptr) *base = found->address;
  if (bytes != nullptr) *bytes = found->bytes;
  return ZE_RESULT_SUCCESS;
}

}  // namespace soft_ze
