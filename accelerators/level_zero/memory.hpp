// UsmMemory: the memory of all kinds of one instance, and who may touch what.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/devices/memory_book.hpp"
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

/// Frees, when it goes, what was not freed. All calls may come from any thread.
class UsmMemory {
 public:
  /// `limit` bytes of each device's memory may be used; 0: all.
  void set_limit(uint64_t limit) { book_.set_limit(limit); }
  /// At a multiple of `alignment`, a power of two.
  void* alloc(const std::vector<DeviceEntry>& devices, int32_t device, sdk::Memory memory, uint64_t bytes,
              uint64_t alignment = sdk::kLeastAlignment);
  /// A pointer that is not of this instance is left alone.
  void free(void* pointer);
  /// Pins memory of the program for all devices; `devices` are all of the instance.
  void register_host(const std::vector<DeviceEntry>& devices, void* pointer, uint64_t bytes);
  /// A pointer that was not registered is left alone.
  void unregister_host(void* pointer);
  /// Throws PLIANT_INVALID_ARGUMENT unless an allocation of PLIANT_MEMORY_EXCHANGE begins there.
  void require_exchange(int32_t device, const void* pointer) const;
  [[nodiscard]] sdk::MemoryInfo info(const DeviceEntry& entry, int32_t device) const {
    return book_.info({device, entry.memory_bytes});
  }
  /// Throws PLIANT_INVALID_ARGUMENT when the range leaves its allocation. `what` names it in the message.
  [[nodiscard]] devices::Reach reach_of(const DeviceEntry& entry, const void* pointer, uint64_t bytes,
                                        const char* what) const;
  /// Of memory of this instance, and else of what the drivers know. `devices` are all.
  [[nodiscard]] std::optional<sdk::PointerInfo> pointer_info(const std::vector<DeviceEntry>& devices,
                                                             const void* pointer) const;

 private:
  devices::MemoryBook book_;
};

}  // namespace pliant::level_zero
