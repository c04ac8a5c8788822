// BROKEN: what streams and events say, or how they end, is wrong in one way, the option `fault`.
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct OrderWrong : Honest<OrderWrong> {
  using Mark = pliant::accelerator::Mark;
  struct Stream : Device::Stream {
    using Device::Stream::Stream;
    ~Stream() { *ending = true; }
    std::shared_ptr<std::atomic<bool>> ending = std::make_shared<std::atomic<bool>>(false);
    std::shared_ptr<std::atomic<uint64_t>> filled = std::make_shared<std::atomic<uint64_t>>(0);
    int fills_in_a_row = 0;
  };
  std::string fault = "dropped";
  std::shared_ptr<std::atomic<uint64_t>> filled = std::make_shared<std::atomic<uint64_t>>(0);
  std::mutex mutex;
  std::set<const Event*> fresh;                         ///< never recorded
  std::map<const void*, std::shared_ptr<Mark>> stands;  ///< of the streams that a host function was called on

  static void options(pliant::sdk::Options<OrderWrong>& table) {
    table
        .add(
            "fault", &OrderWrong::fault,
            "dropped: destroying a stream drops the host function behind many fills; woken: stream_synchronize returns "
            "when other streams have done enough; unwaited: event_synchronize does not wait; idle: stream_query says "
            "that all is done; pending: an event that was never recorded is not done; untimed: every event has a "
            "time; together: a fill of a page waits for what other streams stand at.")
        .choices({"dropped", "woken", "unwaited", "idle", "pending", "untimed", "together"});
  }
  std::unique_ptr<Stream> make_stream(int32_t, pliant::sdk::StreamUse) {
    return std::make_unique<Stream>(nullptr, uint64_t{0});
  }
  std::unique_ptr<Event> make_event(int32_t device, bool timing) {
    auto made = Device::make_event(device, timing || fault == "untimed");
    const std::lock_guard lock(mutex);
    fresh.insert(made.get());
    return made;
  }
  void record(Event& event, Stream& stream) {
    Device::record(event, stream);
    const std::lock_guard lock(mutex);
    fresh.erase(&event);
  }
  bool query(Event& event) {
    const std::lock_guard lock(mutex);
    return Device::query(event) && (fault != "pending" || fresh.count(&event) == 0);
  }
  bool query(Stream& stream) { return fault == "idle" || Device::query(stream); }
  [[nodiscard]] uint64_t filled_by_others(const Stream& stream) const {
    const uint64_t own = *stream.filled;  // first, as it is counted last
    return *filled - own;
  }
  void synchronize(Event& event) {
    if (fault != "unwaited") Device::synchronize(event);
  }
  void synchronize(Stream& stream) {
    const uint64_t before = filled_by_others(stream);
    while (fault == "woken" && !Device::query(stream)) {
      if (filled_by_others(stream) >= before + 20) return;
      std::this_thread::yield();
    }
    Device::synchronize(stream);
  }
  void fill(void* to, uint8_t byte, uint64_t bytes, Stream& stream) {
    ++stream.fills_in_a_row;
    if (fault == "together" && bytes == kPage) {
      const std::lock_guard lock(mutex);
      for (const auto& [other, mark] : stands) {
        if (other != &stream) stream.wait_for(mark);
      }
    }
    Device::fill(to, byte, bytes, stream);
    stream.enqueue([all = filled, own = stream.filled] {
      ++*all;
      ++*own;
    });
  }
  void call(void (*function)(void*), void* context, Stream& stream) {
    const bool drops = fault == "dropped" && stream.fills_in_a_row >= 16;
    stream.fills_in_a_row = 0;
    stream.enqueue([=, ending = stream.ending] {
      if (drops) std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the fault itself
      if (!drops || !*ending) function(context);
    });
    const std::lock_guard lock(mutex);
    if (fault == "together") stands[&stream] = stream.mark();
  }
  static constexpr uint64_t kPage = 4096;
};

}  // namespace

PLIANT_BROKEN(OrderWrong, "order-wrong")
