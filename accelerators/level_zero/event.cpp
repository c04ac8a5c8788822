// Events of Level Zero and their blocks.
#include "event.hpp"

#include <unistd.h>

#include <limits>

#include "result.hpp"

namespace pliant::level_zero {

using sdk::Failure;

void FailureSlot::put(const Failure& failure, uint64_t at) {
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  failure_.emplace(failure);
  at_ = at;
}

void FailureSlot::tell(uint64_t last) {
  const std::lock_guard lock(mutex_);
  if (!failure_ || at_ > last) return;
  const Failure told = *failure_;
  failure_.reset();
  throw Failure(told);
}

Mark::Mark(std::shared_ptr<EventPool> pool, ze_event_handle_t event, const Timer* timer)
    : pool_(std::move(pool)), event_(event), timer_(timer == nullptr ? std::nullopt : std::optional<Timer>(*timer)) {}

Mark::~Mark() {
  pool_->give_back(event_, timer_.has_value());
}

const Context* Mark::context() const {
  return pool_->context().get();
}

ze_result_t Mark::query() {
  if (reached_) return ZE_RESULT_SUCCESS;
  const ze_result_t result = pool_->context()->api.zeEventQueryStatus(event_);
  if (result == ZE_RESULT_SUCCESS) reached_ = true;
  return result;
}

ze_result_t Mark::wait() {
  if (reached_) return ZE_RESULT_SUCCESS;
  ze_result_t result = ZE_RESULT_NOT_READY;
  while (result == ZE_RESULT_NOT_READY) {
    result = pool_->context()->api.zeEventHostSynchronize(event_, std::numeric_limits<uint64_t>::max());
  }
  if (result == ZE_RESULT_SUCCESS) reached_ = true;
  return result;
}

ze_result_t Mark::signal() {
  return pool_->context()->api.zeEventHostSignal(event_);
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

std::shared_ptr<Mark> EventPool::take(const Timer* timer) {
  const std::lock_guard lock(mutex_);
  Kind& kind = timer != nullptr ? timed_ : plain_;
  if (kind.free.empty()) grow(kind, timer != nullptr);
  auto made = std::make_shared<Mark>(shared_from_this(), kind.free.back(), timer);
  kind.free.pop_back();
  return made;
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
  const Api& api = context_->api;
  // One that is not signalled may still be, by a device that was lost: it is not used again and goes with its block.
  if (api.zeEventQueryStatus(event) != ZE_RESULT_SUCCESS || api.zeEventHostReset(event) != ZE_RESULT_SUCCESS) return;
  const std::lock_guard lock(mutex_);
  (timed ? timed_ : plain_).free.push_back(event);
}

}  // namespace pliant::level_zero
