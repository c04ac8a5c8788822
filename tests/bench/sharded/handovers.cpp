#include "bench/sharded/handovers.hpp"

#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace pliant::bench {
namespace {

constexpr size_t kTimes = 1000;
constexpr size_t kFirst = kTimes / 10;  // samples from here on count

/// Before each sample: none, so that threads are met as they look for more work, or long enough that they sleep.
enum class Rest { kNone, kLong };
constexpr auto kLongRest = std::chrono::milliseconds(1);

void rest(Rest how) {
  if (how == Rest::kLong) std::this_thread::sleep_for(kLongRest);  // what is measured, no wait for anything
}

class ByCondition {
 public:
  void wake() {
    {
      const std::lock_guard lock(mutex_);
      is_set_ = true;
    }
    wakes_.notify_one();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    wakes_.wait(lock, [this] { return is_set_; });
    is_set_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable wakes_;
  bool is_set_ = false;
};

class ByFutex {
 public:
  void wake() {
    is_set_.store(1);
    call(FUTEX_WAKE_PRIVATE, 1);
  }
  void wait() {
    while (is_set_.exchange(0) == 0) call(FUTEX_WAIT_PRIVATE, 0);
  }

 private:
  void call(int how, uint32_t value) { ::syscall(SYS_futex, &is_set_, how, value, nullptr, nullptr, 0); }
  std::atomic<uint32_t> is_set_{0};
};

class ByEventFd {
 public:
  ByEventFd() : fd_(::eventfd(0, EFD_CLOEXEC)) {
    if (fd_ < 0) std::abort();
  }
  ~ByEventFd() { ::close(fd_); }
  ByEventFd(const ByEventFd&) = delete;
  ByEventFd& operator=(const ByEventFd&) = delete;
  void wake() {
    const uint64_t one = 1;
    if (::write(fd_, &one, sizeof(one)) != sizeof(one)) std::abort();
  }
  void wait() {
    uint64_t got = 0;
    if (::read(fd_, &got, sizeof(got)) != sizeof(got)) std::abort();
  }

 private:
  int fd_;
};

/// Microseconds of one way.
template <class Means>
Spread two_threads(Rest how) {
  Means there;
  Means back;
  std::thread other([&] {
    for (size_t time = 0; time < kTimes; ++time) {
      there.wait();
      back.wake();
    }
  });
  std::vector<double> made;
  for (size_t time = 0; time < kTimes; ++time) {
    rest(how);
    const double begin = wall_micros();
    there.wake();
    back.wait();
    if (time >= kFirst) made.push_back((wall_micros() - begin) / 2);
  }
  other.join();
  return spread_of(std::move(made));
}

/// Part of every time of a calling thread; a visit has it twice.
Spread readings() {
  std::vector<double> made;
  for (size_t time = 0; time < kTimes; ++time) {
    const double begin = thread_micros();
    const double took = thread_micros() - begin;
    if (time >= kFirst) made.push_back(took);
  }
  return spread_of(std::move(made));
}

void measure(const Accelerator& accelerator, Rest how, std::vector<Handover>& into) {
  Stream first(accelerator, 0);
  Stream second(accelerator, 0);
  Event copied(accelerator, 0);
  Event done(accelerator, 0);
  const std::vector<char> from(4096);
  std::vector<char> to(4096);
  const auto micros_of_copy = [&](bool goes_on) {
    rest(how);
    const double begin = wall_micros();
    first.copy(to.data(), from.data(), to.size());
    if (goes_on) {
      copied.record(first);
      second.wait(copied);
    }
    done.record(goes_on ? second : first);
    done.synchronize();
    return wall_micros() - begin;
  };
  std::vector<double> alone;
  std::vector<double> through;
  std::vector<double> added;
  for (size_t time = 0; time < kTimes; ++time) {
    const double one = micros_of_copy(false);
    const double both = micros_of_copy(true);
    if (time < kFirst) continue;
    alone.push_back(one);
    through.push_back(both);
    added.push_back(both - one);
  }
  const char* const when = how == Rest::kNone ? "at once: " : "rested: ";
  const auto add = [&](const char* what, Spread us) { into.push_back({std::string(when) + what, us}); };
  add("a copy on one stream, to its end", spread_of(std::move(alone)));
  add("and on through another stream", spread_of(std::move(through)));
  add("what the other stream adds", spread_of(std::move(added)));
  add("a thread wakes another, futex", two_threads<ByFutex>(how));
  add("a thread wakes another, eventfd", two_threads<ByEventFd>(how));
  add("a thread wakes another, condition variable", two_threads<ByCondition>(how));
}

}  // namespace

std::vector<Handover> measure_handovers(const Accelerator& accelerator) {
  std::vector<Handover> made;
  measure(accelerator, Rest::kNone, made);
  measure(accelerator, Rest::kLong, made);
  made.push_back({"two readings of the calling thread's time", readings()});
  return made;
}

}  // namespace pliant::bench
