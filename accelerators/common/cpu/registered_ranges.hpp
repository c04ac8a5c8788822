// RegisteredRanges: memory of the program that counts as pinned.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "common/cpu/memory.hpp"

namespace pliant::accelerator {

/// All calls may come from any thread.
class RegisteredRanges {
 public:
  /// Throws PLIANT_INVALID_ARGUMENT where a part of it is registered already.
  void add(const void* pointer, uint64_t bytes);
  /// The range that begins there; a pointer at which none does is left alone.
  void remove(const void* pointer);
  /// The range that the pointer leads into; empty where there is none.
  [[nodiscard]] std::optional<MemoryPool::Block> block_of(const void* pointer) const;

 private:
  mutable std::mutex mutex_;
  std::map<uintptr_t, uint64_t> ranges_;  ///< bytes by the first address
};

}  // namespace pliant::accelerator
