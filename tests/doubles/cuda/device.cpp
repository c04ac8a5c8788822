// Devices, errors and memory of the software runtime.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "file_limit.hpp"
#include "soft.hpp"

namespace soft_cuda {
namespace {

thread_local int chosen_device = 0;

/// Under the mutex.
cudaError_t allocate(uint64_t bytes, cudaMemoryType type, Pool* pool, void** out) {
  State& all = state();
  if (const cudaError_t now = usable(); now != cudaSuccess) return now;
  if (all.settings.busy) return cudaErrorDevicesUnavailable;
  if (++all.allocations_made == all.settings.fail_alloc_at) return cudaErrorMemoryAllocation;
  const int device = pool != nullptr ? pool->device : chosen_device;
  uint64_t taken = type == cudaMemoryTypeDevice ? bytes : 0;
  const uint64_t again = pool != nullptr ? std::min(taken, pool->kept) : 0;
  taken -= again;
  uint64_t& used = all.used[device];
  if (taken > all.settings.memory_bytes - std::min(all.settings.memory_bytes, used)) return cudaErrorMemoryAllocation;
  auto made = std::make_shared<Allocation>();
  made->bytes = bytes;
  const uint64_t mapped = (std::max<uint64_t>(bytes, 1) + kPage - 1) / kPage * kPage + kPage;
  if (!soft_cuda::may_write(mapped) || !made->make("soft-cuda", mapped, type == cudaMemoryTypeDevice)) {
    return cudaErrorMemoryAllocation;
  }
  made->trailer().nonce = drawn();
  made->type = type;
  made->device = device;
  made->pool = pool;
  used += taken;
  if (pool != nullptr) pool->kept -= again;
  *out = made->address;
  all.allocations.emplace(reinterpret_cast<uintptr_t>(made->address), std::move(made));
  return cudaSuccess;
}

cudaError_t release(void* pointer, bool host) {
  State& all = state();
  if (pointer == nullptr) return cudaSuccess;
  const auto found = all.allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == all.allocations.end() || found->second->doomed || found->second->is_lent ||
      (found->second->type == cudaMemoryTypeHost) != host) {
    all.violation("memory was freed that is not allocated, or of another kind");
    return cudaErrorInvalidValue;
  }
  const Allocation& one = *found->second;
  if (one.opened != 0) {
    all.violation("memory of another process was freed, not closed");
    return cudaErrorInvalidValue;
  }
  if (one.in_use != 0 && !all.lost) all.violation("memory was freed while commands use it");
  if (is_imported(one)) all.violation("memory was freed while another process has it open");
  if (one.type == cudaMemoryTypeDevice) all.used[one.device] -= one.bytes;
  all.allocations.erase(found);
  return all.lost ? kLoss : cudaSuccess;
}

/// Under the mutex. Whole pages are pinned, each for one range.
cudaError_t pin(void* pointer, uint64_t bytes) {
  State& all = state();
  if (const cudaError_t now = usable(); now != cudaSuccess) return now;
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  if (bytes == 0) return cudaErrorInvalidValue;
  for (const auto& [address, one] : all.allocations) {
    const uintptr_t first = begin / kPage * kPage;
    const uintptr_t end = (begin + bytes + kPage - 1) / kPage * kPage;
    const uintptr_t taken_end = (address + one->mapped + kPage - 1) / kPage * kPage;
    if (address / kPage * kPage >= end || taken_end <= first) continue;
    return one->is_lent ? cudaErrorHostMemoryAlreadyRegistered : cudaErrorInvalidValue;
  }
  if (++all.registrations_made == all.settings.fail_register_at) return cudaErrorMemoryAllocation;
  auto made = std::make_shared<Allocation>();
  made->bytes = bytes;
  made->type = cudaMemoryTypeHost;
  made->device = chosen_device;
  made->lend(pointer, bytes);
  all.allocations.emplace(begin, std::move(made));
  return cudaSuccess;
}

}  // namespace

int current_device() {
  return chosen_device;
}

}  // namespace soft_cuda

using namespace soft_cuda;

extern "C" {

cudaError_t cudaRuntimeGetVersion(int* version) {
#ifdef PLIANT_SOFT_CUDA_12
  *version = 12080;
#else
  *version = 13000;
#endif
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = Settings::read().driver_version;
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorNoKernelImageForDevice:
      return "cudaErrorNoKernelImageForDevice";
    case cudaErrorHostMemoryAlreadyRegistered:
      return "cudaErrorHostMemoryAlreadyRegistered";
    default:
      return "an error of the software CUDA runtime";
  }
}
const char* cudaGetErrorString(cudaError_t) {
  return "no words for it";
}

cudaError_t cudaGetDeviceCount(int* count) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (all.owner == ::getpid() || all.owner == 0) {
    const bool idle = all.allocations.empty() && all.streams.empty() && all.events.empty() && all.pools.empty();
    if (idle) {
      all.settings = Settings::read();
      all.lost = false;
      all.allocations_made = 0;
      all.registrations_made = 0;
      all.enqueued = 0;
      all.used.clear();
    }
  }
  if (all.settings.driver_version < 13000) return told(cudaErrorInsufficientDriver);
  if (all.settings.devices == 0) return told(cudaErrorNoDevice);
  all.owner = all.owner == 0 ? ::getpid() : all.owner;
  if (const cudaError_t now = usable(); now != cudaSuccess) return told(now);
  *count = all.settings.devices;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  const std::lock_guard lock(state().mutex);
  if (device < 0 || device >= state().settings.devices) return told(cudaErrorInvalidDevice);
  chosen_device = device;
  return told(usable());
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  std::memset(properties, 0, sizeof(*properties));
  std::snprintf(properties->name, sizeof(properties->name), "software GPU %d (test double)", device);
  properties->totalGlobalMem = state().settings.memory_bytes;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  std::snprintf(text, static_cast<size_t>(length), "0000:%02X:00.0", 0xa0 + device);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  if (attribute == cudaDevAttrIpcEventSupport) {
    *value = state().settings.has_ipc ? 1 : 0;
    return cudaSuccess;
  }
  if (attribute == cudaDevAttrCanUseHostPointerForRegisteredMem) {
    *value = state().settings.registers ? 1 : 0;
    return cudaSuccess;
  }
  *value = attribute == cudaDevAttrMultiProcessorCount ? 2 : 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** out, size_t bytes) {
  const std::lock_guard lock(state().mutex);
  return told(allocate(bytes, cudaMemoryTypeDevice, nullptr, out));
}
cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned) {
  const std::lock_guard lock(state().mutex);
  return told(allocate(bytes, cudaMemoryTypeHost, nullptr, out));
}
cudaError_t cudaMallocManaged(void** out, size_t bytes, unsigned) {
  const std::lock_guard lock(state().mutex);
  return told(allocate(bytes, cudaMemoryTypeManaged, nullptr, out));
}
cudaError_t cudaFree(void* pointer) {
  const std::lock_guard lock(state().mutex);
  return told(release(pointer, false));
}
cudaError_t cudaFreeHost(void* pointer) {
  const std::lock_guard lock(state().mutex);
  return told(release(pointer, true));
}
cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  return told(pin(pointer, bytes));
}
cudaError_t cudaHostUnregister(void* pointer) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const auto found = all.allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == all.allocations.end() || !found->second->is_lent) {
    all.violation("memory was unregistered that is not registered");
    return told(cudaErrorHostMemoryNotRegistered);
  }
  if (found->second->in_use != 0 && !all.lost) all.violation("memory was unregistered while commands use it");
  all.allocations.erase(found);
  return told(usable());
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  *total = all.settings.memory_bytes;
  *free_bytes = *total - std::min<uint64_t>(*total, all.used[current_device()]);
  return told(usable());
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const std::lock_guard lock(state().mutex);
  const AllocationPtr found = state().find(pointer);
  *attributes = {};
  attributes->type = found ? found->type : cudaMemoryTypeUnregistered;
  attributes->device = found ? found->device : -1;
  return told(usable());
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* out, const cudaMemPoolProps* wanted) {
  const std::lock_guard lock(state().mutex);
  auto* made = new Pool{wanted->location.id, 0, 0};
  state().pools.insert(made);
  *out = reinterpret_cast<cudaMemPool_t>(made);
  return told(usable());
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t handle) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  auto* pool = reinterpret_cast<Pool*>(handle);
  for (const auto& [address, one] : all.allocations) {
    if (one->pool == pool) all.violation("a pool was destroyed that memory came from");
  }
  all.trim(*pool, 0);
  if (all.pools.erase(pool) == 1) delete pool;
  return told(usable());
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute, void* value) {
  const std::lock_guard lock(state().mutex);
  if (attribute != cudaMemPoolAttrReleaseThreshold) return told(cudaErrorInvalidValue);
  reinterpret_cast<Pool*>(handle)->threshold = *static_cast<uint64_t*>(value);
  return told(usable());
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t handle, size_t keep) {
  const std::lock_guard lock(state().mutex);
  state().trim(*reinterpret_cast<Pool*>(handle), keep);
  return told(usable());
}
cudaError_t cudaMallocFromPoolAsync(void** out, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (all.streams.count(reinterpret_cast<Stream*>(stream)) == 0) return told(cudaErrorInvalidResourceHandle);
  return told(allocate(bytes, cudaMemoryTypeDevice, reinterpret_cast<Pool*>(pool), out));
}

}  // extern "C"
