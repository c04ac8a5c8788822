// Keeps device and host work in one order.
#include "stream.hpp"

#include <unistd.h>

#include <utility>

#include "result.hpp"

namespace pliant::level_zero {

using sdk::Failure;

Stream::Stream(const DeviceEntry& device, std::shared_ptr<EventPool> events, QueueChoice queue, uint64_t staging_bytes)
    : device_(device),
      events_(std::move(events)),
      staging_bytes_(staging_bytes),
      computes_(queue.computes),
      list_(std::make_unique<CommandList>(device_, events_, queue)) {}

Stream::~Stream() {
  if (::getpid() != device_.context->owner) {
    // The thread is not here, and what waits for it or holds handles of the driver cannot be destroyed.
    static_cast<void>(host_.release());
    static_cast<void>(list_.release());
    return;
  }
  try {
    synchronize();
  } catch (const std::exception&) {  // nobody is left to be told
  }
  host_->wait_idle();
}

void Stream::require_owner() const {
  require_process(device_.context->owner);
}

void Stream::put(std::function<void(CommandList& list)> work) {
  const uint64_t number = ++enqueued_;
  if (host_->idle()) {
    work(*list_);
  } else {
    host_->push([this, work = std::move(work)] { work(*list_); }, number);
  }
}

Stream::Turn::Turn(Stream& stream) : stream_(stream), lock_(stream.mutex_) {
  stream.require_owner();
}

void Stream::Turn::on_device(CommandList::Append append) {
  stream_.put([append = std::move(append)](CommandList& list) { list.add(append); });
}

void Stream::Turn::on_host(HostWork work) {
  Stream* stream = &stream_;
  stream->host_->push(
      [stream, work = std::move(work)] {
        CommandList& list = *stream->list_;
        if (list.broken()) return work(true);
        try {
          list.drain();
        } catch (const Failure&) {
          work(true);
          throw;
        }
        work(false);
      },
      ++stream->enqueued_);
}

std::byte* Stream::Turn::staging() {
  if (!stream_.staging_) {
    stream_.staging_ = std::make_unique<PinnedBlock>(stream_.device_.context, stream_.staging_bytes_);
  }
  return stream_.staging_->data();
}

Stream::Recorded Stream::record_locked(bool timed, const std::shared_ptr<IpcEvent>& shared) {
  std::unique_ptr<OwnRecording> told;
  if (shared != nullptr) {
    if (host_->idle()) list_->drop_reached();  // recordings of it, so that there is room
    told = std::make_unique<OwnRecording>(shared, failures_, enqueued_);
  }
  const uint64_t number = told == nullptr ? 0 : told->recording().number;
  auto mark = std::make_shared<Mark>(events_, timed ? &device_.timer : nullptr, std::move(told));
  put([mark](CommandList& list) { list.add_mark(mark); });
  return {std::move(mark), enqueued_, number};
}

Stream::Recorded Stream::record(bool timed, const std::shared_ptr<IpcEvent>& shared) {
  const std::lock_guard lock(mutex_);
  require_owner();
  return record_locked(timed, shared);
}

void Stream::synchronize() {
  Recorded last;
  {
    const std::lock_guard lock(mutex_);
    require_owner();
    try {
      last = host_->idle() && !list_->empty() ? Recorded{list_->tail(), enqueued_} : record_locked(false);
    } catch (const Failure&) {
      failures_->tell(enqueued_);  // what came first is told first
      throw;
    }
  }
  const ze_result_t result = last.mark->wait();
  host_->wait_past(last.number);  // so that the stream is idle for those who ask
  judge_peers(last.number);
  failures_->tell(last.number);
  check(result, "zeEventHostSynchronize");
}

void Stream::judge_peers(uint64_t last) {
  const std::lock_guard lock(mutex_);
  std::erase_if(peer_waits_, [&](const PeerWait& one) {
    if (one.number > last) return false;
    try {
      one.recording->require_reached();
    } catch (const Failure& failure) {
      failures_->put(failure, one.number);
    }
    return true;
  });
}

bool Stream::query() {
  const std::lock_guard lock(mutex_);
  require_owner();
  if (!host_->idle()) return false;
  if (list_->empty()) return true;
  try {
    return list_->tail()->query() != ZE_RESULT_NOT_READY;
  } catch (const Failure&) {  // synchronize will meet it, too, and tell it
    return true;
  }
}

void Stream::wait_for(const std::shared_ptr<Signal>& mark) {
  const std::lock_guard lock(mutex_);
  require_owner();
  wait_locked(mark);
}

void Stream::wait_for_peer(const std::shared_ptr<PeerRecording>& recording) {
  const std::lock_guard lock(mutex_);
  require_owner();
  wait_locked(recording);
  std::erase_if(peer_waits_, [](const PeerWait& one) { return one.recording->is_reached(); });
  if (!recording->is_reached()) peer_waits_.push_back({enqueued_, recording});
}

void Stream::wait_locked(const std::shared_ptr<Signal>& mark) {
  if (mark->query() == ZE_RESULT_SUCCESS) return;
  const bool same_driver = mark->context() == device_.context.get();
  if (same_driver && mark->is_submitted()) {
    put([mark](CommandList& list) { list.add_wait(mark); });
    return;
  }
  // A queue waits for nothing that the CPU still has to submit, and a driver knows nothing of another's events.
  host_->push(
      [this, mark, same_driver] {
        if (same_driver) {
          mark->wait_submitted();
          list_->add_wait(mark);
        } else {
          static_cast<void>(mark->wait());  // a failure is told by the stream that has it
        }
      },
      ++enqueued_);
}

Event::~Event() {
  if (shared_ != nullptr && shared_->page().is_own()) shared_->retire();
}

Event::Recording Event::latest() {
  require_process(context_->owner);
  const std::lock_guard lock(mutex_);
  return recording_;
}

std::shared_ptr<Mark> Event::timed_mark(const char* which) {
  std::shared_ptr<Mark> mark = latest().at.mark;
  if (timed_ && mark) return mark;
  throw Failure(PLIANT_FAILED_PRECONDITION,
                std::string("the ") + which + " event " + (timed_ ? "was never recorded" : "was made without timing"));
}

double Event::elapsed(Event& begin, Event& end) {
  const std::shared_ptr<Mark> first = begin.timed_mark("first");
  const std::shared_ptr<Mark> last = end.timed_mark("last");
  const Timer timer = *first->timer();
  if (timer.device != last->timer()->device) {
    throw Failure(PLIANT_FAILED_PRECONDITION,
                  "the events were recorded on different devices, which have clocks of "
                  "their own; record both on streams of one device");
  }
  const uint64_t ticks = (last->ticks() - first->ticks()) & timer.mask;
  // The clock wraps around: the shorter way between the two is the one that was gone.
  const bool back = ticks > timer.mask / 2;
  const uint64_t distance = back ? (timer.mask - ticks) + 1 : ticks;
  return (back ? -1.0 : 1.0) * static_cast<double>(distance) / timer.ticks_per_second;
}

void Event::record(Stream& stream) {
  if (shared_ == nullptr) {
    Recording made{stream.record(timed_, nullptr), stream.failures()};
    const std::lock_guard lock(mutex_);
    std::swap(recording_, made);
    return;
  }
  Recording made;                      // what it was goes without the lock
  const std::lock_guard lock(mutex_);  // whoever asks for the latest finds it in both places
  made = {stream.record(false, shared_), stream.failures()};
  std::swap(recording_, made);
}

std::shared_ptr<PeerRecording> Event::latest_of_peer() {
  require_process(context_->owner);
  if (shared_ == nullptr) return nullptr;
  IpcEvent::Recording last;
  {
    const std::lock_guard lock(mutex_);
    last = shared_->page().latest();
    if (last.number == recording_.at.shared) return nullptr;
  }
  auto made = std::make_shared<PeerRecording>(shared_, last);
  made->watch();
  return made;
}

bool Event::query() {
  if (const auto peer = latest_of_peer()) return peer->query() != ZE_RESULT_NOT_READY;
  const Recording recording = latest();
  return !recording.at.mark || recording.at.mark->query() != ZE_RESULT_NOT_READY;
}

void Event::synchronize() {
  if (const auto peer = latest_of_peer()) {
    const ze_result_t result = peer->wait();
    peer->require_reached();
    return check(result, "zeEventHostSynchronize");
  }
  const Recording recording = latest();
  if (!recording.at.mark) return;
  const ze_result_t result = recording.at.mark->wait();
  recording.failures->tell(recording.at.number);
  check(result, "zeEventHostSynchronize");
}

void Event::make_wait(Stream& stream) {
  if (const auto peer = latest_of_peer()) return stream.wait_for_peer(peer);
  const Recording recording = latest();
  if (recording.at.mark) stream.wait_for(recording.at.mark);
}

}  // namespace pliant::level_zero
