// Events of Level Zero and their blocks.
#include "event.hpp"

#include <unistd.h>

#include <limits>

#include "result.hpp"

namespace pliant::level_zero {

using sdk::Failure;

Mark::Mark(std::shared_ptr<EventPool> pool, const Timer* timer, std::unique_ptr<SharedPoint> shared)
    : pool_(std::move(pool)),
      timer_(timer == nullptr ? std::nullopt : std::optional<Timer>(*timer)),
      shared_(std::move(shared)) {}

Mark::~Mark() {
  if (::getpid() != context()->owner) return;
  const bool reached = query() == ZE_RESULT_SUCCESS;
  if (shared_ != nullptr) {
    shared_->over(reached);
    return;
  }
  // One that was not reached may still be signalled, by a device that was lost: its event is not used again.
  if (event_ != nullptr && reached) pool_->give_back(event_, timer_.has_value());
}

ze_event_handle_t Mark::take_event() {
  return shared_ == nullptr ? pool_->take(timer_.has_value()) : shared_->take();
}

void Mark::give_back(ze_event_handle_t event) noexcept {
  if (shared_ == nullptr) pool_->give_back(event, timer_.has_value());
}

const Context* Mark::context() const {
  return pool_->context().get();
}

void Mark::become(State state) {
  state_ = state;
  state_.notify_all();
  if (shared_ == nullptr || state == State::kPending) return;
  if (state == State::kSubmitted) {
    shared_->submitted();
  } else {
    shared_->over(state == State::kReached);
  }
}

void Mark::submit(ze_event_handle_t event) {
  event_ = event;
  become(State::kSubmitted);
}

void Mark::reach() {
  become(State::kReached);
}

void Mark::fail(ze_result_t why) {
  failure_ = why;
  become(State::kFailed);
}

ze_result_t Mark::query() {
  switch (state_.load()) {
    case State::kPending:
      return ZE_RESULT_NOT_READY;
    case State::kReached:
      return ZE_RESULT_SUCCESS;
    case State::kFailed:
      return failure_;
    case State::kSubmitted:
      break;
  }
  const ze_result_t result = pool_->context()->api.zeEventQueryStatus(event_);
  if (result == ZE_RESULT_SUCCESS) become(State::kReached);
  return result;
}

ze_result_t Mark::wait() {
  wait_submitted();
  ze_result_t result = query();
  while (result == ZE_RESULT_NOT_READY) {
    result = pool_->context()->api.zeEventHostSynchronize(event_, std::numeric_limits<uint64_t>::max());
  }
  return result;
}

uint64_t Mark::ticks() {
  const ze_result_t result = query();
  if (result == ZE_RESULT_NOT_READY) {
    throw Failure(PLIANT_FAILED_PRECONDITION, "the event has not been reached yet; synchronize first");
  }
  check(result, "zeEventQueryStatus");
  ze_kernel_timestamp_result_t times{};
  check(pool_->context()->api.zeEventQueryKernelTimestamp(event_, &times), "zeEventQueryKernelTimestamp");
  return times.global.kernelEnd;
}

EventPool::~EventPool() {
  if (::getpid() != context_->owner) return;
  const Api& api = context_->api;
  for (Kind* kind : {&plain_, &timed_}) {
    for (ze_event_handle_t event : kind->events) api.zeEventDestroy(event);
    for (ze_event_pool_handle_t block : kind->blocks) api.zeEventPoolDestroy(block);
  }
}

ze_event_handle_t EventPool::take(bool timed) {
  const std::lock_guard lock(mutex_);
  Kind& kind = timed ? timed_ : plain_;
  if (kind.free.empty()) grow(kind, timed);
  ze_event_handle_t event = kind.free.back();
  kind.free.pop_back();
  return event;
}

void EventPool::grow(Kind& kind, bool timed) {
  const Api& api = context_->api;
  ze_event_pool_desc_t wanted{};
  wanted.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC;
  wanted.flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE;
  if (timed) wanted.flags |= ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP;
  wanted.count = kBlock;
  kind.blocks.reserve(kind.blocks.size() + 1);
  kind.events.reserve(kind.events.size() + kBlock);
  kind.free.reserve(kind.events.size() + kBlock);  // so that give_back never allocates
  ze_event_pool_handle_t block = nullptr;
  check(api.zeEventPoolCreate(context_->handle, &wanted, 0, nullptr, &block), "zeEventPoolCreate");
  kind.blocks.push_back(block);
  for (uint32_t index = 0; index < kBlock; ++index) {
    ze_event_desc_t one{};
    one.stype = ZE_STRUCTURE_TYPE_EVENT_DESC;
    one.index = index;
    one.signal = ZE_EVENT_SCOPE_FLAG_HOST;
    one.wait = ZE_EVENT_SCOPE_FLAG_HOST;
    ze_event_handle_t event = nullptr;
    check(api.zeEventCreate(block, &one, &event), "zeEventCreate");
    kind.events.push_back(event);
    kind.free.push_back(event);
  }
}

void EventPool::give_back(ze_event_handle_t event, bool timed) noexcept {
  if (::getpid() != context_->owner) return;
  if (context_->api.zeEventHostReset(event) != ZE_RESULT_SUCCESS) return;  // it goes with its block
  const std::lock_guard lock(mutex_);
  (timed ? timed_ : plain_).free.push_back(event);
}

}  // namespace pliant::level_zero
