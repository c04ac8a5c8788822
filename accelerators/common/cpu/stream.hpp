// Stream: a queue of work with a thread of its own. Event: a point in a stream that others can wait for.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "common/cpu/faults.hpp"
#include "common/cpu/shared_event.hpp"
#include "common/processes/this_process.hpp"
#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

/// The first failure of a stream's work that nobody has been told of yet.
class FailureSlot {
 public:
  void put(const sdk::Failure& failure);
  [[nodiscard]] std::shared_ptr<const sdk::Failure> peek() const;
  /// Empties the slot if it holds `told`.
  void forget(const std::shared_ptr<const sdk::Failure>& told);

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const sdk::Failure> failure_;
};

/// A condition that a forked child may destroy, too: there its waiters are threads that do not exist, and the system
/// would wait for them without end.
class Condition {
 public:
  ~Condition() {
    if (this_process() != owner_) static_cast<void>(condition_.release());
  }
  Condition() = default;
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;
  std::condition_variable* operator->() const { return condition_.get(); }

 private:
  const pid_t owner_ = this_process();
  std::unique_ptr<std::condition_variable> condition_ = std::make_unique<std::condition_variable>();
};

/// One recording of an event.
class Mark {
 public:
  explicit Mark(std::shared_ptr<FailureSlot> failures) : failures_(std::move(failures)) {}
  void reach();
  [[nodiscard]] bool reached() const;
  /// When it is reached by the clock of a test double; NULL without one. Set before others see the mark.
  [[nodiscard]] const std::shared_ptr<const Moment>& moment() const { return moment_; }
  void set_moment(std::shared_ptr<const Moment> moment) { moment_ = std::move(moment); }
  /// When it was reached; throws PLIANT_FAILED_PRECONDITION before.
  [[nodiscard]] std::chrono::steady_clock::time_point time() const;
  void wait() const;
  /// Throws the failure that the stream had when the mark was reached, once told not told again by the stream.
  void throw_failure() const;
  /// There is one.
  [[nodiscard]] bool has_failed() const;

 private:
  mutable std::mutex mutex_;
  Condition reached_cv_;
  std::atomic<bool> reached_{false};  ///< the last to be written, under the mutex
  std::chrono::steady_clock::time_point time_;
  std::shared_ptr<const sdk::Failure> failure_;
  std::shared_ptr<const Moment> moment_;
  const std::shared_ptr<FailureSlot> failures_;
};

class Stream {
 public:
  /// How long a collective is left to whoever will wait for it.
  struct Patience {
    /// A wait that comes this long after its collective is soon: about what waking the stream's thread takes, for who
    /// comes later would have gained by that.
    std::chrono::microseconds soon{20};
    std::chrono::microseconds grace{1000};  ///< then the stream's thread looks by itself
  };
  /// `faults` may be NULL; `index` names the stream to it, and `role` says what it is for.
  explicit Stream(std::shared_ptr<Faults> faults, uint64_t index, sdk::StreamRole role = sdk::StreamRole::kCompute)
      : Stream(std::move(faults), index, role, Patience()) {}
  Stream(std::shared_ptr<Faults> faults, uint64_t index, sdk::StreamRole role, Patience patience);
  /// Waits for enqueued work.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// What `work` throws is told by the next synchronize. Returns at once; NULL unless a test double keeps time. Throws
  /// when a test double has lost the device, and as all calls in a forked child, which has no such thread.
  std::shared_ptr<Moment> enqueue(std::function<void()> work, Piece piece = {}) {
    return enqueue(std::move(work), std::move(piece), false);
  }
  /// Waits for what was enqueued before the call; throws the first untold failure.
  void synchronize();
  /// Whether all that was enqueued has run.
  [[nodiscard]] bool query();
  /// Of the last work that was enqueued; NULL unless a test double keeps time.
  [[nodiscard]] std::shared_ptr<const Moment> last_moment() const;
  /// `then`, if any, is called when the mark is reached: at once, and by the caller, where the stream has nothing to
  /// do.
  [[nodiscard]] std::shared_ptr<Mark> mark(std::function<void(const Mark&)> then = {});
  /// Alone in the queue it wakes no thread: whoever synchronizes waits for the mark itself.
  void wait_for(const std::shared_ptr<Mark>& mark);

 private:
  using Clock = std::chrono::steady_clock;
  struct Item {
    std::function<void()> work;
    WorkKind kind;
    std::shared_ptr<Moment> moment;
    Clock::time_point enqueued;  ///< {} unless it is a collective
  };
  /// `can_lie`: alone in the queue it wakes no thread.
  std::shared_ptr<Moment> enqueue(std::function<void()> work, Piece piece, bool can_lie);
  void run();
  /// Until there is something for the stream's thread to do.
  void await_work(std::unique_lock<std::mutex>& lock);
  /// What is queued is for the stream's thread. True where it sleeps: the caller wakes it.
  [[nodiscard]] bool hurry();
  /// The collective that was just queued is for whoever synchronizes, who is expected soon; if nobody comes, for the
  /// stream's thread. True as above.
  [[nodiscard]] bool expect();
  /// Somebody waits for what was enqueued then; see Item.
  void learn(Clock::time_point enqueued);
  /// Runs the first of the queue, unlocked meanwhile.
  void run_first(std::unique_lock<std::mutex>& lock);
  /// Whether a thread that waits for the first of the queue may run it instead. A collective, a wait and a recording
  /// may: it saves two changes of threads, and runs nobody's function. None is run before its turn, or while a test
  /// double interferes.
  [[nodiscard]] bool may_help() const;
  /// Nothing is queued or runs, and no test double has to see what comes.
  [[nodiscard]] bool is_idle() const;

  const std::shared_ptr<Faults> faults_;
  const uint64_t index_;
  const Patience patience_;
  const pid_t owner_;
  const std::shared_ptr<FailureSlot> failures_ = std::make_shared<FailureSlot>();
  mutable std::mutex mutex_;
  Condition enqueued_cv_;  ///< the stream's thread waits here
  Condition finished_cv_;  ///< everyone else
  std::deque<Item> queue_;
  std::shared_ptr<const Moment> last_moment_;
  uint64_t enqueued_ = 0;
  uint64_t wake_at_ = UINT64_MAX;   ///< the least of `finished_` that somebody waits for, asleep
  bool running_ = false;            ///< some thread runs an item
  Clock::time_point running_from_;  ///< when that was enqueued
  bool idle_ = false;               ///< the stream's thread sleeps, and nobody has woken it
  bool watching_ = false;           ///< it looks at the queue after a while by itself
  int32_t habit_ = 0;               ///< how often collectives were waited for soon after they had been enqueued
  // Written under the mutex, and read without it by who waits a little before it sleeps.
  std::atomic<uint64_t> finished_{0};
  std::atomic<bool> hurried_{false};  ///< what is queued is not left to whoever synchronizes
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

class Event {
 public:
  /// `shared`: what other processes know of it; NULL where none does.
  explicit Event(bool timing, std::shared_ptr<SharedEvent> shared = nullptr)
      : timing_(timing), shared_(std::move(shared)) {}
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  /// Seconds between two recordings. Throws PLIANT_FAILED_PRECONDITION unless both were reached and are timed.
  static double elapsed(const Event& begin, const Event& end);
  void record(Stream& stream);
  /// True when it was never recorded.
  [[nodiscard]] bool query() const;
  void synchronize() const;
  void make_wait(Stream& stream) const;
  /// Of the latest recording, by the clock of a test double; NULL without one, when it was never recorded, or by
  /// another process.
  [[nodiscard]] std::shared_ptr<const Moment> moment() const;
  [[nodiscard]] const SharedEvent* shared() const { return shared_.get(); }

 private:
  /// One of them, or none.
  struct Latest {
    std::shared_ptr<Mark> mark;
    SharedEvent::Recording foreign;  ///< by another process
  };
  [[nodiscard]] Latest latest() const;
  [[nodiscard]] std::chrono::steady_clock::time_point time(const char* which) const;
  const bool timing_;
  const pid_t owner_ = this_process();
  const std::shared_ptr<SharedEvent> shared_;
  mutable std::mutex mutex_;
  std::shared_ptr<Mark> mark_;
  uint64_t number_ = 0;  ///< of mark_ in shared_
};

}  // namespace pliant::accelerator
