// my-accelerator: the processors of this machine as a device whose streams are threads. Where a call to your device's
// driver belongs stands a lambda that does the work itself.
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pliant/sdk/accelerator.hpp"
#include "pliant/sdk/arithmetic.hpp"

namespace {

using namespace pliant::sdk;
using Clock = std::chrono::steady_clock;

/// One recording of an event: a point in a stream that others wait for.
class Mark {
 public:
  void reach() {
    const std::lock_guard lock(mutex_);
    time_ = Clock::now();
    reached_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    reached_.wait(lock, [this] { return time_.has_value(); });
  }
  std::optional<Clock::time_point> time() {
    const std::lock_guard lock(mutex_);
    return time_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable reached_;
  std::optional<Clock::time_point> time_;
};

/// Work in the order in which it was enqueued.
class WorkQueue {
 public:
  ~WorkQueue() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void push(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
      ++pushed_;
    }
    changed_.notify_all();
  }
  bool idle() {
    const std::lock_guard lock(mutex_);
    return finished_ == pushed_;
  }
  /// Waits for what was pushed before the call.
  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this, target = pushed_] { return finished_ >= target; });
  }
  std::shared_ptr<Mark> mark() {
    auto made = std::make_shared<Mark>();
    push([made] { made->reach(); });
    return made;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return closing_ || !work_.empty(); });
      if (work_.empty()) return;
      std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      work();
      work = nullptr;
      lock.lock();
      ++finished_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  uint64_t pushed_ = 0;
  uint64_t finished_ = 0;
  bool closing_ = false;
  std::thread thread_{[this] { run(); }};  // last: it uses the members above
};

class MyAccelerator {
 public:
  using Stream = WorkQueue;
  struct Event {
    bool timed = false;
    std::mutex mutex;
    std::shared_ptr<Mark> mark;  // of the last recording

    std::shared_ptr<Mark> last() {
      const std::lock_guard lock(mutex);
      return mark;
    }
  };

  int64_t memory_bytes = 0;

  static void options(Options<MyAccelerator>& table) {
    table.add("memory_bytes", &MyAccelerator::memory_bytes, "Memory of the device; 0 = all of the machine's.")
        .unit("bytes")
        .at_least(0);
  }
  void start(const Host&) {
    limit_ = static_cast<uint64_t>(memory_bytes);
    if (limit_ == 0) limit_ = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE));
  }

  // Devices and memory.
  int32_t device_count() { return 1; }
  DeviceProperties device_properties(int32_t) { return {"threads of this machine", limit_, PLIANT_CAP_HOST_VISIBLE}; }
  MemoryInfo memory_info(int32_t) {
    const std::lock_guard lock(mutex_);
    return {limit_ - used_, limit_};
  }
  void* alloc(int32_t, Memory, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    const uint64_t size = (bytes / kLine + 1) * kLine;
    void* const made = bytes < limit_ && size <= limit_ - used_ ? std::aligned_alloc(kLine, size) : nullptr;
    if (made == nullptr) {
      throw Failure(PLIANT_RESOURCE_EXHAUSTED, std::to_string(bytes) + " bytes wanted, " +
                                                   std::to_string(limit_ - used_) + " of " + std::to_string(limit_) +
                                                   " left");
    }
    taken_.emplace(made, size);
    used_ += size;
    return made;
  }
  void free(int32_t, Memory, void* pointer) {
    const std::lock_guard lock(mutex_);
    const auto found = taken_.find(pointer);
    if (found == taken_.end()) return;  // freed before, or none of ours
    used_ -= found->second;
    taken_.erase(found);
    std::free(pointer);
  }

  // Streams and events.
  std::unique_ptr<Stream> make_stream(int32_t, StreamUse) { return std::make_unique<Stream>(); }
  std::unique_ptr<Event> make_event(int32_t, bool timing) {
    auto made = std::make_unique<Event>();
    made->timed = timing;
    return made;
  }
  bool query(Stream& stream) { return stream.idle(); }
  void synchronize(Stream& stream) { stream.drain(); }
  void record(Event& event, Stream& stream) {
    const std::lock_guard lock(event.mutex);
    event.mark = stream.mark();
  }
  bool query(Event& event) {
    const auto mark = event.last();
    return mark == nullptr || mark->time().has_value();
  }
  void synchronize(Event& event) {
    if (const auto mark = event.last()) mark->wait();
  }
  void wait(Stream& stream, Event& event) {
    if (const auto mark = event.last()) stream.push([mark] { mark->wait(); });
  }
  double elapsed(Event& begin, Event& end) {
    return std::chrono::duration<double>(time_of(end) - time_of(begin)).count();
  }

  // Work.
  void copy(void* to, const void* from, uint64_t bytes, Stream& stream) {
    if (bytes != 0) stream.push([=] { std::memcpy(to, from, bytes); });
  }
  void copy(std::span<const pliant_copy> copies, Stream& stream) {
    for (const pliant_copy& one : copies) copy(one.to, one.from, one.bytes, stream);
  }
  void fill(void* to, uint8_t byte, uint64_t bytes, Stream& stream) {
    if (bytes != 0) stream.push([=] { std::memset(to, byte, bytes); });
  }
  void reduce(void* to, std::span<const void* const> from, Elements elements, ReduceOp op, double scale,
              Stream& stream) {
    stream.push([=, all = std::vector<const void*>(from.begin(), from.end())] {
      pliant::sdk::reduce(elements.dtype, op, all, scale, elements.count, to);
    });
  }
  void cast(void* to, DType to_type, const void* from, Elements elements, Stream& stream) {
    stream.push([=] { pliant::sdk::cast(elements.dtype, from, to_type, to, elements.count); });
  }
  void call(void (*function)(void*), void* context, Stream& stream) {
    stream.push([=] { function(context); });
  }

 private:
  static constexpr uint64_t kLine = 64;
  static Clock::time_point time_of(Event& event) {
    const auto mark = event.last();
    const auto time = mark == nullptr ? std::nullopt : mark->time();
    if (!event.timed || !time) {
      throw Failure(PLIANT_FAILED_PRECONDITION,
                    event.timed ? "the event has not been reached" : "the event was made without timing");
    }
    return *time;
  }

  std::mutex mutex_;
  std::unordered_map<void*, uint64_t> taken_;  // bytes of each
  uint64_t limit_ = 0;
  uint64_t used_ = 0;
};

}  // namespace

PLIANT_ACCELERATOR(MyAccelerator, "my-accelerator", "0.1.0", "threads of this machine, one for each stream")
