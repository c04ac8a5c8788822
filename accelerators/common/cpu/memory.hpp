// MemoryPool: aligned memory with a limit, huge pages where they help.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "pliant/sdk/accelerator.hpp"

namespace pliant::accelerator {

class MemoryPool {
 public:
  MemoryPool() = default;
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  void set_limit(uint64_t bytes) { limit_ = bytes; }
  [[nodiscard]] uint64_t limit() const { return limit_; }
  [[nodiscard]] uint64_t left() const;
  /// At a multiple of `alignment`, a power of two from 64 on; from 2 MiB on 2 MiB aligned. Throws
  /// PLIANT_RESOURCE_EXHAUSTED past the limit or when there is none.
  void* alloc(uint64_t bytes, sdk::Memory kind = sdk::Memory::kDevice, uint64_t alignment = sdk::kLeastAlignment);
  struct Block {
    const void* begin;
    uint64_t bytes;
    sdk::Memory kind;
  };
  /// The block that the pointer leads into; empty where there is none.
  [[nodiscard]] std::optional<Block> block_of(const void* pointer) const;
  /// A pointer that is not of this pool is left alone.
  void free(void* pointer);
  /// Counts memory that comes from elsewhere. Throws PLIANT_RESOURCE_EXHAUSTED past the limit.
  void reserve(uint64_t bytes);
  void give_back(uint64_t bytes);

 private:
  /// Under the mutex.
  void require_left(uint64_t bytes) const;

  mutable std::mutex mutex_;
  std::map<const void*, Block> blocks_;
  uint64_t limit_ = 0;
  uint64_t used_ = 0;
};

}  // namespace pliant::accelerator
