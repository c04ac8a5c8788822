// Appends to a command list.
#include "command_list.hpp"

#include "result.hpp"

namespace pliant::level_zero {

using sdk::Failure;

namespace {
/// Marks that are held before a fence is put behind them, so that a stream that only waits does not gather them.
constexpr size_t kMostHeld = 32;
constexpr const char* kBarrier = "zeCommandListAppendBarrier";
}  // namespace

CommandList::CommandList(const DeviceEntry& device, std::shared_ptr<EventPool> events, QueueChoice queue)
    : device_(device), events_(std::move(events)) {
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

CommandList::~CommandList() {
  device_.context->api.zeCommandListDestroy(list_);
}

void CommandList::require(ze_result_t result, const char* call) {
  if (result == ZE_RESULT_SUCCESS) return;
  broken_ = true;
  throw failure_of(result, call);
}

ze_result_t CommandList::barrier(ze_event_handle_t signal, ze_event_handle_t wait) {
  tail_.reset();
  empty_ = false;
  const ze_result_t result = device_.context->api.zeCommandListAppendBarrier(list_, signal, wait == nullptr ? 0 : 1,
                                                                             wait == nullptr ? nullptr : &wait);
  if (result == ZE_RESULT_SUCCESS) unordered_ = false;
  return result;
}

void CommandList::add(const Append& append) {
  if (unordered_) require(barrier(nullptr, nullptr), kBarrier);
  tail_.reset();
  empty_ = false;
  unordered_ = true;
  append(device_.context->api, list_);
}

void CommandList::add_wait(std::shared_ptr<Signal> mark) {
  if (mark->query() != ZE_RESULT_NOT_READY) return;
  require(barrier(nullptr, mark->event()), kBarrier);
  held_.push_back(std::move(mark));
  if (held_.size() >= kMostHeld) static_cast<void>(tail());
}

void CommandList::add_mark(const std::shared_ptr<Mark>& mark) {
  const bool timed = mark->timer().has_value();
  if (empty_ && !timed) {
    mark->reach();
    return;
  }
  ze_event_handle_t event = nullptr;
  try {
    event = mark->take_event();
  } catch (const Failure&) {
    mark->fail(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    throw;
  }
  const ze_result_t result = barrier(event, nullptr);
  if (result != ZE_RESULT_SUCCESS) {
    mark->give_back(event);
    mark->fail(result);
    require(result, kBarrier);
  }
  mark->submit(event);
  fences_.push_back({mark, std::move(held_)});
  held_.clear();
  drop_reached();
  tail_ = mark;
}

std::shared_ptr<Mark> CommandList::tail() {
  if (tail_) return tail_;
  auto made = std::make_shared<Mark>(events_, nullptr);
  add_mark(made);
  return made;
}

void CommandList::drain() {
  if (empty_) return;
  require(tail()->wait(), "zeEventHostSynchronize");
  empty_ = true;
  drop_reached();
}

void CommandList::drop_reached() {
  while (!fences_.empty() && fences_.front().mark->query() == ZE_RESULT_SUCCESS) fences_.pop_front();
}

}  // namespace pliant::level_zero
