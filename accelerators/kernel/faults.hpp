// Faults: where a test double may interfere with a device. Production devices have none.
#pragma once

#include <cstdint>
#include <functional>

namespace pliant::accelerator {

/// How a piece of enqueued work behaves to other streams.
enum class WorkKind { kLocal, kEventWait, kCollective };

/// All calls may come from any thread.
class Faults {
 public:
  virtual ~Faults() = default;
  /// May throw Failure(PLIANT_RESOURCE_EXHAUSTED).
  virtual void before_alloc(uint64_t bytes) = 0;
  /// Work number `index` (from 0) was put on `stream`. `passable` says whether a kEventWait would pass now.
  virtual void enqueued(uint64_t stream, uint64_t index, WorkKind kind, std::function<bool()> passable) = 0;
  /// Called by the stream's thread; may block for a while.
  virtual void before_work(uint64_t stream, uint64_t index) = 0;
  virtual void after_work(uint64_t stream, uint64_t index) = 0;
  /// True when `rank` is to vanish instead of making its n-th collective (from 1).
  virtual bool loses(int32_t rank, uint64_t collective) = 0;
};

}  // namespace pliant::accelerator
