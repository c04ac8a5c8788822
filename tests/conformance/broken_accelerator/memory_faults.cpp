// Faults of memory.
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <set>

#include "faults.hpp"

namespace pliant::broken {
namespace {

/// Memory is aligned to 8 bytes.
struct AllocUnaligned : Honest {
  void* alloc(int32_t device, Memory memory, uint64_t bytes) override {
    constexpr uint64_t kHuge = uint64_t{1} << 40U;
    return static_cast<char*>(Device::alloc(device, memory, bytes < kHuge ? bytes + 8 : bytes)) + 8;
  }
  void free(int32_t device, Memory memory, void* pointer) override {
    Device::free(device, memory, static_cast<char*>(pointer) - 8);
  }
};

/// When there is no memory left, alloc gives less than was asked for.
struct ExhaustedSucceeds : Honest {
  void* alloc(int32_t device, Memory memory, uint64_t bytes) override {
    try {
      return Device::alloc(device, memory, bytes);
    } catch (const Failure&) {
      return Device::alloc(device, memory, 64);
    }
  }
};

/// When there is no memory left, alloc speaks of an internal error.
struct ExhaustedInternal : Honest {
  void* alloc(int32_t device, Memory memory, uint64_t bytes) override {
    try {
      return Device::alloc(device, memory, bytes);
    } catch (const Failure& failure) {
      throw Failure(PLIANT_INTERNAL, failure.what());
    }
  }
};

/// free keeps the memory.
struct FreeLeaks : Honest {
  void free(int32_t, Memory, void*) override {}
};

/// Freeing what is not, or no more, allocated ends the process.
struct FreeCrashes : Honest {
  void* alloc(int32_t device, Memory memory, uint64_t bytes) override {
    const std::lock_guard lock(mutex);
    return *live.insert(Device::alloc(device, memory, bytes)).first;
  }
  void free(int32_t device, Memory memory, void* pointer) override {
    const std::lock_guard lock(mutex);
    if (live.erase(pointer) == 0) std::abort();
    Device::free(device, memory, pointer);
  }
  std::mutex mutex;
  std::set<void*> live;
};

/// Large memory that was freed is handed out to everyone who asks.
struct ReuseShares : Honest {
  static constexpr uint64_t kLarge = 3 << 20U;
  void* alloc(int32_t device, Memory memory, uint64_t bytes) override {
    if (bytes != kLarge) return Device::alloc(device, memory, bytes);
    if (freed != nullptr) return freed;
    return large = Device::alloc(device, memory, bytes);
  }
  void free(int32_t, Memory, void* pointer) override {
    if (pointer == large) {
      freed = large;
      return;
    }
    Device::free(0, Memory::kDevice, pointer);
  }
  void* large = nullptr;
  void* freed = nullptr;
};

/// shared: 75 bytes lie in the piece before; empty: 0 bytes are refused; double: memory_info tells of twice the free
/// memory; constant: it tells the same whatever was taken; full: after one refusal all is refused; sum: what is too
/// much beside other memory is an internal error; pinned: a page of pinned memory cannot be written; unshared: shared
/// memory is claimed and cannot be written.
struct MemoryWrong : Honest {
  sdk::DeviceProperties device_properties(int32_t device) override {
    sdk::DeviceProperties made = Device::device_properties(device);
    if (way == "unshared") made.capabilities |= PLIANT_CAP_SHARED_MEMORY;
    return made;
  }
  void* alloc(int32_t device, Memory memory, uint64_t bytes) override {
    if (memory == Memory::kShared) {
      return ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (way == "shared" && bytes == 75 && last != nullptr) return last;
    if (way == "empty" && bytes == 0) throw Failure(PLIANT_INVALID_ARGUMENT, "nothing is wanted");
    if (was_full) throw Failure(PLIANT_RESOURCE_EXHAUSTED, "out of memory for good");
    if (way == "pinned" && memory == Memory::kPinned && bytes == kPage) {
      return ::mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    try {
      return last = Device::alloc(device, memory, bytes);
    } catch (const Failure&) {
      was_full = way == "full";
      if (way == "sum" && bytes <= memory_info(device).total_bytes) throw Failure(PLIANT_INTERNAL, "too much");
      throw;
    }
  }
  sdk::MemoryInfo memory_info(int32_t device) override {
    sdk::MemoryInfo made = Device::memory_info(device);
    if (way == "double") made.free_bytes *= 2;
    if (way == "constant") made.free_bytes = made.total_bytes;
    return made;
  }
  void* last = nullptr;
  std::atomic<bool> was_full{false};
};

/// page: of a page's alignment half is kept; leaks: what was aligned to a page is not freed; internal: what is too much
/// is an internal error.
struct AlignedWrong : Honest {
  void* alloc_aligned(int32_t device, Memory memory, uint64_t bytes, uint64_t alignment) override {
    try {
      const bool is_half = way == "page" && alignment == kPage && memory == Memory::kPinned;
      void* const made = Device::alloc_aligned(device, memory, is_half ? bytes + kPage / 2 : bytes, alignment);
      if (way == "leaks" && alignment == kPage) kept.insert(made);
      return is_half ? static_cast<std::byte*>(made) + kPage / 2 : made;
    } catch (const Failure& failure) {
      if (way == "internal") throw Failure(PLIANT_INTERNAL, failure.what());
      throw;
    }
  }
  void free(int32_t device, Memory memory, void* pointer) override {
    if (kept.count(pointer) == 0) Device::free(device, memory, pointer);
  }
  std::set<void*> kept;
};

}  // namespace

std::vector<Fault> memory_faults() {
  return {{"alloc-unaligned", {}, make<AllocUnaligned>},
          {"exhausted-succeeds", {}, make<ExhaustedSucceeds>},
          {"exhausted-internal", {}, make<ExhaustedInternal>},
          {"free-leaks", {}, make<FreeLeaks>},
          {"free-crashes", {}, make<FreeCrashes>},
          {"reuse-shares", {}, make<ReuseShares>},
          {"memory-wrong",
           {"shared", "empty", "double", "constant", "full", "sum", "pinned", "unshared"},
           make<MemoryWrong>},
          {"aligned-wrong", {"page", "leaks", "internal"}, make<AlignedWrong>}};
}

}  // namespace pliant::broken
