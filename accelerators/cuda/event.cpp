// Events of CUDA, and points in streams.
#include "event.hpp"

#include <unistd.h>

#include "result.hpp"

namespace pliant::cuda {

using sdk::Failure;

EventPool::~EventPool() {
  if (::getpid() != device_->owner) return;
  for (const Kind* kind : {&plain_, &timed_}) {
    for (cudaEvent_t event : kind->free) static_cast<void>(device_->api.cudaEventDestroy(event));
  }
}

cudaEvent_t EventPool::take(bool timed) {
  const std::lock_guard lock(mutex_);
  Kind& kind = timed ? timed_ : plain_;
  if (kind.free.empty()) {
    kind.free.reserve(kind.made + 1);  // so that give_back never allocates
    const OnDevice here(device_->api, device_->index);
    cudaEvent_t made = nullptr;
    check(device_->api, device_->api.cudaEventCreateWithFlags(&made, timed ? cudaEventDefault : cudaEventDisableTiming),
          "cudaEventCreateWithFlags");
    ++kind.made;
    return made;
  }
  cudaEvent_t event = kind.free.back();
  kind.free.pop_back();
  return event;
}

void EventPool::give_back(cudaEvent_t event, bool timed) noexcept {
  const std::lock_guard lock(mutex_);
  (timed ? timed_ : plain_).free.push_back(event);
}

Mark::~Mark() {
  if (event_ == nullptr || ::getpid() != device().owner) return;
  // CUDA lets an event be recorded again at any time: whoever waits on a device waits for the recording that it saw.
  pool_->give_back(event_, timed_);
}

void Mark::become(State state) {
  state_ = state;
  state_.notify_all();
}

void Mark::submit(cudaStream_t stream) {
  const Api& api = device().api;
  try {
    const OnDevice here(api, device().index);
    event_ = pool_->take(timed_);
    failure_ = api.cudaEventRecord(event_, stream);
    check(api, failure_, "cudaEventRecord");
  } catch (const Failure&) {
    if (failure_ == cudaSuccess) failure_ = cudaErrorMemoryAllocation;
    become(State::kFailed);
    throw;
  }
  become(State::kSubmitted);
}

cudaError_t Mark::query() {
  switch (state_.load()) {
    case State::kPending:
      return cudaErrorNotReady;
    case State::kReached:
      return cudaSuccess;
    case State::kFailed:
      return failure_;
    case State::kSubmitted:
      break;
  }
  const Api& api = device().api;
  const cudaError_t result = api.cudaEventQuery(event_);
  if (result == cudaSuccess) {
    become(State::kReached);
  } else {
    static_cast<void>(api.cudaGetLastError());
  }
  return result;
}

cudaError_t Mark::wait() {
  wait_submitted();
  const cudaError_t now = query();
  if (now != cudaErrorNotReady) return now;
  const Api& api = device().api;
  const cudaError_t result = api.cudaEventSynchronize(event_);
  if (result == cudaSuccess) {
    become(State::kReached);
  } else {
    static_cast<void>(api.cudaGetLastError());
  }
  return result;
}

}  // namespace pliant::cuda
