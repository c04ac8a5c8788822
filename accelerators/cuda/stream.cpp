// Keeps device and host work in one order.
#include "stream.hpp"

#include <unistd.h>

#include <utility>

#include "ipc_event.hpp"
#include "result.hpp"

namespace pliant::cuda {

using sdk::Failure;

Stream::Stream(DevicePtr device, std::shared_ptr<EventPool> events, int priority, uint64_t staging_bytes)
    : device_(std::move(device)), events_(std::move(events)), staging_bytes_(staging_bytes) {
  const OnDevice here(device_->api, device_->index);
  check(device_->api, device_->api.cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority),
        "cudaStreamCreateWithPriority");
}

Stream::~Stream() {
  if (::getpid() != device_->owner) {
    static_cast<void>(host_.release());  // the thread is not here
    return;
  }
  try {
    synchronize();
  } catch (const std::exception&) {  // nobody is left to be told
  }
  host_->wait_idle();
  const OnDevice here(device_->api, device_->index);
  if (device_->api.cudaStreamDestroy(stream_) != cudaSuccess) static_cast<void>(device_->api.cudaGetLastError());
}

void Stream::run(const DeviceWork& work) const {
  const OnDevice here(device_->api, device_->index);
  work(device_->api, stream_);
}

void Stream::put(DeviceWork work) {
  const uint64_t number = ++enqueued_;
  if (host_->idle()) {
    run(work);
  } else {
    host_->push([this, work = std::move(work)] { run(work); }, number);
  }
}

Stream::Turn::Turn(Stream& stream) : stream_(stream), lock_(stream.mutex_) {
  require_process(stream.device_->owner);
}

void Stream::Turn::on_thread(DeviceWork work) {
  Stream* stream = &stream_;
  stream->host_->push([stream, work = std::move(work)] { stream->run(work); }, ++stream->enqueued_);
}

void Stream::Turn::on_host(HostWork work) {
  Stream* stream = &stream_;
  stream->host_->push(
      [stream, work = std::move(work)] {
        const Api& api = stream->device_->api;
        const cudaError_t drained = api.cudaStreamSynchronize(stream->stream_);
        const OnDevice here(api, stream->device_->index);
        work(drained != cudaSuccess);
        check(api, drained, "cudaStreamSynchronize");
      },
      ++stream->enqueued_);
}

std::byte* Stream::Turn::staging() {
  if (!stream_.staging_) stream_.staging_ = std::make_unique<PinnedBlock>(stream_.device_, stream_.staging_bytes_);
  return stream_.staging_->data();
}

Stream::Recorded Stream::record_locked(bool timed) {
  auto mark = std::make_shared<Mark>(events_, timed);
  put([mark](const Api&, cudaStream_t stream) { mark->submit(stream); });
  return {std::move(mark), enqueued_};
}

Stream::Recorded Stream::record(bool timed) {
  const std::lock_guard lock(mutex_);
  require_process(device_->owner);
  return record_locked(timed);
}

void Stream::synchronize() {
  Recorded last;
  {
    const std::lock_guard lock(mutex_);
    require_process(device_->owner);
    try {
      if (!host_->idle()) last = record_locked(false);
      last.number = enqueued_;
    } catch (const Failure&) {
      failures_->tell(enqueued_);  // what came first is told first
      throw;
    }
  }
  const Api& api = device_->api;
  const cudaError_t result = last.mark ? last.mark->wait() : api.cudaStreamSynchronize(stream_);
  host_->wait_past(last.number);  // so that the stream is idle for those who ask
  failures_->tell(last.number);
  check(api, result, last.mark ? "cudaEventSynchronize" : "cudaStreamSynchronize");
}

bool Stream::query() {
  const std::lock_guard lock(mutex_);
  require_process(device_->owner);
  if (!host_->idle()) return false;
  const cudaError_t result = device_->api.cudaStreamQuery(stream_);
  if (result != cudaSuccess) static_cast<void>(device_->api.cudaGetLastError());
  return result != cudaErrorNotReady;  // synchronize tells other errors
}

void Stream::wait_for(const std::shared_ptr<Mark>& mark) {
  Turn turn(*this);
  if (mark->query() == cudaSuccess) return;
  const auto wait = [mark](const Api& api, cudaStream_t stream) {
    mark->wait_submitted();
    if (mark->event() == nullptr) return;  // a failure is told by the stream that has it
    check(api, api.cudaStreamWaitEvent(stream, mark->event(), 0), "cudaStreamWaitEvent");
  };
  if (mark->is_submitted()) {
    turn.on_device(wait);
  } else {
    turn.on_thread(wait);
  }
}

Event::Recording Event::latest() {
  require_process(device_->owner);
  const std::lock_guard lock(mutex_);
  return recording_;
}

std::shared_ptr<Mark> Event::reached_mark(const char* which) {
  std::shared_ptr<Mark> mark = latest().at.mark;
  if (!timed_ || !mark) {
    throw Failure(PLIANT_FAILED_PRECONDITION, std::string("the ") + which + " event " +
                                                  (timed_ ? "was never recorded" : "was made without timing"));
  }
  const cudaError_t result = mark->query();
  if (result == cudaErrorNotReady) {
    throw Failure(PLIANT_FAILED_PRECONDITION, "the event has not been reached yet; synchronize first");
  }
  check(device_->api, result, "cudaEventQuery");
  return mark;
}

double Event::elapsed(Event& begin, Event& end) {
  const std::shared_ptr<Mark> first = begin.reached_mark("first");
  const std::shared_ptr<Mark> last = end.reached_mark("last");
  if (first->device().index != last->device().index) {
    throw Failure(PLIANT_FAILED_PRECONDITION,
                  "the events were recorded on different devices, which have clocks of "
                  "their own; record both on streams of one device");
  }
  float milliseconds = 0;
  const Api& api = first->device().api;
  check(api, api.cudaEventElapsedTime(&milliseconds, first->event(), last->event()), "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) / 1000;
}

void Event::record(Stream& stream) {
  if (shared_) return shared_->record(stream);
  require_process(device_->owner);
  Recording made{stream.record(timed_), stream.failures()};
  const std::lock_guard lock(mutex_);
  std::swap(recording_, made);
}

bool Event::query() {
  if (shared_) return shared_->query();
  const Recording recording = latest();
  return !recording.at.mark || recording.at.mark->query() != cudaErrorNotReady;
}

void Event::synchronize() {
  if (shared_) return shared_->synchronize();
  const Recording recording = latest();
  if (!recording.at.mark) return;
  const cudaError_t result = recording.at.mark->wait();
  recording.failures->tell(recording.at.number);
  check(device_->api, result, "cudaEventSynchronize");
}

void Event::make_wait(Stream& stream) {
  if (shared_) return shared_->make_wait(stream);
  const Recording recording = latest();
  if (recording.at.mark) stream.wait_for(recording.at.mark);
}

}  // namespace pliant::cuda
