// HostThread: the part of a stream's work that runs on the CPU, in the order in which it was queued.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "event.hpp"

namespace pliant::level_zero {

/// Its thread starts with the first work. Waits and signals tie it to the stream's command list; every call that queues
/// names the work for FailureSlot. Calls that queue may come from one thread at a time, the others from any.
class HostThread {
 public:
  /// Runs on the thread. `broken`: work before it failed on the device.
  using Work = std::function<void(bool broken)>;

  explicit HostThread(std::shared_ptr<FailureSlot> failures) : failures_(std::move(failures)) {}
  /// Waits for what is queued.
  ~HostThread();
  HostThread(const HostThread&) = delete;
  HostThread& operator=(const HostThread&) = delete;

  /// Throws PLIANT_RESOURCE_EXHAUSTED when there is no thread to be had. Before the first of the calls below.
  void start();
  void run(Work work, uint64_t number);
  /// What follows waits until the mark is reached.
  void wait_for(std::shared_ptr<Mark> mark, uint64_t number);
  void signal(std::shared_ptr<Mark> mark, uint64_t number);

  [[nodiscard]] uint64_t queued() const;
  [[nodiscard]] bool idle() const;
  /// Waits until the first `count` that were queued have run.
  void wait_until(uint64_t count);

 private:
  struct Item {
    Work work;
    uint64_t number;
  };
  void push(Work work, uint64_t number);
  void loop();

  const std::shared_ptr<FailureSlot> failures_;
  bool broken_ = false;  // of the thread
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  uint64_t queued_ = 0;
  uint64_t finished_ = 0;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace pliant::level_zero
