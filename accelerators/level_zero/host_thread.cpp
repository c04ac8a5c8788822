// Runs host work of a stream.
#include "host_thread.hpp"

#include <string>
#include <system_error>

#include "result.hpp"

namespace pliant::level_zero {

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
  if (thread_.joinable()) return;
  try {
    thread_ = std::thread([this] { loop(); });
  } catch (const std::system_error& refused) {
    throw Failure(PLIANT_RESOURCE_EXHAUSTED, std::string("no thread for a stream: ") + refused.what());
  }
}

void HostThread::push(Work work, uint64_t number) {
  const std::lock_guard lock(mutex_);
  queue_.push_back({std::move(work), number});
  ++queued_;
  changed_.notify_all();
}

void HostThread::run(Work work, uint64_t number) {
  push(std::move(work), number);
}

void HostThread::wait_for(std::shared_ptr<Mark> mark, uint64_t number) {
  push(
      [this, mark = std::move(mark)](bool) {
        const ze_result_t result = mark->wait();
        if (result == ZE_RESULT_SUCCESS) return;
        broken_ = true;
        throw failure_of(result, "zeEventHostSynchronize");
      },
      number);
}

void HostThread::signal(std::shared_ptr<Mark> mark, uint64_t number) {
  push([mark = std::move(mark)](bool) { check(mark->signal(), "zeEventHostSignal"); }, number);
}

uint64_t HostThread::queued() const {
  const std::lock_guard lock(mutex_);
  return queued_;
}

bool HostThread::idle() const {
  const std::lock_guard lock(mutex_);
  return finished_ == queued_;
}

void HostThread::wait_until(uint64_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return finished_ >= count; });
}

void HostThread::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    try {
      item.work(broken_);
    } catch (const Failure& failure) {
      failures_->put(failure, item.number);
    } catch (const std::bad_alloc&) {
      failures_->put(Failure(PLIANT_RESOURCE_EXHAUSTED, "out of memory in enqueued work"), item.number);
    } catch (const std::exception& other) {
      failures_->put(Failure(PLIANT_INTERNAL, other.what()), item.number);
    }
    item.work = nullptr;  // what it holds must not outlive its turn
    lock.lock();
    ++finished_;
    changed_.notify_all();
  }
}

}  // namespace pliant::level_zero
