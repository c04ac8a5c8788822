// UsmMemory: the memory of all kinds of one instance, and who may touch what.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "devices/staged_work.hpp"
#include "pliant/sdk/accelerator.hpp"
#include "runtime.hpp"

namespace pliant::level_zero {

/// Pinned memory that is freed in time. Not counted as memory of the device.
class PinnedBlock {
 public:
  PinnedBlock(std::shared_ptr<Context> context, uint64_t bytes);
  ~PinnedBlock();
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(pointer_); }

 private:
  const std::shared_ptr<Context> context_;
  void* pointer_ = nullptr;
};

/// All calls may come from any thread.
class UsmMemory {
 public:
  UsmMemory() = default;
  /// Frees what was not freed.
  ~UsmMemory();
  UsmMemory(const UsmMemory&) = delete;
  UsmMemory& operator=(const UsmMemory&) = delete;

  /// `limit` bytes of each device's memory may be used; 0: all.
  void set_limit(uint64_t limit) { limit_ = limit; }
  void* alloc(const std::vector<DeviceEntry>& devices, int32_t device, sdk::Memory memory, uint64_t bytes);
  /// A pointer that is not of this instance is left alone.
  void free(void* pointer);
  /// Throws PLIANT_INVALID_ARGUMENT unless an allocation of PLIANT_MEMORY_EXCHANGE begins there.
  void require_exchange(int32_t device, const void* pointer) const;
  [[nodiscard]] sdk::MemoryInfo info(const DeviceEntry& entry, int32_t device) const;
  /// Throws PLIANT_INVALID_ARGUMENT when the range leaves its allocation. `what` names it in the message.
  [[nodiscard]] devices::Reach reach_of(const DeviceEntry& entry, const void* pointer, uint64_t bytes,
                                        const char* what) const;

 private:
  struct Block {
    void* pointer;
    uint64_t bytes;
    int32_t device;
    sdk::Memory memory;
    std::shared_ptr<Context> context;
  };
  [[nodiscard]] uint64_t total(const DeviceEntry& entry) const;
  /// Counts the bytes as used, unless that is more than there is.
  [[nodiscard]] bool reserve(const DeviceEntry& entry, int32_t device, uint64_t bytes);
  void give_back(int32_t device, uint64_t bytes);
  [[nodiscard]] sdk::Failure none_left(const DeviceEntry& entry, int32_t device, uint64_t bytes,
                                       const std::string& why) const;

  mutable std::mutex mutex_;
  std::map<uintptr_t, Block> blocks_;
  std::map<int32_t, uint64_t> used_;
  uint64_t limit_ = 0;
};

}  // namespace pliant::level_zero
