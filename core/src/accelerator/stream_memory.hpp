// StreamMemory: memory of a device in stream order, by its plugin or, where that has none, by alloc, free and events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pliant/abi/stream_memory.h"
#include "plugin/plugin.hpp"

namespace pliant::detail {

/// Thread-safe. Throws sdk::Failure.
///
/// Without the extension, memory that was given back is kept by size class, with an event that tells when the work
/// before has run. It serves again at once on the stream that gave it back, on any stream once the event is reached,
/// and, before the device is said to be full, on a stream that waits for the event. A class spans an eighth, so that
/// at most a ninth of a block is not used. alloc and free take O(log classes), and O(kept blocks of the class) where
/// many streams share it.
class StreamMemory {
 public:
  /// `device` lives longer than this, and every stream ends before.
  explicit StreamMemory(const plugin::Instance& device);
  ~StreamMemory();
  StreamMemory(const StreamMemory&) = delete;
  StreamMemory& operator=(const StreamMemory&) = delete;

  void* alloc(int32_t device, uint64_t bytes, pliant_stream* stream);
  void free(int32_t device, void* pointer, pliant_stream* stream);
  void trim(int32_t device, uint64_t keep_bytes);
  /// `stream` was destroyed, and so all its work has run.
  void forget(const pliant_stream* stream);

 private:
  struct Block {
    void* pointer = nullptr;
    pliant_stream* stream = nullptr;  ///< NULL: no work uses it
    pliant_event* event = nullptr;    ///< reached when none does
  };
  /// Of one device.
  struct Shelf {
    std::unordered_map<void*, uint64_t> taken;       ///< bytes of each
    std::map<uint64_t, std::vector<Block>> by_size;  ///< given back
    uint64_t kept_bytes = 0;
    std::vector<pliant_event*> events;  ///< not in use
  };

  /// Kept memory of this size that work on `stream` may use now; NULL when there is none. `may_wait`: the stream waits
  /// for it.
  void* reuse(Shelf& shelf, uint64_t bytes, pliant_stream* stream, bool may_wait);
  [[nodiscard]] bool is_idle(const Block& block) const;
  /// Frees kept memory down to keep_bytes; `wait`: also what work still uses, after it.
  void shrink(int32_t device, Shelf& shelf, uint64_t keep_bytes, bool wait);
  void drop(int32_t device, const Block& block);
  pliant_event* make_event(int32_t device, Shelf& shelf);
  template <class... Parameters, class... Arguments>
  int32_t call(pliant_error& error, int32_t (*slot)(void*, Parameters...), Arguments... arguments) const {
    error = plugin::fresh_error();
    return slot(device_.self(), arguments..., &error);
  }
  template <class... Parameters, class... Arguments>
  void must(int32_t (*slot)(void*, Parameters...), Arguments... arguments) const {
    pliant_error error;
    if (const int32_t status = call(error, slot, arguments...); status != PLIANT_OK) fail(status, error);
  }
  [[noreturn]] static void fail(int32_t status, const pliant_error& error);

  const plugin::Instance& device_;
  const pliant_accelerator& slots_;
  const pliant_stream_memory* const own_;
  std::mutex mutex_;
  std::map<int32_t, Shelf> shelves_;
};

}  // namespace pliant::detail
