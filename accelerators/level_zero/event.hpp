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

/// A point behind some work of a stream. It becomes known to the device (submitted) when all host work before it has
/// run, so that no queue of a device ever waits for the CPU: streams share queues. Whoever needs it owns a share.
class Mark {
 public:
  /// `timer` is NULL unless the time of the mark may be asked for.
  Mark(std::shared_ptr<EventPool> pool, const Timer* timer);
  ~Mark();
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  /// One of these is called, once, by the stream. The event is one of the pool's, and on its way to be signalled.
  void submit(ze_event_handle_t event);
  void reach();
  void fail(ze_result_t why);

  /// ZE_RESULT_SUCCESS, ZE_RESULT_NOT_READY or why it will never be reached.
  [[nodiscard]] ze_result_t query();
  /// The same, after waiting; never ZE_RESULT_NOT_READY.
  [[nodiscard]] ze_result_t wait();
  [[nodiscard]] bool is_submitted() const { return state_ != State::kPending; }
  void wait_submitted() const { state_.wait(State::kPending); }
  /// Ticks of the device's clock when it was reached. Throws PLIANT_FAILED_PRECONDITION before.
  [[nodiscard]] uint64_t ticks();

  /// NULL unless it is submitted and a device signals it.
  [[nodiscard]] ze_event_handle_t event() const { return event_; }
  [[nodiscard]] const Context* context() const;
  [[nodiscard]] const std::optional<Timer>& timer() const { return timer_; }

 private:
  enum class State { kPending, kSubmitted, kReached, kFailed };
  void become(State state);

  const std::shared_ptr<EventPool> pool_;
  const std::optional<Timer> timer_;
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
