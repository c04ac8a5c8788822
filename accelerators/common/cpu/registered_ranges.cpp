// Keeps ranges that do not overlap.
#include "common/cpu/registered_ranges.hpp"

#include <iterator>
#include <string>

#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

void RegisteredRanges::add(const void* pointer, uint64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  const std::lock_guard lock(mutex_);
  const auto next = ranges_.lower_bound(begin);
  bool is_taken = next != ranges_.end() && next->first - begin < bytes;
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    is_taken = is_taken || begin - before->first < before->second;
  }
  sdk::require(!is_taken, "a part of these " + std::to_string(bytes) +
                              " bytes is registered already; unregister that first, or register all at once");
  ranges_.emplace_hint(next, begin, bytes);
}

void RegisteredRanges::remove(const void* pointer) {
  const std::lock_guard lock(mutex_);
  ranges_.erase(reinterpret_cast<uintptr_t>(pointer));
}

std::optional<MemoryPool::Block> RegisteredRanges::block_of(const void* pointer) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const std::lock_guard lock(mutex_);
  auto found = ranges_.upper_bound(address);
  if (found == ranges_.begin()) return std::nullopt;
  --found;
  if (address - found->first >= found->second) return std::nullopt;
  const auto* const begin = static_cast<const std::byte*>(pointer) - (address - found->first);
  return MemoryPool::Block{begin, found->second, sdk::Memory::kPinned};
}

}  // namespace pliant::accelerator
