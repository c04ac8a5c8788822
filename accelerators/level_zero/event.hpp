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

/// The first failure of a stream's work that nobody has been told of yet.
class FailureSlot {
 public:
  /// `at` is the number of the work that failed.
  void put(const sdk::Failure& failure, uint64_t at);
  /// Throws the failure, and forgets it, if work number `last` or an earlier one has failed.
  void tell(uint64_t last);

 private:
  std::mutex mutex_;
  std::optional<sdk::Failure> failure_;
  uint64_t at_ = 0;
};

class EventPool;

/// Holds one event of Level Zero; whoever waits for it or will signal it owns a share.
class Mark {
 public:
  /// `timer` is NULL unless the time of the mark may be asked for.
  Mark(std::shared_ptr<EventPool> pool, ze_event_handle_t event, const Timer* timer);
  ~Mark();
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  /// ZE_RESULT_SUCCESS, ZE_RESULT_NOT_READY or why it will never be reached.
  [[nodiscard]] ze_result_t query();
  /// The same, after waiting; never ZE_RESULT_NOT_READY.
  [[nodiscard]] ze_result_t wait();
  [[nodiscard]] ze_result_t signal();
  /// Ticks of the device's clock when it was reached. Throws PLIANT_FAILED_PRECONDITION before.
  [[nodiscard]] uint64_t ticks();

  [[nodiscard]] ze_event_handle_t event() const { return event_; }
  [[nodiscard]] const Context* context() const;
  [[nodiscard]] const std::optional<Timer>& timer() const { return timer_; }

 private:
  friend class EventPool;
  const std::shared_ptr<EventPool> pool_;
  const ze_event_handle_t event_;
  const std::optional<Timer> timer_;
  std::atomic<bool> reached_{false};
};

/// All calls may come from any thread.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  static constexpr uint32_t kBlock = 64;

  explicit EventPool(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  /// An event that is not signalled.
  std::shared_ptr<Mark> take(const Timer* timer = nullptr);
  [[nodiscard]] const std::shared_ptr<Context>& context() const { return context_; }

 private:
  friend class Mark;
  struct Kind {
    std::vector<ze_event_pool_handle_t> blocks;
    std::vector<ze_event_handle_t> events;  ///< all of the blocks
    std::vector<ze_event_handle_t> free;
  };
  void grow(Kind& kind, bool timed);
  void give_back(ze_event_handle_t event, bool timed) noexcept;

  const std::shared_ptr<Context> context_;
  std::mutex mutex_;
  Kind plain_;
  Kind timed_;
};

}  // namespace pliant::level_zero
