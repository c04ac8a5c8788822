// Keeps device and host work in one order.
#include "stream.hpp"

#include <unistd.h>

#include <limits>

#include "result.hpp"

namespace pliant::level_zero {

using sdk::Failure;

namespace {
/// Marks that are held before a fence is put behind them, so that a stream that only waits does not gather them.
constexpr size_t kMostHeld = 32;

void require_process(pid_t owner) {
  if (::getpid() == owner) return;
  throw Failure(PLIANT_FAILED_PRECONDITION, "the stream belongs to process " + std::to_string(owner) +
                                                ", which this one was forked from; drivers do not survive a fork");
}
}  // namespace

Stream::Stream(const DeviceEntry& device, std::shared_ptr<EventPool> events, QueueChoice queue, uint64_t staging_bytes)
    : device_(device), events_(std::move(events)), staging_bytes_(staging_bytes) {
  ze_command_queue_desc_t wanted{};
  wanted.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  wanted.ordinal = queue.ordinal;
  wanted.index = queue.index;
  if (queue.index != 0) wanted.flags = ZE_COMMAND_QUEUE_FLAG_EXPLICIT_ONLY;
  wanted.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
  wanted.priority = queue.priority;
  const Context& context = *device_.context;
  check(context.api.zeCommandListCreateImmediate(context.handle, device_.handle, &wanted, &list_),
        "zeCommandListCreateImmediate");
}

Stream::~Stream() {
  if (::getpid() != device_.context->owner) {
    static_cast<void>(host_.release());  // its thread is not here, and what waits on that cannot be destroyed
    return;
  }
  try {
    synchronize();
  } catch (const std::exception&) {  // nobody is left to be told
  }
  if (host_->queued() > 0) host_->wait_until(host_->queued());
  device_.context->api.zeCommandListDestroy(list_);
}

void Stream::require_owner() const {
  require_process(device_.context->owner);
}

void Stream::barrier(ze_event_handle_t signal, ze_event_handle_t wait) {
  check(device_.context->api.zeCommandListAppendBarrier(list_, signal, wait == nullptr ? 0 : 1,
                                                        wait == nullptr ? nullptr : &wait),
        "zeCommandListAppendBarrier");
  unordered_ = false;
  device_behind_ = true;
  tail_.reset();
}

void Stream::turn_to_device() {
  if (host_behind_) {
    std::shared_ptr<Mark> mark = events_->take();
    barrier(nullptr, mark->event());
    hold(mark);
    host_->signal(std::move(mark), enqueued_);
    host_behind_ = false;
  }
  if (unordered_) barrier(nullptr, nullptr);
}

void Stream::turn_to_host() {
  host_->start();
  if (device_behind_) {
    host_->wait_for(tail_ ? tail_ : append_mark(nullptr), enqueued_);
    device_behind_ = false;
  }
}

std::shared_ptr<Mark> Stream::append_mark(const Timer* timer) {
  turn_to_device();
  std::shared_ptr<Mark> mark = events_->take(timer);
  barrier(mark->event(), nullptr);
  fences_.push_back({mark, std::move(held_)});
  held_.clear();
  drop_reached();
  tail_ = mark;
  return mark;
}

void Stream::hold(std::shared_ptr<Mark> mark) {
  held_.push_back(std::move(mark));
}

void Stream::drop_reached() {
  while (!fences_.empty() && fences_.front().mark->query() == ZE_RESULT_SUCCESS) fences_.pop_front();
}

Stream::Turn::Turn(Stream& stream) : stream_(stream), lock_(stream.mutex_) {
  stream.require_owner();
}

void Stream::Turn::on_device(const Append& append) {
  stream_.turn_to_device();
  ++stream_.enqueued_;
  stream_.tail_.reset();
  stream_.device_behind_ = true;
  stream_.unordered_ = true;
  append(stream_.device_.context->api, stream_.list_);
}

void Stream::Turn::on_host(HostThread::Work work) {
  stream_.turn_to_host();
  stream_.host_->run(std::move(work), ++stream_.enqueued_);
  stream_.host_behind_ = true;
}

std::byte* Stream::Turn::staging() {
  if (!stream_.staging_) {
    stream_.staging_ = std::make_unique<PinnedBlock>(stream_.device_.context, stream_.staging_bytes_);
  }
  return stream_.staging_->data();
}

void Stream::synchronize() {
  uint64_t on_host = 0;
  uint64_t enqueued = 0;
  std::shared_ptr<Mark> mark;
  {
    const std::lock_guard lock(mutex_);
    require_owner();
    if (host_behind_) {
      on_host = host_->queued();
    } else if (device_behind_) {
      mark = tail_ ? tail_ : append_mark(nullptr);
    }
    enqueued = enqueued_;
  }
  if (on_host != 0) host_->wait_until(on_host);
  const ze_result_t result = mark ? mark->wait() : ZE_RESULT_SUCCESS;
  failures_->tell(enqueued);
  check(result, "zeEventHostSynchronize");
  const std::lock_guard lock(mutex_);
  drop_reached();
}

bool Stream::query() {
  const std::lock_guard lock(mutex_);
  require_owner();
  if (host_behind_) return host_->idle();
  if (!device_behind_) return true;
  try {
    if (!tail_) static_cast<void>(append_mark(nullptr));
  } catch (const Failure&) {  // synchronize will meet it, too, and tell it
    return true;
  }
  return tail_->query() != ZE_RESULT_NOT_READY;
}

std::pair<std::shared_ptr<Mark>, uint64_t> Stream::record(bool timed) {
  const std::lock_guard lock(mutex_);
  require_owner();
  return {append_mark(timed ? &device_.timer : nullptr), enqueued_};
}

void Stream::wait_for(const std::shared_ptr<Mark>& mark) {
  const std::lock_guard lock(mutex_);
  require_owner();
  if (mark->query() == ZE_RESULT_SUCCESS) return;
  ++enqueued_;
  if (mark->context() != device_.context.get()) {  // a driver knows nothing of another's events
    turn_to_host();
    host_->wait_for(mark, enqueued_);
    host_behind_ = true;
    return;
  }
  turn_to_device();
  barrier(nullptr, mark->event());
  hold(mark);
  if (held_.size() >= kMostHeld) static_cast<void>(append_mark(nullptr));
}

Event::Recording Event::latest() {
  require_process(context_->owner);
  const std::lock_guard lock(mutex_);
  return recording_;
}

std::shared_ptr<Mark> Event::timed_mark(const char* which) {
  std::shared_ptr<Mark> mark = latest().mark;
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
  auto [mark, number] = stream.record(timed_);
  const std::lock_guard lock(mutex_);
  recording_ = {std::move(mark), number, stream.failures()};
}

bool Event::query() {
  const Recording recording = latest();
  return !recording.mark || recording.mark->query() != ZE_RESULT_NOT_READY;
}

void Event::synchronize() {
  const Recording recording = latest();
  if (!recording.mark) return;
  const ze_result_t result = recording.mark->wait();
  recording.failures->tell(recording.number);
  check(result, "zeEventHostSynchronize");
}

void Event::make_wait(Stream& stream) {
  const Recording recording = latest();
  if (recording.mark) stream.wait_for(recording.mark);
}

}  // namespace pliant::level_zero
