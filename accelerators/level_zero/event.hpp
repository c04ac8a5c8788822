// Mark: one recording of an event. EventPool: events of Level Zero in blocks, used again when nobody needs them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "pliant/sdk/failure.hpp"
#include "runtime.hpp"

namespace pliant::level_zero {

class EventPool;

/// A point behind some work that streams wait for: of a stream here, or of one in another process.
class Signal {
 public:
  Signal() = default;
  virtual ~Signal() = default;
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;

  /// ZE_RESULT_SUCCESS, ZE_RESULT_NOT_READY or why it will never be reached.
  [[nodiscard]] virtual ze_result_t query() = 0;
  /// The same, after waiting; never ZE_RESULT_NOT_READY.
  [[nodiscard]] virtual ze_result_t wait() = 0;
  /// No host work stands before it any more.
  [[nodiscard]] virtual bool is_submitted() const = 0;
  virtual void wait_submitted() = 0;
  /// NULL unless it is submitted and a device signals it.
  [[nodiscard]] virtual ze_event_handle_t event() = 0;
  [[nodiscard]] virtual const Context* context() const = 0;
};

/// What a mark is to other processes.
class SharedPoint {
 public:
  SharedPoint() = default;
  virtual ~SharedPoint() = default;
  SharedPoint(const SharedPoint&) = delete;
  SharedPoint& operator=(const SharedPoint&) = delete;
  /// An event that is not signalled; stays its owner's.
  [[nodiscard]] virtual ze_event_handle_t take() = 0;
  virtual void submitted() = 0;
  /// May be called more than once.
  virtual void over(bool reached) noexcept = 0;
};

/// A point of a stream. It becomes known to the device (submitted) when all host work before it has run, so that no
/// queue of a device ever waits for the CPU: streams share queues. Whoever needs it owns a share.
class Mark final : public Signal {
 public:
  /// `timer` is NULL unless the time of the mark may be asked for, `shared` unless other processes wait for it.
  Mark(std::shared_ptr<EventPool> pool, const Timer* timer, std::unique_ptr<SharedPoint> shared = nullptr);
  ~Mark() override;

  /// For submit(): an event that is not signalled. give_back() when it is not used.
  [[nodiscard]] ze_event_handle_t take_event();
  void give_back(ze_event_handle_t event) noexcept;

  /// One of these is called, once, by the stream. The event is that of take_event(), and on its way to be signalled.
  void submit(ze_event_handle_t event);
  void reach();
  void fail(ze_result_t why);

  [[nodiscard]] ze_result_t query() override;
  [[nodiscard]] ze_result_t wait() override;
  [[nodiscard]] bool is_submitted() const override { return state_ != State::kPending; }
  void wait_submitted() override { state_.wait(State::kPending); }
  /// Ticks of the device's clock when it was reached. Throws PLIANT_FAILED_PRECONDITION before.
  [[nodiscard]] uint64_t ticks();

  [[nodiscard]] ze_event_handle_t event() override { return event_; }
  [[nodiscard]] const Context* context() const override;
  [[nodiscard]] const std::optional<Timer>& timer() const { return timer_; }
  [[nodiscard]] bool is_shared() const { return shared_ != nullptr; }

 private:
  enum class State { kPending, kSubmitted, kReached, kFailed };
  void become(State state);

  const std::shared_ptr<EventPool> pool_;
  const std::optional<Timer> timer_;
  const std::unique_ptr<SharedPoint> shared_;
  std::atomic<State> state_{State::kPending};
  ze_event_handle_t event_ = nullptr;  // both are written before state_ moves on
  ze_result_t failure_ = ZE_RESULT_SUCCESS;
};

/// All calls may come from any thread.
class EventPool {
 public:
  static constexpr uint32_t kBlock = 64;

  explicit EventPool(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  /// An event that is not signalled.
  [[nodiscard]] ze_event_handle_t take(bool timed);
  /// For one that was signalled and that no command will touch, or that none has touched at all.
  void give_back(ze_event_handle_t event, bool timed) noexcept;
  [[nodiscard]] const std::shared_ptr<Context>& context() const { return context_; }

 private:
  struct Kind {
    std::vector<ze_event_pool_handle_t> blocks;
    std::vector<ze_event_handle_t> events;  ///< all of the blocks
    std::vector<ze_event_handle_t> free;
  };
  void grow(Kind& kind, bool timed);

  const std::shared_ptr<Context> context_;
  std::mutex mutex_;
  Kind plain_;
  Kind timed_;
};

}  // namespace pliant::level_zero
