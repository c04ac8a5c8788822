// Runs host work of a stream.
#include "common/devices/host_thread.hpp"

#include <string>
#include <system_error>

namespace pliant::devices {

using sdk::Failure;

HostThread::~HostThread() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void HostThread::start() {
  try {
    thread_ = std::thread([this] { loop(); });
  } catch (const std::system_error& refused) {
    throw Failure(PLIANT_RESOURCE_EXHAUSTED, std::string("cannot create a thread for a stream: ") + refused.what());
  }
}

void HostThread::push(Work work, uint64_t number) {
  if (!thread_.joinable()) start();
  const std::lock_guard lock(mutex_);
  queue_.push_back({std::move(work), number});
  changed_.notify_all();
}

bool HostThread::idle() const {
  const std::lock_guard lock(mutex_);
  return queue_.empty() && !running_;
}

void HostThread::wait_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty() && !running_; });
}

void HostThread::wait_past(uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return (!running_ || running_number_ > number) && (queue_.empty() || queue_.front().number > number);
  });
}

void HostThread::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    running_ = true;
    running_number_ = item.number;
    lock.unlock();
    try {
      item.work();
    } catch (const Failure& failure) {
      failures_->put(failure, item.number);
    } catch (const std::bad_alloc&) {
      failures_->put(Failure(PLIANT_RESOURCE_EXHAUSTED, "out of memory in enqueued work"), item.number);
    } catch (const std::exception& other) {
      failures_->put(Failure(PLIANT_INTERNAL, other.what()), item.number);
    }
    item.work = nullptr;  // what it holds must not outlive its turn
    lock.lock();
    running_ = false;
    changed_.notify_all();
  }
}

}  // namespace pliant::devices
