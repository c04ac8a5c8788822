// Faults of how long things live.
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "faults.hpp"

namespace pliant::broken {
namespace {

/// event_destroy waits until the event is reached.
struct EventDestroyWaits : Honest {
  using Honest::destroy;
  void destroy(std::unique_ptr<Event> event) override {
    try {
      event->synchronize();
    } catch (const Failure&) {
    }
  }
};

/// An event is lost with the stream that it was recorded on.
class EventNeedsStream : public Honest {
 public:
  std::unique_ptr<Stream> make_stream(int32_t device, sdk::StreamUse use) override {
    auto made = Device::make_stream(device, use);
    const std::lock_guard lock(mutex_);
    alive_[made.get()] = std::make_shared<std::atomic<bool>>(true);
    return made;
  }
  using Honest::destroy;
  void destroy(std::unique_ptr<Stream> stream) override {
    const std::lock_guard lock(mutex_);
    *alive_.at(stream.get()) = false;
  }
  void destroy(std::unique_ptr<Event> event) override {
    const std::lock_guard lock(mutex_);
    recorded_on_.erase(event.get());
  }
  void record(Event& event, Stream& stream) override {
    {
      const std::lock_guard lock(mutex_);
      recorded_on_[&event] = alive_.at(&stream);
    }
    Device::record(event, stream);
  }
  void wait(Stream& stream, Event& event) override {
    {
      const std::lock_guard lock(mutex_);
      const auto found = recorded_on_.find(&event);
      if (found != recorded_on_.end() && !*found->second) {
        throw Failure(PLIANT_FAILED_PRECONDITION, "its stream is gone");
      }
    }
    Device::wait(stream, event);
  }

 private:
  using Alive = std::shared_ptr<std::atomic<bool>>;
  std::mutex mutex_;
  std::map<const Stream*, Alive> alive_;
  std::map<const Event*, Alive> recorded_on_;
};

/// A stream that a communicator was used on is of no more use when that was destroyed.
class CommKeepsStream : public Honest {
 public:
  using Honest::destroy;
  void destroy(std::unique_ptr<Comm> comm) override {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = used_.equal_range(comm.get());
    for (auto one = first; one != last; ++one) spoilt_.insert(one->second);
    used_.erase(first, last);
  }
  std::unique_ptr<Stream> make_stream(int32_t device, sdk::StreamUse use) override {
    auto made = Device::make_stream(device, use);
    const std::lock_guard lock(mutex_);
    spoilt_.erase(made.get());
    return made;
  }
  void all_reduce(Comm& comm, const void* send, void* recv, Elements elements, ReduceOp op, Stream& stream) override {
    {
      const std::lock_guard lock(mutex_);
      used_.emplace(&comm, &stream);
    }
    Device::all_reduce(comm, send, recv, elements, op, stream);
  }
  void fill(void* to, uint8_t byte, uint64_t bytes, Stream& stream) override {
    {
      const std::lock_guard lock(mutex_);
      if (spoilt_.count(&stream) != 0) throw Failure(PLIANT_INTERNAL, "its communicator is gone");
    }
    Device::fill(to, byte, bytes, stream);
  }

 private:
  std::mutex mutex_;
  std::multimap<const Comm*, const Stream*> used_;
  std::set<const Stream*> spoilt_;
};

}  // namespace

std::vector<Fault> lifetime_faults() {
  return {{"event-destroy-waits", {}, make<EventDestroyWaits>},
          {"event-needs-stream", {}, make<EventNeedsStream>},
          {"comm-keeps-stream", {}, make<CommKeepsStream>}};
}

}  // namespace pliant::broken
