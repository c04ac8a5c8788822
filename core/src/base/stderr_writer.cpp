#include "base/stderr_writer.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace pliant {
namespace {

constexpr std::chrono::seconds kLastWait{2};

void write_through(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd room{STDERR_FILENO, POLLOUT, 0};
      if (::poll(&room, 1, -1) < 0 && errno != EINTR) return;
    } else if (errno != EINTR) {
      return;
    }
  }
}

}  // namespace

struct UnblockedStderr::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::string pending;
  int64_t left_out = 0;  ///< lines
  bool writing = false;
  bool closing = false;

  void add(std::string_view text) {
    const std::lock_guard lock(mutex);
    if (left_out > 0 || pending.size() + text.size() > kMostQueued) {
      left_out += std::max<int64_t>(1, std::count(text.begin(), text.end(), '\n'));
      return;
    }
    pending += text;
    changed.notify_all();
  }

  void wait_until_written() {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, kLastWait, [this] { return pending.empty() && !writing; });
  }

  void write_until_closed() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return closing || !pending.empty(); });
      if (pending.empty()) return;
      std::string chunk = std::exchange(pending, {});
      writing = true;
      lock.unlock();
      write_through(chunk);
      lock.lock();
      writing = false;
      if (left_out > 0) {
        pending += fmt::format("warning: {} lines were dropped here: stderr was not read in time\n", left_out);
        left_out = 0;
      }
      changed.notify_all();
    }
  }
};

namespace {

std::mutex active_mutex;
std::shared_ptr<UnblockedStderr::Queue> active;

}  // namespace

void write_stderr(std::string_view text) noexcept {
  try {
    std::shared_ptr<UnblockedStderr::Queue> queue;
    {
      const std::lock_guard lock(active_mutex);
      queue = active;
    }
    queue ? queue->add(text) : write_through(text);
  } catch (...) {  // no memory: the line is lost and its writer goes on
  }
}

void flush_stderr() noexcept {
  try {
    std::shared_ptr<UnblockedStderr::Queue> queue;
    {
      const std::lock_guard lock(active_mutex);
      queue = active;
    }
    if (queue) queue->wait_until_written();
  } catch (...) {  // it is written a little later
  }
}

UnblockedStderr::UnblockedStderr() : queue_(std::make_shared<Queue>()) {
  try {
    std::thread([queue = queue_] { queue->write_until_closed(); }).detach();
  } catch (const std::system_error&) {
    return;  // no thread: lines are written as ever
  }
  const std::lock_guard lock(active_mutex);
  active = queue_;
}

UnblockedStderr::~UnblockedStderr() {
  {
    const std::lock_guard lock(active_mutex);
    active.reset();
  }
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->closing = true;
  }
  queue_->changed.notify_all();
  queue_->wait_until_written();
}

}  // namespace pliant
