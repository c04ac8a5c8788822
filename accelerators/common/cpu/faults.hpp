// Faults: where a test double may interfere with a device. Production devices have none.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "pliant/sdk/accelerator.hpp"

namespace pliant::accelerator {

/// How a piece of enqueued work behaves to other streams. kLocal computes, kSpend does for as long as it is told,
/// kRecord reaches an event, kAllocation takes memory of the device in stream order.
enum class WorkKind { kLocal, kSpend, kCopy, kHostFunction, kRecord, kEventWait, kCollective, kAllocation };

/// When a piece of work ends, by the clock of a test double, which alone can read it.
class Moment {
 public:
  virtual ~Moment() = default;
};

/// What a test double is told of a piece of enqueued work.
struct Piece {
  WorkKind kind = WorkKind::kLocal;
  uint64_t bytes = 0;                        ///< kCopy: that move; kLocal: that are read and written
  uint64_t spent_ns = 0;                     ///< kSpend: that it takes
  std::function<bool()> passable = {};       ///< kEventWait: whether it would pass now
  std::shared_ptr<const Moment> after = {};  ///< kEventWait: of the recording that is waited for; may be NULL
};

/// All calls may come from any thread.
class Faults {
 public:
  virtual ~Faults() = default;
  /// Before any call but those that free or destroy. Throws while the device is lost.
  virtual void before_call() = 0;
  /// May throw Failure(PLIANT_RESOURCE_EXHAUSTED).
  virtual void before_alloc(uint64_t bytes) = 0;
  virtual void opened(uint64_t stream, sdk::StreamRole role) = 0;
  /// Work number `index` (from 0) is put on `stream`; when this throws it is not. NULL: the double has no clock.
  virtual std::shared_ptr<Moment> enqueued(uint64_t stream, uint64_t index, Piece piece) = 0;
  /// Called by the thread that runs the work; may block for a while. False: the device is lost, and the work must not
  /// run. Never for what others wait for: recordings, waits, host functions and collectives.
  virtual bool before_work(uint64_t stream, uint64_t index, WorkKind kind, Moment* moment) = 0;
  virtual void after_work(uint64_t stream, uint64_t index) = 0;
  /// What all calls say once the device is lost.
  [[nodiscard]] virtual sdk::Failure loss() const = 0;

  /// This instance is `rank` of a communicator from now on.
  virtual void joined(int32_t rank) = 0;
  /// True when `rank` is to vanish instead of making its n-th collective (from 1). May end or stop the process; throws
  /// when the device is lost.
  virtual bool loses(int32_t rank, uint64_t collective) = 0;

  /// Whether the double has a clock of its own. The next two are called only then, by a thread that runs a collective.
  [[nodiscard]] virtual bool keeps_time() const = 0;
  /// Nanoseconds at which what this thread runs may begin for all that this rank knows.
  virtual uint64_t ready_ns() = 0;
  /// It begins at `begin_ns` for all ranks and moves `bytes`. The time at which it ends.
  virtual uint64_t transferred(uint64_t begin_ns, uint64_t bytes) = 0;
};

}  // namespace pliant::accelerator
