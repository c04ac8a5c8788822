// Takes memory for a stream and keeps what is given back until work may use it again.
#include "accelerator/stream_memory.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "pliant/sdk/failure.hpp"

namespace pliant::detail {

namespace {

/// The next multiple of an eighth of the power of two below, at least of 512.
uint64_t class_of(uint64_t bytes) {
  constexpr uint64_t kLeast = 512;
  if (bytes > uint64_t{1} << 62U) return bytes;
  const uint64_t step = std::max(kLeast, std::bit_floor(bytes) / 8);
  return std::max(kLeast, (bytes + step - 1) / step * step);
}

}  // namespace

StreamMemory::StreamMemory(const plugin::Instance& device) : slots_(device.table<pliant_accelerator>(), device.self()) {
  const auto* const own = or_throw(device.extension<pliant_stream_memory>(PLIANT_STREAM_MEMORY));
  if (own != nullptr) own_ = {*own, device.self()};
}

StreamMemory::~StreamMemory() {
  for (auto& [device, shelf] : shelves_) shrink(shelf, 0, true);
}

void* StreamMemory::alloc(int32_t device, uint64_t bytes, pliant_stream* stream) {
  if (own_) {
    void* pointer = nullptr;
    own_.must(&pliant_stream_memory::alloc_async, device, bytes, stream, &pointer);
    return pointer;
  }
  const uint64_t size = class_of(bytes);
  const std::lock_guard lock(mutex_);
  Shelf& shelf = shelves_[device];
  sdk::OwnedMemory memory = reuse(shelf, size, stream, false);
  const auto make = [&] { return sdk::OwnedMemory(slots_, device, PLIANT_MEMORY_DEVICE, size); };
  try {
    if (memory.get() == nullptr) memory = make();
  } catch (const sdk::Failure& failure) {
    if (failure.status() != PLIANT_RESOURCE_EXHAUSTED) throw;
    memory = reuse(shelf, size, stream, true);
  }
  if (memory.get() == nullptr) {
    shrink(shelf, 0, true);
    memory = make();
  }
  void* const pointer = memory.get();
  shelf.take(pointer, {std::move(memory), size});
  return pointer;
}

void StreamMemory::free(int32_t device, void* pointer, pliant_stream* stream) {
  if (own_) return own_.must(&pliant_stream_memory::free_async, device, pointer, stream);
  if (pointer == nullptr) return;
  const std::lock_guard lock(mutex_);
  Shelf& shelf = shelves_[device];
  const auto found = shelf.taken.find(pointer);
  if (found == shelf.taken.end()) {
    throw sdk::Failure(PLIANT_INVALID_ARGUMENT, "this memory was not allocated in stream order, or was freed before");
  }
  std::vector<Block>& blocks = shelf.by_size[found->second.bytes];
  blocks.push_back({{}, stream, take_event(device, shelf)});
  try {
    slots_.must(&pliant_accelerator::event_record, blocks.back().event, stream);
  } catch (...) {
    blocks.pop_back();
    throw;
  }
  blocks.back().memory = std::move(found->second.memory);
  shelf.kept_bytes += found->second.bytes;
  shelf.spare_nodes.push_back(shelf.taken.extract(found));
}

void StreamMemory::Shelf::take(void* pointer, Taken what) {
  if (spare_nodes.empty()) {
    taken.emplace(pointer, std::move(what));
    return;
  }
  auto node = std::move(spare_nodes.back());
  spare_nodes.pop_back();
  node.key() = pointer;
  node.mapped() = std::move(what);
  taken.insert(std::move(node));
}

void StreamMemory::trim(int32_t device, uint64_t keep_bytes) {
  if (own_) return own_.must(&pliant_stream_memory::trim, device, keep_bytes);
  const std::lock_guard lock(mutex_);
  shrink(shelves_[device], keep_bytes, false);
}

void StreamMemory::forget(const pliant_stream* stream) {
  const std::lock_guard lock(mutex_);
  for (auto& [device, shelf] : shelves_) {
    for (auto& [bytes, blocks] : shelf.by_size) {
      for (Block& block : blocks) {
        if (block.stream == stream) block.stream = nullptr;
      }
    }
  }
}

sdk::OwnedMemory StreamMemory::reuse(Shelf& shelf, uint64_t bytes, pliant_stream* stream, bool may_wait) {
  const auto found = shelf.by_size.find(bytes);
  if (found == shelf.by_size.end()) return {};
  std::vector<Block>& blocks = found->second;
  auto chosen = blocks.end();
  const auto last =
      std::find_if(blocks.rbegin(), blocks.rend(), [&](const Block& one) { return one.stream == stream; });
  if (last != blocks.rend()) {
    chosen = std::prev(last.base());  // the last that was given back is the warmest, and leaves no gap behind
  } else {
    chosen = std::find_if(blocks.begin(), blocks.end(), [this](const Block& one) { return is_idle(one); });
  }
  if (chosen == blocks.end()) {
    if (!may_wait || blocks.empty()) return {};
    chosen = blocks.begin();
    slots_.must(&pliant_accelerator::stream_wait_event, stream, chosen->event);
  }
  sdk::OwnedMemory memory = std::move(chosen->memory);
  shelf.events.push_back(std::move(chosen->event));
  blocks.erase(chosen);
  shelf.kept_bytes -= bytes;
  return memory;
}

bool StreamMemory::is_idle(const Block& block) const {
  if (block.stream == nullptr) return true;
  int32_t done = 0;
  return slots_.ask(&pliant_accelerator::event_query, block.event, &done).ok() && done != 0;
}

void StreamMemory::shrink(Shelf& shelf, uint64_t keep_bytes, bool wait) {
  for (auto at = shelf.by_size.rbegin(); at != shelf.by_size.rend() && shelf.kept_bytes > keep_bytes; ++at) {
    auto& [bytes, blocks] = *at;
    std::erase_if(blocks, [&, size = bytes](Block& block) {
      if (shelf.kept_bytes <= keep_bytes || (!wait && !is_idle(block))) return false;
      shelf.kept_bytes -= size;
      // A failure of the work before is told by the stream; its memory is free all the same.
      if (block.stream != nullptr) (void)slots_.ask(&pliant_accelerator::event_synchronize, block.event);
      block.memory.reset();
      return true;
    });
  }
}

sdk::OwnedEvent StreamMemory::take_event(int32_t device, Shelf& shelf) {
  if (shelf.events.empty()) return sdk::make_event(slots_, device);
  sdk::OwnedEvent event = std::move(shelf.events.back());
  shelf.events.pop_back();
  return event;
}

}  // namespace pliant::detail
