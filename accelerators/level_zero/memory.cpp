// Allocates, accounts and looks pointers up.
#include "memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <string>

#include "common/devices/plain_memory.hpp"
#include "result.hpp"

namespace pliant::level_zero {
namespace {

void* alloc_pinned(const Context& context, uint64_t bytes, uint64_t alignment) {
  ze_host_mem_alloc_desc_t wanted{};
  wanted.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC;
  void* made = nullptr;
  check(context.api.zeMemAllocHost(context.handle, &wanted, bytes, alignment, &made), "zeMemAllocHost");
  return made;
}

void* alloc_on(const DeviceEntry& entry, uint64_t bytes, uint64_t alignment) {
  ze_relaxed_allocation_limits_exp_desc_t large{};
  large.stype = ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC;
  large.flags = ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE;
  ze_device_mem_alloc_desc_t wanted{};
  wanted.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC;
  if (entry.largest_alloc_bytes != 0 && bytes > entry.largest_alloc_bytes) wanted.pNext = &large;
  void* made = nullptr;
  check(entry.context->api.zeMemAllocDevice(entry.context->handle, &wanted, bytes, alignment, entry.handle, &made),
        "zeMemAllocDevice");
  return made;
}

void* alloc_shared(const DeviceEntry& entry, uint64_t bytes, uint64_t alignment) {
  ze_device_mem_alloc_desc_t on_device{};
  on_device.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC;
  ze_host_mem_alloc_desc_t on_host{};
  on_host.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC;
  void* made = nullptr;
  check(entry.context->api.zeMemAllocShared(entry.context->handle, &on_device, &on_host, bytes, alignment, entry.handle,
                                            &made),
        "zeMemAllocShared");
  return made;
}

void* alloc_any(const DeviceEntry& entry, sdk::Memory memory, uint64_t bytes, uint64_t alignment) {
  if (memory == sdk::Memory::kPinned) return alloc_pinned(*entry.context, bytes, alignment);
  if (memory == sdk::Memory::kShared) return alloc_shared(entry, bytes, alignment);
  return alloc_on(entry, bytes, alignment);
}

sdk::Memory kind_of(ze_memory_type_t type) {
  if (type == ZE_MEMORY_TYPE_HOST) return sdk::Memory::kPinned;
  return type == ZE_MEMORY_TYPE_SHARED ? sdk::Memory::kShared : sdk::Memory::kDevice;
}

using Contexts = std::vector<std::shared_ptr<Context>>;

/// One of each driver.
Contexts contexts_of(const std::vector<DeviceEntry>& devices) {
  Contexts made;
  for (const DeviceEntry& one : devices) {
    if (made.empty() || made.back() != one.context) made.push_back(one.context);
  }
  return made;
}

void* pinned_by_all(const Contexts& contexts, void* pointer, uint64_t bytes) {
  size_t done = 0;
  try {
    for (; done < contexts.size(); ++done) contexts[done]->host_pointers.pin(pointer, bytes);
  } catch (...) {
    while (done-- > 0) contexts[done]->host_pointers.unpin(pointer);
    throw;
  }
  return pointer;
}

/// It is counted as the device's, and the CPU does not reach it.
bool is_on_device(sdk::Memory memory) {
  return memory == sdk::Memory::kDevice || memory == sdk::Memory::kExchange;
}

}  // namespace

PinnedBlock::PinnedBlock(std::shared_ptr<Context> context, uint64_t bytes)
    : context_(std::move(context)), pointer_(alloc_pinned(*context_, bytes, sdk::kLeastAlignment)) {}

PinnedBlock::~PinnedBlock() {
  if (::getpid() == context_->owner) context_->api.zeMemFree(context_->handle, pointer_);
}

void* UsmMemory::alloc(const std::vector<DeviceEntry>& devices, int32_t device, sdk::Memory memory, uint64_t bytes,
                       uint64_t alignment) {
  const DeviceEntry& entry = devices[static_cast<size_t>(device)];
  const uint64_t counted = is_on_device(memory) ? bytes : 0;
  // Drivers are not asked for more than all there is.
  if (counted > entry.memory_bytes) throw book_.none_left(counted, info(entry, device), "");
  devices::Block block{.bytes = bytes, .counted = counted, .device = {device, entry.memory_bytes}, .memory = memory};
  block.free = [context = entry.context](void* pointer) {
    if (::getpid() == context->owner) context->api.zeMemFree(context->handle, pointer);
  };
  return book_.add(
      std::move(block),
      [&] {
        return alloc_any(entry, memory, std::max(bytes, sdk::kLeastAlignment),
                         std::max(alignment, sdk::kLeastAlignment));
      },
      [&] { return info(entry, device); });
}

void UsmMemory::free(void* pointer) {
  if (const auto block = book_.take(pointer, devices::Origin::kAllocated)) block->give_back();
}

void UsmMemory::register_host(const std::vector<DeviceEntry>& devices, void* pointer, uint64_t bytes) {
  sdk::require(!book_.has_part_of(pointer, bytes),
               "a part of these " + std::to_string(bytes) + " bytes was given by alloc or is registered already");
  Contexts contexts = contexts_of(devices);
  const bool all_can =
      std::all_of(contexts.begin(), contexts.end(), [](const auto& one) { return one->host_pointers.are_there(); });
  if (contexts.empty() || !all_can) {
    throw sdk::Failure(PLIANT_UNIMPLEMENTED, contexts.empty() ? "there is no device"
                                                              : "the driver cannot pin memory of the program: it lacks "
                                                                "zexDriverImportExternalPointer and related functions");
  }
  devices::Block block{.bytes = bytes, .memory = sdk::Memory::kPinned, .origin = devices::Origin::kRegistered};
  block.free = [contexts](void* at) {
    for (const auto& one : contexts) {
      if (::getpid() == one->owner) one->host_pointers.unpin(at);
    }
  };
  book_.add(
      std::move(block), [&] { return pinned_by_all(contexts, pointer, bytes); },
      [&] { return info(devices.front(), 0); });
}

void UsmMemory::unregister_host(void* pointer) {
  if (const auto block = book_.take(pointer, devices::Origin::kRegistered)) block->give_back();
}

void UsmMemory::require_exchange(int32_t device, const void* pointer) const {
  sdk::require(book_.begins(pointer, sdk::Memory::kExchange, device),
               "the memory to export is not the beginning of an allocation of PLIANT_MEMORY_EXCHANGE of this instance "
               "on this device; export the pointer that alloc gave");
}

devices::Reach UsmMemory::reach_of(const DeviceEntry& entry, const void* pointer, uint64_t bytes,
                                   const char* what) const {
  if (const auto own = book_.reach_of(pointer, bytes, what)) return *own;
  // Not of this instance: of the driver, by way of somebody else in this process, or plain memory.
  ze_memory_allocation_properties_t properties{};
  properties.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
  const Context& context = *entry.context;
  check(context.api.zeMemGetAllocProperties(context.handle, pointer, &properties, nullptr), "zeMemGetAllocProperties");
  if (properties.type == ZE_MEMORY_TYPE_UNKNOWN) devices::require_mapped(pointer, bytes, what);
  if (properties.type == ZE_MEMORY_TYPE_UNKNOWN) return {entry.reaches_plain_memory, true};
  return {true, properties.type != ZE_MEMORY_TYPE_DEVICE};
}

std::optional<sdk::PointerInfo> UsmMemory::pointer_info(const std::vector<DeviceEntry>& devices,
                                                        const void* pointer) const {
  if (const auto own = book_.pointer_info(pointer)) return own;
  const Context* asked = nullptr;
  for (const DeviceEntry& entry : devices) {
    const Context& context = *entry.context;
    if (&context == asked) continue;
    asked = &context;
    ze_memory_allocation_properties_t properties{};
    properties.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
    ze_device_handle_t owner = nullptr;
    const ze_result_t result = context.api.zeMemGetAllocProperties(context.handle, pointer, &properties, &owner);
    if (result == ZE_RESULT_ERROR_INVALID_ARGUMENT || result == ZE_RESULT_ERROR_INVALID_NULL_POINTER) continue;
    check(result, "zeMemGetAllocProperties");
    if (properties.type == ZE_MEMORY_TYPE_UNKNOWN) continue;
    sdk::PointerInfo made{.memory = kind_of(properties.type)};
    const auto found = std::find_if(devices.begin(), devices.end(),
                                    [&](const DeviceEntry& one) { return owner != nullptr && one.handle == owner; });
    if (found != devices.end()) made.device = static_cast<int32_t>(found - devices.begin());
    void* base = nullptr;
    size_t bytes = 0;
    const bool ranged = context.api.zeMemGetAddressRange(context.handle, pointer, &base, &bytes) == ZE_RESULT_SUCCESS;
    if (ranged && base != nullptr) {
      made.base = base;
      made.bytes = bytes;
    }
    return made;
  }
  return std::nullopt;
}

}  // namespace pliant::level_zero
