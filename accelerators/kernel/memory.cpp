// Accounts for and hands out memory.
#include "kernel/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

using sdk::Failure;

namespace {
constexpr uint64_t kLine = 64;
constexpr uint64_t kHugePage = uint64_t{2} << 20U;
}  // namespace

MemoryPool::~MemoryPool() {
  for (const auto& [pointer, bytes] : sizes_) std::free(pointer);
}

uint64_t MemoryPool::left() const {
  const std::lock_guard lock(mutex_);
  return limit_ - used_;
}

void MemoryPool::require_left(uint64_t bytes) const {
  if (bytes > limit_ - used_) {
    throw Failure(PLIANT_RESOURCE_EXHAUSTED, "out of device memory: " + std::to_string(bytes) + " bytes wanted, " +
                                                 std::to_string(limit_ - used_) + " of " + std::to_string(limit_) +
                                                 " left; free buffers or raise memory_bytes");
  }
}

void MemoryPool::reserve(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  require_left(bytes);
  used_ += bytes;
}

void MemoryPool::give_back(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
}

void* MemoryPool::alloc(uint64_t bytes) {
  const uint64_t alignment = bytes >= kHugePage ? kHugePage : kLine;
  const std::lock_guard lock(mutex_);
  require_left(bytes);
  const uint64_t rounded = std::max(alignment, (bytes + alignment - 1) / alignment * alignment);
  void* pointer = std::aligned_alloc(alignment, rounded);
  if (pointer == nullptr) {
    throw Failure(PLIANT_RESOURCE_EXHAUSTED, "out of memory: the system refused " + std::to_string(bytes) + " bytes");
  }
  if (alignment == kHugePage) ::madvise(pointer, rounded, MADV_HUGEPAGE);
  try {
    sizes_.emplace(pointer, bytes);
  } catch (...) {
    std::free(pointer);
    throw;
  }
  used_ += bytes;
  return pointer;
}

void MemoryPool::free(void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto found = sizes_.find(pointer);
  if (found == sizes_.end()) return;
  used_ -= found->second;
  sizes_.erase(found);
  std::free(pointer);
}

}  // namespace pliant::accelerator
