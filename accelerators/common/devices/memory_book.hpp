// MemoryBook: the memory that an instance has of its driver: where it lies, and how much of each device it takes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "common/devices/staged_work.hpp"
#include "pliant/sdk/accelerator.hpp"

namespace pliant::devices {

/// The memory of one device.
struct DeviceMemory {
  int32_t index = 0;
  uint64_t bytes = 0;
};

/// Where a block comes from, and what it goes back by.
enum class Origin {
  kAllocated,
  kPooled,     ///< in stream order
  kRegistered  ///< the program's own
};

/// One allocation.
struct Block {
  void* pointer = nullptr;
  uint64_t bytes = 0;      ///< that may be used
  uint64_t alignment = 1;  ///< of the pointer, a power of two; the driver gives alignment - 1 bytes more for it
  uint64_t counted = 0;    ///< bytes of the device that it takes
  DeviceMemory device = {};
  sdk::Memory memory = sdk::Memory::kDevice;
  Origin origin = Origin::kAllocated;
  void* base = nullptr;  ///< what the driver gave; `pointer` lies in it
  /// Gives `base` back to the driver. Owns what it needs, and does nothing in a process that the driver is not of.
  std::function<void(void* base)> free = {};

  void give_back() const { free(base); }
};

/// All calls may come from any thread, once the limit is set.
class MemoryBook {
 public:
  using Make = std::function<void*()>;
  using Info = std::function<sdk::MemoryInfo()>;

  MemoryBook() = default;
  /// Frees what was not freed.
  ~MemoryBook();
  MemoryBook(const MemoryBook&) = delete;
  MemoryBook& operator=(const MemoryBook&) = delete;

  /// `limit` bytes of each device's memory may be used; 0: all.
  void set_limit(uint64_t limit) { limit_ = limit; }
  [[nodiscard]] bool is_limited() const { return limit_ != 0; }
  /// Bytes that may be used at most, and those of them that are left.
  [[nodiscard]] sdk::MemoryInfo info(const DeviceMemory& device) const;

  /// `make` gives the base of the block or throws; what it gave is known when this returns. Throws
  /// PLIANT_RESOURCE_EXHAUSTED in the words of none_left, with what `info` says, when the limit or `make` has no more
  /// of the device's memory.
  void* add(Block block, const Make& make, const Info& info);
  /// `why` follows what is left.
  [[nodiscard]] sdk::Failure none_left(uint64_t bytes, const sdk::MemoryInfo& now, const std::string& why) const;
  /// The block that begins there, which is no longer in the book; it is not freed. Empty when there is none, or only
  /// one of another origin.
  [[nodiscard]] std::optional<Block> take(const void* pointer, Origin origin);

  /// Where a pointer lies in this memory.
  struct Place {
    uint64_t offset;  ///< in its block
    uint64_t bytes;   ///< of the block
    sdk::Memory memory;
    int32_t device;
  };
  [[nodiscard]] std::optional<Place> place_of(const void* pointer) const;
  /// Some of the range, which is not empty, lies in this memory.
  [[nodiscard]] bool has_part_of(const void* pointer, uint64_t bytes) const;
  /// place_of in the words of the SDK.
  [[nodiscard]] std::optional<sdk::PointerInfo> pointer_info(const void* pointer) const;
  /// `pointer` begins a block of that kind and device.
  [[nodiscard]] bool begins(const void* pointer, sdk::Memory memory, int32_t device) const;
  /// Empty for other memory. Throws PLIANT_INVALID_ARGUMENT when the range leaves its block. `what` names it in the
  /// message.
  [[nodiscard]] std::optional<Reach> reach_of(const void* pointer, uint64_t bytes, const char* what) const;

 private:
  /// Under the mutex.
  [[nodiscard]] sdk::MemoryInfo info_locked(const DeviceMemory& device) const;
  /// Counts the block's bytes as used, unless that is more than the limit leaves.
  [[nodiscard]] bool reserve(const Block& block);
  void give_back(const Block& block);

  mutable std::mutex mutex_;
  std::map<uintptr_t, Block> blocks_;
  std::map<int32_t, uint64_t> used_;
  uint64_t limit_ = 0;
};

}  // namespace pliant::devices
