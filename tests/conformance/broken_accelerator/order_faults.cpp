// Faults of the order of work.
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "faults.hpp"

namespace pliant::broken {
namespace {

/// stream_wait_event does nothing.
struct WaitForgets : Honest {
  void wait(Stream&, Event&) override {}
};

/// A host function runs twice.
struct CallTwice : Honest {
  void call(void (*function)(void*), void* context, Stream& stream) override {
    Device::call(function, context, stream);
    Device::call(function, context, stream);
  }
};

/// A copy runs at once, not in stream order.
struct CopyAtOnce : Honest {
  using Honest::copy;
  void copy(void* to, const void* from, uint64_t bytes, Stream&) override {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
};

/// One kind of work runs at once, not in stream order; unseen_copy: a copy, on a device whose memory the CPU is said
/// not to see.
struct AtOnce : Honest {
  sdk::DeviceProperties device_properties(int32_t device) override {
    sdk::DeviceProperties made = Device::device_properties(device);
    if (way == "unseen_copy") made.capabilities &= ~uint32_t{PLIANT_CAP_HOST_VISIBLE};
    return made;
  }
  void copy(void* to, const void* from, uint64_t bytes, Stream& stream) override {
    if (way != "unseen_copy") return Device::copy(to, from, bytes, stream);
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  void copy(std::span<const pliant_copy> copies, Stream& stream) override {
    if (way != "batch") return Device::copy(copies, stream);
    for (const pliant_copy& one : copies) {
      if (one.bytes != 0) std::memcpy(one.to, one.from, one.bytes);
    }
  }
  void fill(void* to, uint8_t byte, uint64_t bytes, Stream& stream) override {
    if (way != "fill") return Device::fill(to, byte, bytes, stream);
    if (bytes != 0) std::memset(to, byte, bytes);
  }
  void reduce(void* to, std::span<const void* const> from, Elements elements, ReduceOp op, double scale,
              Stream& stream) override {
    if (way != "reduce") return Device::reduce(to, from, elements, op, scale, stream);
    Stream beside(nullptr, uint64_t{0});
    Device::reduce(to, from, elements, op, scale, beside);
    beside.synchronize();
  }
  void cast(void* to, DType to_type, const void* from, Elements elements, Stream& stream) override {
    if (way != "cast") return Device::cast(to, to_type, from, elements, stream);
    Stream beside(nullptr, uint64_t{0});
    Device::cast(to, to_type, from, elements, beside);
    beside.synchronize();
  }
};

/// What streams and events say, or how they end. dropped: destroying a stream drops the host function behind many
/// fills; woken: stream_synchronize returns when other streams have done enough; unwaited: event_synchronize does not
/// wait; idle: stream_query says that all is done; pending: an event that was never recorded is not done; untimed:
/// every event has a time; together: a fill of a page waits for what other streams stand at.
class OrderWrong : public Honest {
 public:
  std::unique_ptr<Stream> make_stream(int32_t device, sdk::StreamUse use) override {
    auto made = Device::make_stream(device, use);
    const std::lock_guard lock(mutex_);
    accounts_[made.get()] = std::make_shared<Account>();
    return made;
  }
  using Honest::destroy;
  void destroy(std::unique_ptr<Stream> stream) override { account_of(*stream)->ending = true; }
  std::unique_ptr<Event> make_event(int32_t device, bool timing) override {
    auto made = Device::make_event(device, timing || way == "untimed");
    const std::lock_guard lock(mutex_);
    fresh_.insert(made.get());
    return made;
  }
  void record(Event& event, Stream& stream) override {
    Device::record(event, stream);
    const std::lock_guard lock(mutex_);
    fresh_.erase(&event);
  }
  using Honest::query;
  bool query(Event& event) override {
    const std::lock_guard lock(mutex_);
    return Device::query(event) && (way != "pending" || fresh_.count(&event) == 0);
  }
  bool query(Stream& stream) override { return way == "idle" || Device::query(stream); }
  void synchronize(Event& event) override {
    if (way != "unwaited") Device::synchronize(event);
  }
  void synchronize(Stream& stream) override {
    const std::shared_ptr<Account> account = account_of(stream);
    const uint64_t before = filled_by_others(*account);
    while (way == "woken" && !Device::query(stream)) {
      if (filled_by_others(*account) >= before + 20) return;
      std::this_thread::yield();
    }
    Device::synchronize(stream);
  }
  void fill(void* to, uint8_t byte, uint64_t bytes, Stream& stream) override {
    const std::shared_ptr<Account> account = account_of(stream);
    ++account->fills_in_a_row;
    if (way == "together" && bytes == kPage) {
      const std::lock_guard lock(mutex_);
      for (const auto& [other, mark] : stands_) {
        if (other != &stream) stream.wait_for(mark);
      }
    }
    Device::fill(to, byte, bytes, stream);
    stream.enqueue([all = filled_, account] {
      ++*all;
      ++account->filled;
    });
  }
  void call(void (*function)(void*), void* context, Stream& stream) override {
    const std::shared_ptr<Account> account = account_of(stream);
    const bool drops = way == "dropped" && account->fills_in_a_row >= 16;
    account->fills_in_a_row = 0;
    stream.enqueue([=] {
      if (drops) std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the fault itself
      if (!drops || !account->ending) function(context);
    });
    const std::lock_guard lock(mutex_);
    if (way == "together") stands_[&stream] = stream.mark();
  }

 private:
  /// Of a stream.
  struct Account {
    std::atomic<bool> ending{false};
    std::atomic<uint64_t> filled{0};
    std::atomic<int> fills_in_a_row{0};
  };
  std::shared_ptr<Account> account_of(const Stream& stream) {
    const std::lock_guard lock(mutex_);
    return accounts_.at(&stream);
  }
  [[nodiscard]] uint64_t filled_by_others(const Account& account) const {
    const uint64_t own = account.filled;  // first, as it is counted last
    return *filled_ - own;
  }

  const std::shared_ptr<std::atomic<uint64_t>> filled_ = std::make_shared<std::atomic<uint64_t>>(0);
  std::mutex mutex_;
  std::map<const Stream*, std::shared_ptr<Account>> accounts_;
  std::set<const Event*> fresh_;                                        ///< never recorded
  std::map<const Stream*, std::shared_ptr<accelerator::Mark>> stands_;  ///< where a host function was called
};

}  // namespace

std::vector<Fault> order_faults() {
  return {
      {"wait-forgets", {}, make<WaitForgets>},
      {"call-twice", {}, make<CallTwice>},
      {"copy-at-once", {}, make<CopyAtOnce>},
      {"at-once", {"batch", "fill", "reduce", "cast", "unseen_copy"}, make<AtOnce>},
      {"order-wrong", {"dropped", "woken", "unwaited", "idle", "pending", "untimed", "together"}, make<OrderWrong>}};
}

}  // namespace pliant::broken
