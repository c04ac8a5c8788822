// Allocates, accounts and looks pointers up.
#include "memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <string>

#include "devices/plain_memory.hpp"
#include "result.hpp"

namespace pliant::level_zero {
namespace {

using sdk::Failure;

constexpr uint64_t kAlignment = 64;

void* alloc_pinned(const Context& context, uint64_t bytes) {
  ze_host_mem_alloc_desc_t wanted{};
  wanted.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC;
  void* made = nullptr;
  check(context.api.zeMemAllocHost(context.handle, &wanted, bytes, kAlignment, &made), "zeMemAllocHost");
  return made;
}

void* alloc_on(const DeviceEntry& entry, uint64_t bytes) {
  ze_relaxed_allocation_limits_exp_desc_t large{};
  large.stype = ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC;
  large.flags = ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE;
  ze_device_mem_alloc_desc_t wanted{};
  wanted.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC;
  if (entry.largest_alloc_bytes != 0 && bytes > entry.largest_alloc_bytes) wanted.pNext = &large;
  void* made = nullptr;
  check(entry.context->api.zeMemAllocDevice(entry.context->handle, &wanted, bytes, kAlignment, entry.handle, &made),
        "zeMemAllocDevice");
  return made;
}

void* alloc_shared(const DeviceEntry& entry, uint64_t bytes) {
  ze_device_mem_alloc_desc_t on_device{};
  on_device.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC;
  ze_host_mem_alloc_desc_t on_host{};
  on_host.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC;
  void* made = nullptr;
  check(entry.context->api.zeMemAllocShared(entry.context->handle, &on_device, &on_host, bytes, kAlignment,
                                            entry.handle, &made),
        "zeMemAllocShared");
  return made;
}

void* alloc_any(const DeviceEntry& entry, sdk::Memory memory, uint64_t bytes) {
  if (memory == sdk::Memory::kPinned) return alloc_pinned(*entry.context, bytes);
  if (memory == sdk::Memory::kShared) return alloc_shared(entry, bytes);
  return alloc_on(entry, bytes);
}

/// It is counted as the device's, and the CPU does not reach it.
bool is_on_device(sdk::Memory memory) {
  return memory == sdk::Memory::kDevice || memory == sdk::Memory::kExchange;
}

}  // namespace

PinnedBlock::PinnedBlock(std::shared_ptr<Context> context, uint64_t bytes)
    : context_(std::move(context)), pointer_(alloc_pinned(*context_, bytes)) {}

PinnedBlock::~PinnedBlock() {
  if (::getpid() == context_->owner) context_->api.zeMemFree(context_->handle, pointer_);
}

UsmMemory::~UsmMemory() {
  for (const auto& [address, block] : blocks_) {
    if (::getpid() != block.context->owner) return;
    block.context->api.zeMemFree(block.context->handle, block.pointer);
  }
}

uint64_t UsmMemory::total(const DeviceEntry& entry) const {
  return limit_ == 0 ? entry.memory_bytes : std::min(limit_, entry.memory_bytes);
}

sdk::MemoryInfo UsmMemory::info(const DeviceEntry& entry, int32_t device) const {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(device);
  const uint64_t used = found == used_.end() ? 0 : found->second;
  return {total(entry) - std::min(used, total(entry)), total(entry)};
}

Failure UsmMemory::none_left(const DeviceEntry& entry, int32_t device, uint64_t bytes, const std::string& why) const {
  const sdk::MemoryInfo now = info(entry, device);
  return {PLIANT_RESOURCE_EXHAUSTED, "out of device memory: " + std::to_string(bytes) + " bytes wanted, " +
                                         std::to_string(now.free_bytes) + " of " + std::to_string(now.total_bytes) +
                                         " left" + why + "; free buffers" +
                                         (limit_ != 0 ? " or raise memory_bytes" : "")};
}

bool UsmMemory::reserve(const DeviceEntry& entry, int32_t device, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  uint64_t& used = used_[device];
  // Without a limit the driver decides: it may have more than it says, and others may have taken some.
  const bool counts = limit_ != 0 || bytes > entry.memory_bytes;
  if (counts && bytes > total(entry) - std::min(used, total(entry))) return false;
  used += bytes;
  return true;
}

void UsmMemory::give_back(int32_t device, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_[device] -= bytes;
}

void* UsmMemory::alloc(const std::vector<DeviceEntry>& devices, int32_t device, sdk::Memory memory, uint64_t bytes) {
  const DeviceEntry& entry = devices[static_cast<size_t>(device)];
  const bool on_device = is_on_device(memory);
  if (on_device && !reserve(entry, device, bytes)) throw none_left(entry, device, bytes, "");
  void* made = nullptr;
  try {
    const uint64_t taken = std::max(bytes, kAlignment);
    made = alloc_any(entry, memory, taken);  // slow, so not under the lock
    const std::lock_guard lock(mutex_);
    blocks_.emplace(reinterpret_cast<uintptr_t>(made), Block{made, bytes, device, memory, entry.context});
  } catch (const Failure& failure) {
    if (!on_device) throw;
    give_back(device, bytes);
    if (failure.status() != PLIANT_RESOURCE_EXHAUSTED) throw;
    throw none_left(entry, device, bytes, " (" + std::string(failure.what()) + ")");
  } catch (...) {
    if (made != nullptr) entry.context->api.zeMemFree(entry.context->handle, made);
    if (on_device) give_back(device, bytes);
    throw;
  }
  return made;
}

void UsmMemory::free(void* pointer) {
  std::shared_ptr<Context> context;
  {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(reinterpret_cast<uintptr_t>(pointer));
    if (found == blocks_.end()) return;
    const Block& block = found->second;
    if (is_on_device(block.memory)) used_[block.device] -= block.bytes;
    context = block.context;
    blocks_.erase(found);
  }
  context->api.zeMemFree(context->handle, pointer);
}

void UsmMemory::require_exchange(int32_t device, const void* pointer) const {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == blocks_.end() || found->second.memory != sdk::Memory::kExchange || found->second.device != device) {
    throw Failure(PLIANT_INVALID_ARGUMENT,
                  "the memory to export is not the beginning of an allocation of PLIANT_MEMORY_EXCHANGE of this "
                  "instance on this device; export the pointer that alloc gave");
  }
}

devices::Reach UsmMemory::reach_of(const DeviceEntry& entry, const void* pointer, uint64_t bytes,
                                   const char* what) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  {
    const std::lock_guard lock(mutex_);
    auto found = blocks_.upper_bound(address);
    if (found != blocks_.begin()) {
      --found;
      const uint64_t offset = address - found->first;
      const Block& block = found->second;
      if (offset < std::max<uint64_t>(block.bytes, 1)) {
        if (bytes > block.bytes - offset) {
          throw Failure(PLIANT_INVALID_ARGUMENT, std::string(what) + " leaves its buffer: " + std::to_string(bytes) +
                                                     " bytes from byte " + std::to_string(offset) + " of a buffer of " +
                                                     std::to_string(block.bytes));
        }
        return {true, !is_on_device(block.memory)};
      }
    }
  }
  // Not of this instance: of the driver, by way of somebody else in this process, or plain memory.
  ze_memory_allocation_properties_t properties{};
  properties.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
  const Context& context = *entry.context;
  check(context.api.zeMemGetAllocProperties(context.handle, pointer, &properties, nullptr), "zeMemGetAllocProperties");
  if (properties.type == ZE_MEMORY_TYPE_UNKNOWN) devices::require_mapped(pointer, bytes, what);
  if (properties.type == ZE_MEMORY_TYPE_UNKNOWN) return {entry.reaches_plain_memory, true};
  return {true, properties.type != ZE_MEMORY_TYPE_DEVICE};
}

}  // namespace pliant::level_zero
