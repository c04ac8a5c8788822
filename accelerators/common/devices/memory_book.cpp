// Counts memory, and looks pointers up.
#include "common/devices/memory_book.hpp"

#include <algorithm>
#include <cstddef>

namespace pliant::devices {

using sdk::Failure;

MemoryBook::~MemoryBook() {
  for (const auto& [address, block] : blocks_) block.give_back();
}

sdk::MemoryInfo MemoryBook::info(const DeviceMemory& device) const {
  const std::lock_guard lock(mutex_);
  return info_locked(device);
}

sdk::MemoryInfo MemoryBook::info_locked(const DeviceMemory& device) const {
  const uint64_t total = is_limited() ? std::min(limit_, device.bytes) : device.bytes;
  const auto found = used_.find(device.index);
  const uint64_t used = found == used_.end() ? 0 : found->second;
  return {total - std::min(used, total), total};
}

Failure MemoryBook::none_left(uint64_t bytes, const sdk::MemoryInfo& now, const std::string& why) const {
  return {PLIANT_RESOURCE_EXHAUSTED, "out of device memory: " + std::to_string(bytes) + " bytes wanted, " +
                                         std::to_string(now.free_bytes) + " of " + std::to_string(now.total_bytes) +
                                         " left" + why + "; free buffers" +
                                         (is_limited() ? " or raise memory_bytes" : "")};
}

bool MemoryBook::reserve(const Block& block) {
  const std::lock_guard lock(mutex_);
  // Without a limit the driver decides: it may have more than it says, and others may have taken some.
  if (is_limited() && block.counted > info_locked(block.device).free_bytes) return false;
  used_[block.device.index] += block.counted;
  return true;
}

void MemoryBook::give_back(const Block& block) {
  const std::lock_guard lock(mutex_);
  used_[block.device.index] -= block.counted;
}

void* MemoryBook::add(Block block, const Make& make, const Info& info) {
  if (!reserve(block)) throw none_left(block.counted, info(), "");
  try {
    block.base = make();  // slow, so not under the lock
    const uint64_t past = reinterpret_cast<uintptr_t>(block.base) % block.alignment;
    block.pointer = static_cast<std::byte*>(block.base) + (past == 0 ? 0 : block.alignment - past);
    const std::lock_guard lock(mutex_);
    blocks_.emplace(reinterpret_cast<uintptr_t>(block.pointer), block);
    return block.pointer;
  } catch (const Failure& failure) {
    give_back(block);
    if (block.counted == 0 || failure.status() != PLIANT_RESOURCE_EXHAUSTED) throw;
    throw none_left(block.counted, info(), " (" + std::string(failure.what()) + ")");
  } catch (...) {
    if (block.base != nullptr) block.give_back();
    give_back(block);
    throw;
  }
}

std::optional<Block> MemoryBook::take(const void* pointer, Origin origin) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == blocks_.end() || found->second.origin != origin) return std::nullopt;
  std::optional<Block> taken = std::move(found->second);
  blocks_.erase(found);
  used_[taken->device.index] -= taken->counted;
  return taken;
}

std::optional<MemoryBook::Place> MemoryBook::place_of(const void* pointer) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const std::lock_guard lock(mutex_);
  auto found = blocks_.upper_bound(address);
  if (found == blocks_.begin()) return std::nullopt;
  --found;
  const uint64_t offset = address - found->first;
  const Block& block = found->second;
  if (offset >= std::max<uint64_t>(block.bytes, 1)) return std::nullopt;
  return Place{offset, block.bytes, block.memory, block.device.index};
}

bool MemoryBook::has_part_of(const void* pointer, uint64_t bytes) const {
  if (place_of(pointer)) return true;
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  const std::lock_guard lock(mutex_);
  const auto next = blocks_.lower_bound(begin);
  return next != blocks_.end() && next->first - begin < bytes;
}

std::optional<sdk::PointerInfo> MemoryBook::pointer_info(const void* pointer) const {
  const std::optional<Place> place = place_of(pointer);
  if (!place) return std::nullopt;
  const int32_t device = place->memory == sdk::Memory::kPinned ? -1 : place->device;
  return sdk::PointerInfo{place->memory, device, static_cast<const std::byte*>(pointer) - place->offset, place->bytes};
}

bool MemoryBook::begins(const void* pointer, sdk::Memory memory, int32_t device) const {
  const std::optional<Place> place = place_of(pointer);
  return place && place->offset == 0 && place->memory == memory && place->device == device;
}

std::optional<Reach> MemoryBook::reach_of(const void* pointer, uint64_t bytes, const char* what) const {
  const std::optional<Place> place = place_of(pointer);
  if (!place) return std::nullopt;
  if (bytes > place->bytes - place->offset) {
    throw Failure(PLIANT_INVALID_ARGUMENT, std::string(what) + " exceeds its buffer: " + std::to_string(bytes) +
                                               " bytes from byte " + std::to_string(place->offset) +
                                               " of a buffer of " + std::to_string(place->bytes));
  }
  return Reach{true, place->memory == sdk::Memory::kPinned || place->memory == sdk::Memory::kShared};
}

}  // namespace pliant::devices
