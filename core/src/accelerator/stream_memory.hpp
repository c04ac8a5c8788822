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
#include "pliant/sdk/calls.hpp"
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
    sdk::OwnedMemory memory;
    pliant_stream* stream = nullptr;  ///< NULL: no work uses it
    sdk::OwnedEvent event;            ///< reached when none does
  };
  struct Taken {
    sdk::OwnedMemory memory;
    uint64_t bytes = 0;
  };
  /// Of one device.
  struct Shelf {
    std::unordered_map<void*, Taken> taken;
    std::vector<std::unordered_map<void*, Taken>::node_type> spare_nodes;  ///< of it, to be used again
    std::map<uint64_t, std::vector<Block>> by_size;                        ///< given back
    uint64_t kept_bytes = 0;
    std::vector<sdk::OwnedEvent> events;  ///< not in use
    void take(void* pointer, Taken what);
  };

  /// Kept memory of this size that work on `stream` may use now; empty when there is none. `may_wait`: the stream waits
  /// for it.
  sdk::OwnedMemory reuse(Shelf& shelf, uint64_t bytes, pliant_stream* stream, bool may_wait);
  [[nodiscard]] bool is_idle(const Block& block) const;
  /// Frees kept memory down to keep_bytes; `wait`: also what work still uses, after it.
  void shrink(Shelf& shelf, uint64_t keep_bytes, bool wait);
  sdk::OwnedEvent take_event(int32_t device, Shelf& shelf);

  const sdk::Calls<pliant_accelerator> slots_;
  sdk::Calls<pliant_stream_memory> own_;
  std::mutex mutex_;
  std::map<int32_t, Shelf> shelves_;
};

}  // namespace pliant::detail
