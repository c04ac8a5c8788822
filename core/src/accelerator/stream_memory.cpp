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

StreamMemory::StreamMemory(const plugin::Instance& device)
    : device_(device),
      slots_(device.table<pliant_accelerator>()),
      own_(device.extension<pliant_stream_memory>(PLIANT_STREAM_MEMORY)) {}

StreamMemory::~StreamMemory() {
  for (auto& [device, shelf] : shelves_) {
    shrink(device, shelf, 0, true);
    for (const auto& [pointer, bytes] : shelf.taken) slots_.free(device_.self(), device, PLIANT_MEMORY_DEVICE, pointer);
    for (pliant_event* const event : shelf.events) slots_.event_destroy(device_.self(), event);
  }
}

void* StreamMemory::alloc(int32_t device, uint64_t bytes, pliant_stream* stream) {
  void* pointer = nullptr;
  if (own_ != nullptr) {
    must(own_->alloc_async, device, bytes, stream, &pointer);
    return pointer;
  }
  const uint64_t size = class_of(bytes);
  const std::lock_guard lock(mutex_);
  Shelf& shelf = shelves_[device];
  pointer = reuse(shelf, size, stream, false);
  pliant_error error;
  int32_t status = PLIANT_OK;
  const auto ask = [&] {
    if (pointer == nullptr) status = call(error, slots_.alloc, device, PLIANT_MEMORY_DEVICE, size, &pointer);
    return status == PLIANT_OK;
  };
  if (!ask() && status == PLIANT_RESOURCE_EXHAUSTED) {
    pointer = reuse(shelf, size, stream, true);
    if (!ask()) {
      shrink(device, shelf, 0, true);
      ask();
    }
  }
  if (pointer == nullptr) fail(status, error);
  shelf.taken.emplace(pointer, size);
  return pointer;
}

void StreamMemory::free(int32_t device, void* pointer, pliant_stream* stream) {
  if (own_ != nullptr) return must(own_->free_async, device, pointer, stream);
  if (pointer == nullptr) return;
  const std::lock_guard lock(mutex_);
  Shelf& shelf = shelves_[device];
  const auto found = shelf.taken.find(pointer);
  if (found == shelf.taken.end()) {
    throw sdk::Failure(PLIANT_INVALID_ARGUMENT, "this memory was not taken in stream order, or was given back before");
  }
  const Block block{pointer, stream, make_event(device, shelf)};
  try {
    must(slots_.event_record, block.event, stream);
    shelf.by_size[found->second].push_back(block);
  } catch (...) {
    shelf.events.push_back(block.event);
    throw;
  }
  shelf.kept_bytes += found->second;
  shelf.taken.erase(found);
}

void StreamMemory::trim(int32_t device, uint64_t keep_bytes) {
  if (own_ != nullptr) return must(own_->trim, device, keep_bytes);
  const std::lock_guard lock(mutex_);
  shrink(device, shelves_[device], keep_bytes, false);
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

void* StreamMemory::reuse(Shelf& shelf, uint64_t bytes, pliant_stream* stream, bool may_wait) {
  const auto found = shelf.by_size.find(bytes);
  if (found == shelf.by_size.end()) return nullptr;
  std::vector<Block>& blocks = found->second;
  auto chosen = std::find_if(blocks.begin(), blocks.end(), [&](const Block& one) { return one.stream == stream; });
  if (chosen == blocks.end()) {
    chosen = std::find_if(blocks.begin(), blocks.end(), [this](const Block& one) { return is_idle(one); });
  }
  if (chosen == blocks.end()) {
    if (!may_wait || blocks.empty()) return nullptr;
    chosen = blocks.begin();
    must(slots_.stream_wait_event, stream, chosen->event);
  }
  const Block block = *chosen;
  blocks.erase(chosen);
  shelf.kept_bytes -= bytes;
  shelf.events.push_back(block.event);
  return block.pointer;
}

bool StreamMemory::is_idle(const Block& block) const {
  if (block.stream == nullptr) return true;
  pliant_error error;
  int32_t done = 0;
  return call(error, slots_.event_query, block.event, &done) == PLIANT_OK && done != 0;
}

void StreamMemory::shrink(int32_t device, Shelf& shelf, uint64_t keep_bytes, bool wait) {
  for (auto at = shelf.by_size.rbegin(); at != shelf.by_size.rend() && shelf.kept_bytes > keep_bytes; ++at) {
    auto& [bytes, blocks] = *at;
    std::erase_if(blocks, [&, size = bytes](const Block& block) {
      if (shelf.kept_bytes <= keep_bytes || (!wait && !is_idle(block))) return false;
      shelf.kept_bytes -= size;
      drop(device, block);
      return true;
    });
  }
}

void StreamMemory::drop(int32_t device, const Block& block) {
  pliant_error error;
  // A failure of the work before is told by the stream; its memory is free all the same.
  if (block.stream != nullptr) (void)call(error, slots_.event_synchronize, block.event);
  slots_.free(device_.self(), device, PLIANT_MEMORY_DEVICE, block.pointer);
  slots_.event_destroy(device_.self(), block.event);
}

pliant_event* StreamMemory::make_event(int32_t device, Shelf& shelf) {
  if (!shelf.events.empty()) {
    pliant_event* const event = shelf.events.back();
    shelf.events.pop_back();
    return event;
  }
  pliant_event* event = nullptr;
  must(slots_.event_create, device, uint32_t{0}, &event);
  return event;
}

void StreamMemory::fail(int32_t status, const pliant_error& error) {
  throw sdk::Failure(status, std::string(error.message));
}

}  // namespace pliant::detail
