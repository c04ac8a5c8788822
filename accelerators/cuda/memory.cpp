// Allocates, accounts and looks pointers up.
#include "memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "common/devices/plain_memory.hpp"
#include "result.hpp"
#include "stream.hpp"

namespace pliant::cuda {
namespace {

using sdk::Failure;

/// What any allocation of CUDA has, by its programming guide.
constexpr uint64_t kAlignment = 256;

void* alloc_pinned(const Api& api, uint64_t bytes) {
  void* made = nullptr;
  check(api, api.cudaHostAlloc(&made, bytes, cudaHostAllocPortable), "cudaHostAlloc");
  return made;
}

void* alloc_window(const Api& api, const NcclApi& nccl, uint64_t bytes) {
  void* made = nullptr;
  if (nccl.mem_alloc(&made, bytes) == kNcclSuccess) return made;
  static_cast<void>(api.cudaGetLastError());
  // It does not tell want of memory from other failures of CUDA.
  throw Failure(PLIANT_RESOURCE_EXHAUSTED, "ncclMemAlloc failed; set NCCL_DEBUG=WARN to see why");
}

void* alloc_now(const DeviceEntry& device, const NcclApi& nccl, sdk::Memory memory, uint64_t bytes) {
  const Api& api = device.api;
  const OnDevice here(api, device.index);
  void* made = nullptr;
  if (memory == sdk::Memory::kPinned) return alloc_pinned(api, bytes);
  if (memory == sdk::Memory::kWindow) return alloc_window(api, nccl, bytes);
  if (memory == sdk::Memory::kShared) {
    check(api, api.cudaMallocManaged(&made, bytes, cudaMemAttachGlobal), "cudaMallocManaged");
  } else {
    check(api, api.cudaMalloc(&made, bytes), "cudaMalloc");
  }
  return made;
}

/// A handle to memory that shares a block of the driver's with other allocations would show those, too.
uint64_t whole_blocks(uint64_t bytes) {
  constexpr uint64_t kBlock = uint64_t{2} << 20U;
  if (bytes > std::numeric_limits<uint64_t>::max() - kBlock) return bytes;
  return std::max<uint64_t>(1, (bytes + kBlock - 1) / kBlock) * kBlock;
}

void free_now(const DeviceEntry& device, const NcclApi& nccl, sdk::Memory memory, void* pointer) {
  const OnDevice here(device.api, device.index);
  const bool freed = memory == sdk::Memory::kPinned   ? device.api.cudaFreeHost(pointer) == cudaSuccess
                     : memory == sdk::Memory::kWindow ? nccl.mem_free(pointer) == kNcclSuccess
                                                      : device.api.cudaFree(pointer) == cudaSuccess;
  if (!freed) static_cast<void>(device.api.cudaGetLastError());
}

void* registered_now(const DeviceEntry& device, void* pointer, uint64_t bytes) {
  const OnDevice here(device.api, device.index);
  const cudaError_t result = device.api.cudaHostRegister(pointer, bytes, cudaHostRegisterPortable);
  // CUDA pins whole pages: those of another range may be among them.
  if (result == cudaErrorHostMemoryAlreadyRegistered || result == cudaErrorInvalidValue) {
    const std::string why = text_of(device.api, result);
    static_cast<void>(device.api.cudaGetLastError());
    throw Failure(PLIANT_UNIMPLEMENTED,
                  "CUDA cannot pin this memory, or has pinned a page of it already (" + why + ")");
  }
  check(device.api, result, "cudaHostRegister");
  return pointer;
}

}  // namespace

PinnedBlock::PinnedBlock(DevicePtr device, uint64_t bytes) : device_(std::move(device)) {
  const OnDevice here(device_->api, device_->index);
  pointer_ = alloc_pinned(device_->api, bytes);
}

PinnedBlock::~PinnedBlock() {
  if (::getpid() == device_->owner) free_now(*device_, NcclApi(), sdk::Memory::kPinned, pointer_);
}

CudaMemory::Pool::~Pool() {
  if (handle == nullptr || ::getpid() != device->owner) return;
  if (device->api.cudaMemPoolDestroy(handle) != cudaSuccess) static_cast<void>(device->api.cudaGetLastError());
}

bool CudaMemory::is_window(const DeviceEntry& device, const void* pointer, uint64_t bytes) const {
  const auto place = book_.place_of(pointer);
  return place && place->memory == sdk::Memory::kWindow && place->device == device.index &&
         place->offset < place->bytes && bytes <= place->bytes - place->offset;
}

sdk::MemoryInfo CudaMemory::info(const DeviceEntry& device) const {
  const OnDevice here(device.api, device.index);
  size_t free_bytes = 0;
  size_t all = 0;
  check(device.api, device.api.cudaMemGetInfo(&free_bytes, &all), "cudaMemGetInfo");
  if (!book_.is_limited()) return {std::min(free_bytes, all), all};
  const sdk::MemoryInfo allowed = book_.info({device.index, device.memory_bytes});
  return {std::min<uint64_t>(allowed.free_bytes, free_bytes), allowed.total_bytes};
}

void* CudaMemory::add(const DevicePtr& device, devices::Block block, const devices::MemoryBook::Make& make) {
  block.device = {device->index, device->memory_bytes};
  block.free = [this, device, memory = block.memory](void* pointer) {
    if (::getpid() == device->owner) free_now(*device, nccl_, memory, pointer);
  };
  return book_.add(std::move(block), make, [&] { return info(*device); });
}

void* CudaMemory::alloc(const DevicePtr& device, sdk::Memory memory, uint64_t bytes, uint64_t alignment) {
  const bool is_whole = memory == sdk::Memory::kExchange || memory == sdk::Memory::kWindow;
  // CUDA takes no alignment: what promises too little is taken larger, and begins inside.
  const bool is_inside = !is_whole && alignment > kAlignment;
  const uint64_t more = is_inside ? alignment - 1 : 0;
  const uint64_t wanted = bytes > std::numeric_limits<uint64_t>::max() - more ? bytes : bytes + more;
  const uint64_t taken = is_whole ? whole_blocks(bytes) : std::max<uint64_t>(wanted, 1);
  // Shared memory moves to the device as it is used, and may be more than that has.
  const uint64_t counted = is_whole ? taken : memory == sdk::Memory::kDevice ? wanted : 0;
  const auto alloc_there = [&] {
    try {
      return alloc_now(*device, nccl_, memory, taken);
    } catch (const Failure& failure) {
      if (failure.status() != PLIANT_RESOURCE_EXHAUSTED || !empty_pool(*device)) throw;
    }
    return alloc_now(*device, nccl_, memory, taken);
  };
  void* const made =
      add(device, {.bytes = bytes, .alignment = is_inside ? alignment : 1, .counted = counted, .memory = memory},
          alloc_there);
  if (reinterpret_cast<uintptr_t>(made) % alignment == 0) return made;
  free(made);
  throw Failure(PLIANT_UNIMPLEMENTED, "CUDA gave " + std::to_string(bytes) + " bytes that are not aligned to " +
                                          std::to_string(alignment) + ", and begin where other processes map them");
}

void CudaMemory::free(void* pointer) {
  if (const auto block = book_.take(pointer, devices::Origin::kAllocated)) block->give_back();
}

void CudaMemory::register_host(const std::vector<DevicePtr>& devices, void* pointer, uint64_t bytes) {
  sdk::require(!book_.has_part_of(pointer, bytes),
               "a part of these " + std::to_string(bytes) + " bytes was given by alloc or is registered already");
  const bool all_can =
      std::all_of(devices.begin(), devices.end(), [](const DevicePtr& one) { return one->registers_memory; });
  if (devices.empty() || !all_can) {
    throw Failure(PLIANT_UNIMPLEMENTED,
                  devices.empty() ? "there is no device" : "a device cannot access memory of the program directly");
  }
  const DevicePtr& any = devices.front();
  devices::Block block{.bytes = bytes, .memory = sdk::Memory::kPinned, .origin = devices::Origin::kRegistered};
  block.free = [any](void* at) {
    if (::getpid() != any->owner) return;
    const OnDevice here(any->api, any->index);
    if (any->api.cudaHostUnregister(at) != cudaSuccess) static_cast<void>(any->api.cudaGetLastError());
  };
  book_.add(
      std::move(block), [&] { return registered_now(*any, pointer, bytes); }, [&] { return info(*any); });
}

void CudaMemory::unregister_host(void* pointer) {
  if (const auto block = book_.take(pointer, devices::Origin::kRegistered)) block->give_back();
}

devices::Reach CudaMemory::reach_of(const DeviceEntry& device, const void* pointer, uint64_t bytes,
                                    const char* what) const {
  if (const auto own = book_.reach_of(pointer, bytes, what)) return *own;
  // Not of this instance: CUDA's, by way of somebody else in this process, or plain memory.
  cudaPointerAttributes attributes{};
  const OnDevice here(device.api, device.index);
  check(device.api, device.api.cudaPointerGetAttributes(&attributes, pointer), "cudaPointerGetAttributes");
  if (attributes.type == cudaMemoryTypeUnregistered) devices::require_mapped(pointer, bytes, what);
  return {attributes.type != cudaMemoryTypeUnregistered, attributes.type != cudaMemoryTypeDevice};
}

std::optional<sdk::PointerInfo> CudaMemory::pointer_info(const std::vector<DevicePtr>& devices,
                                                         const void* pointer) const {
  if (const auto own = book_.pointer_info(pointer)) return own;
  if (devices.empty()) return std::nullopt;
  cudaPointerAttributes attributes{};
  const DeviceEntry& any = *devices.front();
  const OnDevice here(any.api, any.index);
  const cudaError_t result = any.api.cudaPointerGetAttributes(&attributes, pointer);
  if (result == cudaErrorInvalidValue) {
    static_cast<void>(any.api.cudaGetLastError());
    return std::nullopt;
  }
  check(any.api, result, "cudaPointerGetAttributes");
  if (attributes.type == cudaMemoryTypeUnregistered) return std::nullopt;
  if (attributes.type == cudaMemoryTypeHost) return sdk::PointerInfo{.memory = sdk::Memory::kPinned};
  const auto owner = std::find_if(devices.begin(), devices.end(),
                                  [&](const DevicePtr& device) { return device->index == attributes.device; });
  const bool is_shared = attributes.type == cudaMemoryTypeManaged;
  return sdk::PointerInfo{.memory = is_shared ? sdk::Memory::kShared : sdk::Memory::kDevice,
                          .device = owner == devices.end() ? -1 : static_cast<int32_t>(owner - devices.begin())};
}

cudaMemPool_t CudaMemory::pool_of(const DevicePtr& device) {
  if (!device->has_pools) {
    throw Failure(PLIANT_UNIMPLEMENTED, "device '" + device->name + "' has no stream-ordered memory")
        .about_device(device->index);
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
  return add(device, {.bytes = bytes, .counted = bytes, .origin = devices::Origin::kPooled}, [&] {
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
  const bool was_there = book_.take(pointer, devices::Origin::kPooled).has_value();
  sdk::require(was_there, "the pointer is not from alloc_async, or was freed before; memory of alloc goes to free");
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
