// Accounts for and hands out memory.
#include "common/cpu/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

using sdk::Failure;

namespace {
constexpr uint64_t kHugePage = uint64_t{2} << 20U;
}  // namespace

MemoryPool::~MemoryPool() {
  for (const auto& [pointer, block] : blocks_) std::free(const_cast<void*>(pointer));
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

void* MemoryPool::alloc(uint64_t bytes, sdk::Memory kind, uint64_t alignment) {
  if (bytes >= kHugePage) alignment = kHugePage;
  const std::lock_guard lock(mutex_);
  require_left(bytes);
  const uint64_t rounded = std::max(alignment, (bytes + alignment - 1) / alignment * alignment);
  void* pointer = std::aligned_alloc(alignment, rounded);
  if (pointer == nullptr) {
    throw Failure(PLIANT_RESOURCE_EXHAUSTED, "out of memory: the system refused " + std::to_string(bytes) + " bytes");
  }
  if (alignment == kHugePage) ::madvise(pointer, rounded, MADV_HUGEPAGE);
  try {
    blocks_.emplace(pointer, Block{pointer, bytes, kind});
  } catch (...) {
    std::free(pointer);
    throw;
  }
  used_ += bytes;
  return pointer;
}

void MemoryPool::free(void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(pointer);
  if (found == blocks_.end()) return;
  used_ -= found->second.bytes;
  blocks_.erase(found);
  std::free(pointer);
}

std::optional<MemoryPool::Block> MemoryPool::block_of(const void* pointer) const {
  const std::lock_guard lock(mutex_);
  auto found = blocks_.upper_bound(pointer);
  if (found == blocks_.begin()) return std::nullopt;
  const Block& block = (--found)->second;
  const uint64_t offset = reinterpret_cast<uintptr_t>(pointer) - reinterpret_cast<uintptr_t>(block.begin);
  if (offset >= std::max<uint64_t>(block.bytes, 1)) return std::nullopt;
  return block;
}

}  // namespace pliant::accelerator
