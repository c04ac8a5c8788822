// CudaMemory: the memory of one instance, and who may touch what.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "common/devices/memory_book.hpp"
#include "nccl_api.hpp"
#include "pliant/sdk/accelerator.hpp"
#include "runtime.hpp"

namespace pliant::cuda {

class Stream;

/// Pinned memory that is freed in time.
class PinnedBlock {
 public:
  PinnedBlock(DevicePtr device, uint64_t bytes);
  ~PinnedBlock();
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(pointer_); }

 private:
  const DevicePtr device_;
  void* pointer_ = nullptr;
};

/// Frees, when it goes, what was not freed. All calls may come from any thread.
class CudaMemory {
 public:
  /// `limit` bytes of each device's memory may be used; 0: all.
  void set_limit(uint64_t limit) { book_.set_limit(limit); }
  /// What windows are made of; before any is allocated.
  void set_windows(const NcclApi& nccl) { nccl_ = nccl; }
  /// At a multiple of `alignment`, a power of two. Throws PLIANT_UNIMPLEMENTED where CUDA lets memory that others map
  /// begin elsewhere.
  void* alloc(const DevicePtr& device, sdk::Memory memory, uint64_t bytes, uint64_t alignment = sdk::kLeastAlignment);
  /// A pointer that is not of this instance is left alone.
  void free(void* pointer);
  /// Pins memory of the program for all devices; `devices` are all of the instance.
  void register_host(const std::vector<DevicePtr>& devices, void* pointer, uint64_t bytes);
  /// A pointer that was not registered is left alone.
  void unregister_host(void* pointer);
  /// `pointer` begins exchange memory of this instance on the device.
  [[nodiscard]] bool is_exchange(const DeviceEntry& device, const void* pointer) const {
    return book_.begins(pointer, sdk::Memory::kExchange, device.index);
  }
  /// The range lies in window memory of this instance on the device.
  [[nodiscard]] bool is_window(const DeviceEntry& device, const void* pointer, uint64_t bytes) const;
  [[nodiscard]] sdk::MemoryInfo info(const DeviceEntry& device) const;
  /// Throws PLIANT_INVALID_ARGUMENT when the range leaves its allocation. `what` names it in the message.
  [[nodiscard]] devices::Reach reach_of(const DeviceEntry& device, const void* pointer, uint64_t bytes,
                                        const char* what) const;

  /// Of memory of this instance, and else of what CUDA knows; of that, the range cannot be told. `devices` are all.
  [[nodiscard]] std::optional<sdk::PointerInfo> pointer_info(const std::vector<DevicePtr>& devices,
                                                             const void* pointer) const;

  /// In stream order, from a pool of the instance that gives nothing back to the device unless trimmed.
  void* alloc_async(const DevicePtr& device, uint64_t bytes, Stream& stream);
  /// Throws PLIANT_INVALID_ARGUMENT for memory that is not alloc_async's.
  void free_async(void* pointer, Stream& stream);
  void trim(const DevicePtr& device, uint64_t keep_bytes);

 private:
  struct Pool {
    Pool() = default;
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;
    DevicePtr device;
    cudaMemPool_t handle = nullptr;
  };
  void* add(const DevicePtr& device, devices::Block block, const devices::MemoryBook::Make& make);
  cudaMemPool_t pool_of(const DevicePtr& device);
  /// Gives back what the pool keeps unused; false when there is no pool.
  bool empty_pool(const DeviceEntry& device);

  NcclApi nccl_;
  std::mutex mutex_;
  std::map<int, Pool> pools_;
  devices::MemoryBook book_;  // goes before the pools
};

}  // namespace pliant::cuda
