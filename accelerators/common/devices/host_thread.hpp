// HostThread: the part of a stream's work that does not go straight to the device, one after the other on a thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "common/devices/failure_slot.hpp"

namespace pliant::devices {

/// Its thread starts with the first work.
class HostThread {
 public:
  /// What it throws goes to the FailureSlot, under the number of the work.
  using Work = std::function<void()>;

  explicit HostThread(std::shared_ptr<FailureSlot> failures) : failures_(std::move(failures)) {}
  /// Waits for what is queued.
  ~HostThread();
  HostThread(const HostThread&) = delete;
  HostThread& operator=(const HostThread&) = delete;

  /// Throws PLIANT_RESOURCE_EXHAUSTED when there is no thread to be had. From one thread at a time.
  void push(Work work, uint64_t number);
  /// All that was queued has run.
  [[nodiscard]] bool idle() const;
  void wait_idle();
  /// Waits until all up to this number has ended: somebody may hear of the end of work from the work itself.
  void wait_past(uint64_t number);

 private:
  struct Item {
    Work work;
    uint64_t number;
  };
  void start();
  void loop();

  const std::shared_ptr<FailureSlot> failures_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  bool running_ = false;  // the thread is in an item
  uint64_t running_number_ = 0;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace pliant::devices
