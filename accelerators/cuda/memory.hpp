// CudaMemory: the memory of one instance, and who may touch what.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "devices/staged_work.hpp"
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

/// All calls may come from any thread.
class CudaMemory {
 public:
  CudaMemory() = default;
  /// Frees what was not freed.
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  /// What windows are made of; before any is allocated.
  void set_windows(NcclResult (*made_by)(void**, size_t), NcclResult (*freed_by)(void*)) {
    window_alloc_ = made_by;
    window_free_ = freed_by;
  }
  /// `limit` bytes of each device's memory may be used; 0: all.
  void set_limit(uint64_t limit) { limit_ = limit; }
  void* alloc(const DevicePtr& device, sdk::Memory memory, uint64_t bytes);
  /// A pointer that is not of this instance is left alone.
  void free(void* pointer);
  /// `pointer` begins exchange memory of this instance on the device.
  [[nodiscard]] bool is_exchange(const DeviceEntry& device, const void* pointer) const;
  /// The range lies in window memory of this instance on the device.
  [[nodiscard]] bool is_window(const DeviceEntry& device, const void* pointer, uint64_t bytes) const;
  [[nodiscard]] sdk::MemoryInfo info(const DeviceEntry& device) const;
  /// Throws PLIANT_INVALID_ARGUMENT when the range leaves its allocation. `what` names it in the message.
  [[nodiscard]] devices::Reach reach_of(const DeviceEntry& device, const void* pointer, uint64_t bytes,
                                        const char* what) const;

  /// In stream order, from a pool of the instance that gives nothing back to the device unless trimmed.
  void* alloc_async(const DevicePtr& device, uint64_t bytes, Stream& stream);
  /// Throws PLIANT_INVALID_ARGUMENT for memory that is not alloc_async's.
  void free_async(void* pointer, Stream& stream);
  void trim(const DevicePtr& device, uint64_t keep_bytes);

 private:
  struct Block {
    void* pointer = nullptr;
    uint64_t bytes = 0;
    uint64_t counted = 0;  ///< bytes of the device that it takes
    sdk::Memory memory = sdk::Memory::kDevice;
    bool pooled = false;
    DevicePtr device;
  };
  struct Pool {
    DevicePtr device;
    cudaMemPool_t handle = nullptr;
  };
  [[nodiscard]] void* alloc_now(const DeviceEntry& device, sdk::Memory memory, uint64_t bytes) const;
  void free_now(const Block& block) const;
  [[nodiscard]] uint64_t total(const DeviceEntry& device) const;
  /// Counts the bytes as used, unless that is more than there is.
  [[nodiscard]] bool reserve(const DeviceEntry& device, uint64_t bytes);
  void give_back(int device, uint64_t bytes);
  template <class Make>
  void* add(Block block, Make&& make);
  cudaMemPool_t pool_of(const DevicePtr& device);
  /// Gives back what the pool keeps unused; false when there is no pool.
  bool empty_pool(const DeviceEntry& device);
  [[nodiscard]] sdk::Failure none_left(const DeviceEntry& device, uint64_t bytes, const std::string& why) const;

  mutable std::mutex mutex_;
  std::map<uintptr_t, Block> blocks_;
  std::map<int, uint64_t> used_;
  std::map<int, Pool> pools_;
  uint64_t limit_ = 0;
  NcclResult (*window_alloc_)(void**, size_t) = nullptr;
  NcclResult (*window_free_)(void*) = nullptr;
};

}  // namespace pliant::cuda
