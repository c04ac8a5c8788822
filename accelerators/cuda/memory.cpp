// Allocates, accounts and looks pointers up.
#include "memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "devices/plain_memory.hpp"
#include "result.hpp"
#include "stream.hpp"

namespace pliant::cuda {
namespace {

using sdk::Failure;

void* alloc_pinned(const Api& api, uint64_t bytes) {
  void* made = nullptr;
  check(api, api.cudaHostAlloc(&made, bytes, cudaHostAllocPortable), "cudaHostAlloc");
  return made;
}

/// A handle to memory that shares a block of the driver's with other allocations would show those, too.
uint64_t whole_blocks(uint64_t bytes) {
  constexpr uint64_t kBlock = uint64_t{2} << 20U;
  if (bytes > std::numeric_limits<uint64_t>::max() - kBlock) return bytes;
  return std::max<uint64_t>(1, (bytes + kBlock - 1) / kBlock) * kBlock;
}

void tell_freed(const Api& api, cudaError_t result) {
  if (result != cudaSuccess) static_cast<void>(api.cudaGetLastError());
}

}  // namespace

PinnedBlock::PinnedBlock(DevicePtr device, uint64_t bytes) : device_(std::move(device)) {
  const OnDevice here(device_->api, device_->index);
  pointer_ = alloc_pinned(device_->api, bytes);
}

PinnedBlock::~PinnedBlock() {
  if (::getpid() != device_->owner) return;
  const OnDevice here(device_->api, device_->index);
  tell_freed(device_->api, device_->api.cudaFreeHost(pointer_));
}

void* CudaMemory::alloc_now(const DeviceEntry& device, sdk::Memory memory, uint64_t bytes) const {
  const Api& api = device.api;
  const OnDevice here(api, device.index);
  void* made = nullptr;
  if (memory == sdk::Memory::kPinned) return alloc_pinned(api, bytes);
  if (memory == sdk::Memory::kShared) {
    check(api, api.cudaMallocManaged(&made, bytes, cudaMemAttachGlobal), "cudaMallocManaged");
  } else if (memory == sdk::Memory::kWindow) {
    const NcclResult result = window_alloc_(&made, bytes);
    if (result == kNcclSuccess) return made;
    static_cast<void>(api.cudaGetLastError());
    // It does not tell want of memory from other failures of CUDA.
    throw Failure(PLIANT_RESOURCE_EXHAUSTED, "ncclMemAlloc failed; NCCL_DEBUG=WARN makes it say why");
  } else {
    check(api, api.cudaMalloc(&made, bytes), "cudaMalloc");
  }
  return made;
}

void CudaMemory::free_now(const Block& block) const {
  const Api& api = block.device->api;
  const OnDevice here(api, block.device->index);
  if (block.memory == sdk::Memory::kPinned) return tell_freed(api, api.cudaFreeHost(block.pointer));
  if (block.memory != sdk::Memory::kWindow) return tell_freed(api, api.cudaFree(block.pointer));
  if (window_free_(block.pointer) != kNcclSuccess) static_cast<void>(api.cudaGetLastError());
}

CudaMemory::~CudaMemory() {
  for (const auto& [address, block] : blocks_) {
    if (::getpid() != block.device->owner) return;
    free_now(block);
  }
  for (const auto& [device, pool] : pools_) {
    if (pool.handle == nullptr || ::getpid() != pool.device->owner) continue;
    if (pool.device->api.cudaMemPoolDestroy(pool.handle) != cudaSuccess) {
      static_cast<void>(pool.device->api.cudaGetLastError());
    }
  }
}

uint64_t CudaMemory::total(const DeviceEntry& device) const {
  return limit_ == 0 ? device.memory_bytes : std::min(limit_, device.memory_bytes);
}

sdk::MemoryInfo CudaMemory::info(const DeviceEntry& device) const {
  const OnDevice here(device.api, device.index);
  size_t free_bytes = 0;
  size_t all = 0;
  check(device.api, device.api.cudaMemGetInfo(&free_bytes, &all), "cudaMemGetInfo");
  if (limit_ == 0) return {std::min(free_bytes, all), all};
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(device.index);
  const uint64_t used = found == used_.end() ? 0 : found->second;
  const uint64_t most = total(device);
  return {std::min<uint64_t>(most - std::min(used, most), free_bytes), most};
}

Failure CudaMemory::none_left(const DeviceEntry& device, uint64_t bytes, const std::string& why) const {
  const sdk::MemoryInfo now = info(device);
  return {PLIANT_RESOURCE_EXHAUSTED, "out of device memory: " + std::to_string(bytes) + " bytes wanted, " +
                                         std::to_string(now.free_bytes) + " of " + std::to_string(now.total_bytes) +
                                         " left" + why + "; free buffers" +
                                         (limit_ != 0 ? " or raise memory_bytes" : "")};
}

bool CudaMemory::reserve(const DeviceEntry& device, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  uint64_t& used = used_[device.index];
  if (limit_ != 0 && bytes > total(device) - std::min(used, total(device))) return false;
  used += bytes;
  return true;
}

void CudaMemory::give_back(int device, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_[device] -= bytes;
}

/// `make` gives the memory or throws; what it gave is known when this returns.
template <class Make>
void* CudaMemory::add(Block block, Make&& make) {
  const DeviceEntry& device = *block.device;
  if (!reserve(device, block.counted)) throw none_left(device, block.counted, "");
  try {
    block.pointer = make();  // slow, so not under the lock
    void* made = block.pointer;
    const std::lock_guard lock(mutex_);
    blocks_.emplace(reinterpret_cast<uintptr_t>(made), block);
    return made;
  } catch (const Failure& failure) {
    give_back(device.index, block.counted);
    if (block.counted == 0 || failure.status() != PLIANT_RESOURCE_EXHAUSTED) throw;
    throw none_left(device, block.counted, " (" + std::string(failure.what()) + ")");
  } catch (...) {
    if (block.pointer != nullptr) free_now(block);
    give_back(device.index, block.counted);
    throw;
  }
}

void* CudaMemory::alloc(const DevicePtr& device, sdk::Memory memory, uint64_t bytes) {
  const bool is_whole = memory == sdk::Memory::kExchange || memory == sdk::Memory::kWindow;
  const uint64_t taken = is_whole ? whole_blocks(bytes) : std::max<uint64_t>(bytes, 1);
  // Shared memory moves to the device as it is used, and may be more than that has.
  const uint64_t counted = is_whole ? taken : memory == sdk::Memory::kDevice ? bytes : 0;
  return add({nullptr, bytes, counted, memory, false, device}, [&] {
    try {
      return alloc_now(*device, memory, taken);
    } catch (const Failure& failure) {
      if (failure.status() != PLIANT_RESOURCE_EXHAUSTED || !empty_pool(*device)) throw;
    }
    return alloc_now(*device, memory, taken);
  });
}

void CudaMemory::free(void* pointer) {
  Block block;
  {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(reinterpret_cast<uintptr_t>(pointer));
    if (found == blocks_.end() || found->second.pooled) return;
    block = found->second;
    used_[block.device->index] -= block.counted;
    blocks_.erase(found);
  }
  free_now(block);
}

bool CudaMemory::is_exchange(const DeviceEntry& device, const void* pointer) const {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(reinterpret_cast<uintptr_t>(pointer));
  return found != blocks_.end() && found->second.memory == sdk::Memory::kExchange &&
         found->second.device->index == device.index;
}

bool CudaMemory::is_window(const DeviceEntry& device, const void* pointer, uint64_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const std::lock_guard lock(mutex_);
  auto found = blocks_.upper_bound(address);
  if (found == blocks_.begin()) return false;
  const Block& block = (--found)->second;
  const uint64_t offset = address - found->first;
  return block.memory == sdk::Memory::kWindow && block.device->index == device.index && offset < block.bytes &&
         bytes <= block.bytes - offset;
}

devices::Reach CudaMemory::reach_of(const DeviceEntry& device, const void* pointer, uint64_t bytes,
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
        return {true, block.memory == sdk::Memory::kPinned || block.memory == sdk::Memory::kShared};
      }
    }
  }
  // Not of this instance: CUDA's, by way of somebody else in this process, or plain memory.
  cudaPointerAttributes attributes{};
  const OnDevice here(device.api, device.index);
  check(device.api, device.api.cudaPointerGetAttributes(&attributes, pointer), "cudaPointerGetAttributes");
  if (attributes.type == cudaMemoryTypeUnregistered) devices::require_mapped(pointer, bytes, what);
  return {attributes.type != cudaMemoryTypeUnregistered, attributes.type != cudaMemoryTypeDevice};
}

cudaMemPool_t CudaMemory::pool_of(const DevicePtr& device) {
  if (!device->has_pools) {
    throw Failure(PLIANT_UNIMPLEMENTED, "device '" + device->name + "' has no memory in stream order");
  }
  const std::lock_guard lock(mutex_);
  Pool& pool = pools_[device->index];
  if (pool.handle != nullptr) return pool.handle;
  const Api& api = device->api;
  cudaMemPoolProps wanted{};
  wanted.allocType = cudaMemAllocationTypePinned;
  wanted.handleTypes = cudaMemHandleTypeNone;
  wanted.location.type = cudaMemLocationTypeDevice;
  wanted.location.id = device->index;
  check(api, api.cudaMemPoolCreate(&pool.handle, &wanted), "cudaMemPoolCreate");
  pool.device = device;
  uint64_t keep = std::numeric_limits<uint64_t>::max();  // else every synchronization gives all back to the device
  check(api, api.cudaMemPoolSetAttribute(pool.handle, cudaMemPoolAttrReleaseThreshold, &keep),
        "cudaMemPoolSetAttribute");
  return pool.handle;
}

bool CudaMemory::empty_pool(const DeviceEntry& device) {
  const std::lock_guard lock(mutex_);
  const auto found = pools_.find(device.index);
  if (found == pools_.end() || found->second.handle == nullptr) return false;
  if (device.api.cudaMemPoolTrimTo(found->second.handle, 0) == cudaSuccess) return true;
  static_cast<void>(device.api.cudaGetLastError());
  return false;
}

void* CudaMemory::alloc_async(const DevicePtr& device, uint64_t bytes, Stream& stream) {
  require_process(device->owner);
  sdk::require(stream.device().index == device->index, "the stream is of device " +
                                                           std::to_string(stream.device().index) + ", not of device " +
                                                           std::to_string(device->index));
  cudaMemPool_t pool = pool_of(device);
  return add({nullptr, bytes, bytes, sdk::Memory::kDevice, true, device}, [&] {
    const Api& api = device->api;
    const OnDevice here(api, device->index);
    // Work that is not with CUDA yet comes later: memory that is there before it is there for it.
    void* made = nullptr;
    check(api, api.cudaMallocFromPoolAsync(&made, std::max<uint64_t>(bytes, 1), pool, stream.handle()),
          "cudaMallocFromPoolAsync");
    return made;
  });
}

void CudaMemory::free_async(void* pointer, Stream& stream) {
  Block block;
  {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(reinterpret_cast<uintptr_t>(pointer));
    sdk::require(found != blocks_.end() && found->second.pooled,
                 "the pointer is none that alloc_async gave, or was given back before; what alloc gave goes to free");
    block = found->second;
    used_[block.device->index] -= block.counted;
    blocks_.erase(found);
  }
  Stream::Turn(stream).on_device([pointer](const Api& api, cudaStream_t handle) {
    check(api, api.cudaFreeAsync(pointer, handle), "cudaFreeAsync");
  });
}

void CudaMemory::trim(const DevicePtr& device, uint64_t keep_bytes) {
  require_process(device->owner);
  cudaMemPool_t pool = pool_of(device);
  const Api& api = device->api;
  uint64_t keep = keep_bytes;
  check(api, api.cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), "cudaMemPoolSetAttribute");
  check(api, api.cudaMemPoolTrimTo(pool, keep_bytes), "cudaMemPoolTrimTo");
}

}  // namespace pliant::cuda
