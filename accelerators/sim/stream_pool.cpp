// Hands memory from stream to stream.
#include "stream_pool.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

void* StreamPool::reuse(uint64_t bytes, const Stream* of, Stream& stream) {
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& one) {
    return one.mark != nullptr && one.bytes == bytes && (of == nullptr || one.stream == of);
  });
  if (found == kept_.end()) return nullptr;
  // Also where the stream is the same: another one may have its address by now.
  stream.wait_for(found->mark);
  void* const pointer = found->pointer;
  kept_bytes_ -= bytes;
  kept_.erase(found);
  return pointer;
}

void* StreamPool::alloc(uint64_t bytes, Stream& stream, const Wait& wait, bool& is_new) {
  const std::lock_guard lock(mutex_);
  is_new = false;
  void* pointer = reuse(bytes, &stream, stream);
  if (pointer == nullptr && bytes > memory_.left()) {
    pointer = reuse(bytes, nullptr, stream);
    for (auto one = kept_.begin(); pointer == nullptr && bytes > memory_.left() && one != kept_.end();) {
      const auto next = std::next(one);
      if (one->mark != nullptr) {
        wait(*one->mark);
        memory_.free(one->pointer);
        kept_bytes_ -= one->bytes;
        kept_.erase(one);
      }
      one = next;
    }
  }
  if (pointer == nullptr) {
    pointer = memory_.alloc(bytes);
    is_new = true;
  }
  taken_.emplace(pointer, bytes);
  return pointer;
}

void StreamPool::free(void* pointer, Stream& stream) {
  const std::lock_guard lock(mutex_);
  const auto found = taken_.find(pointer);
  if (found == taken_.end()) {
    throw sdk::Failure(PLIANT_INVALID_ARGUMENT, "this memory was not allocated in stream order, or was freed before");
  }
  Kept one{pointer, found->second, &stream, nullptr};
  try {
    one.mark = stream.mark();
  } catch (const sdk::Failure&) {  // the device is lost
  }
  kept_bytes_ += one.bytes;
  kept_.push_back(std::move(one));
  taken_.erase(found);
}

void StreamPool::trim(uint64_t keep_bytes) {
  const std::lock_guard lock(mutex_);
  for (auto one = kept_.begin(); one != kept_.end() && kept_bytes_ > keep_bytes;) {
    const auto next = std::next(one);
    if (one->mark != nullptr && one->mark->reached()) {
      memory_.free(one->pointer);
      kept_bytes_ -= one->bytes;
      kept_.erase(one);
    }
    one = next;
  }
}

}  // namespace pliant::accelerator
