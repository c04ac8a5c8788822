// StreamPool: memory of the simulator in stream order. Which memory serves whom depends on the calls alone, and not on
// how far the work has come, so that virtual times do not either.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "common/cpu/memory.hpp"
#include "common/cpu/stream.hpp"

namespace pliant::accelerator {

/// Thread-safe. What was given back serves its own stream again at once. Another stream gets it only when the device is
/// full, and waits for the work that used it. Kept memory goes by its size.
class StreamPool {
 public:
  /// Waits until a mark is reached, on the thread that calls.
  using Wait = std::function<void(const Mark&)>;
  /// `memory` lives longer than this.
  explicit StreamPool(MemoryPool& memory) : memory_(memory) {}

  /// Throws PLIANT_RESOURCE_EXHAUSTED when nothing is left that could be waited for. `wait` is called for what goes
  /// back to the device first. Sets `is_new` when the device was asked.
  void* alloc(uint64_t bytes, Stream& stream, const Wait& wait, bool& is_new);
  /// Throws PLIANT_INVALID_ARGUMENT for what alloc did not give, or was given back.
  void free(void* pointer, Stream& stream);
  /// What no work uses goes back to the device, until no more than keep_bytes are kept.
  void trim(uint64_t keep_bytes);

 private:
  struct Kept {
    void* pointer = nullptr;
    uint64_t bytes = 0;
    const Stream* stream = nullptr;
    std::shared_ptr<Mark> mark;  ///< of the work before; NULL: it cannot be told any more, and the memory stays
  };
  /// Under the mutex. The oldest of this size that is of `stream` (NULL: of any); NULL when there is none.
  void* reuse(uint64_t bytes, const Stream* of, Stream& stream);

  MemoryPool& memory_;
  std::mutex mutex_;
  std::unordered_map<void*, uint64_t> taken_;  ///< bytes of each
  std::list<Kept> kept_;                       ///< the oldest first
  uint64_t kept_bytes_ = 0;
};

}  // namespace pliant::accelerator
