// Stream: an immediate command list and a host thread that take turns in one order. Event: a point in a stream.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "event.hpp"
#include "host_thread.hpp"
#include "memory.hpp"

namespace pliant::level_zero {

/// Which queue of a device a stream uses.
struct QueueChoice {
  uint32_t ordinal = 0;
  uint32_t index = 0;
  ze_command_queue_priority_t priority = ZE_COMMAND_QUEUE_PRIORITY_NORMAL;
};

/// Commands of an immediate list may overtake each other; barriers keep them in order. Where the work moves from the
/// device to the CPU, the list signals an event that the host thread waits for; where it moves back, the thread signals
/// one that the list waits for.
class Stream {
 public:
  using Append = std::function<void(const Api& api, ze_command_list_handle_t list)>;

  Stream(const DeviceEntry& device, std::shared_ptr<EventPool> events, QueueChoice queue, uint64_t staging_bytes);
  /// Waits for enqueued work.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Several pieces of work that nobody else's come between. Holds the stream's lock while it lives.
  class Turn {
   public:
    explicit Turn(Stream& stream);
    /// What `append` puts on the list runs after all work before it; its own commands in any order.
    void on_device(const Append& append);
    void on_host(HostThread::Work work);
    /// Pinned memory of the stream, of staging_bytes, for work of this turn alone.
    [[nodiscard]] std::byte* staging();

   private:
    Stream& stream_;
    const std::lock_guard<std::mutex> lock_;
  };

  /// Waits for what was enqueued before the call; throws the first untold failure.
  void synchronize();
  [[nodiscard]] bool query();
  /// Its number among the work is told with it.
  [[nodiscard]] std::pair<std::shared_ptr<Mark>, uint64_t> record(bool timed);
  void wait_for(const std::shared_ptr<Mark>& mark);

  [[nodiscard]] const DeviceEntry& device() const { return device_; }
  [[nodiscard]] uint64_t staging_bytes() const { return staging_bytes_; }
  [[nodiscard]] const std::shared_ptr<FailureSlot>& failures() const { return failures_; }

 private:
  /// What device work before a mark needs until the mark is reached.
  struct Fence {
    std::shared_ptr<Mark> mark;
    std::vector<std::shared_ptr<Mark>> held;
  };
  void require_owner() const;
  void turn_to_device();
  void turn_to_host();
  void barrier(ze_event_handle_t signal, ze_event_handle_t wait);
  std::shared_ptr<Mark> append_mark(const Timer* timer);
  void hold(std::shared_ptr<Mark> mark);
  void drop_reached();

  const DeviceEntry& device_;
  const std::shared_ptr<EventPool> events_;
  const uint64_t staging_bytes_;
  const std::shared_ptr<FailureSlot> failures_ = std::make_shared<FailureSlot>();
  std::mutex mutex_;
  ze_command_list_handle_t list_ = nullptr;
  bool device_behind_ = false;  ///< the last work is on the list
  bool host_behind_ = false;    ///< the last work is on the host thread
  bool unordered_ = false;      ///< no barrier yet behind the last commands
  uint64_t enqueued_ = 0;
  std::shared_ptr<Mark> tail_;  ///< behind all of the list, or NULL
  std::vector<std::shared_ptr<Mark>> held_;
  std::deque<Fence> fences_;
  std::unique_ptr<PinnedBlock> staging_;
  std::unique_ptr<HostThread> host_ = std::make_unique<HostThread>(failures_);
};

class Event {
 public:
  Event(bool timed, std::shared_ptr<Context> context) : timed_(timed), context_(std::move(context)) {}
  /// Seconds between two recordings. Throws PLIANT_FAILED_PRECONDITION unless both were reached and are timed.
  static double elapsed(Event& begin, Event& end);
  void record(Stream& stream);
  /// True when it was never recorded.
  [[nodiscard]] bool query();
  void synchronize();
  void make_wait(Stream& stream);

 private:
  struct Recording {
    std::shared_ptr<Mark> mark;  ///< NULL: none
    uint64_t number = 0;
    std::shared_ptr<FailureSlot> failures;
  };
  [[nodiscard]] Recording latest();
  [[nodiscard]] std::shared_ptr<Mark> timed_mark(const char* which);

  const bool timed_;
  const std::shared_ptr<Context> context_;
  std::mutex mutex_;
  Recording recording_;
};

}  // namespace pliant::level_zero
