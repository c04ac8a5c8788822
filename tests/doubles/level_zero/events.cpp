// Events of the software driver.
#include <chrono>

#include "objects.hpp"

namespace soft_ze {

ze_result_t ZE_APICALL event_pool_create(ze_context_handle_t context, const ze_event_pool_desc_t* wanted, uint32_t,
                                         ze_device_handle_t*, ze_event_pool_handle_t* out) {
  if (wanted == nullptr || out == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  if (wanted->count == 0) return ZE_RESULT_ERROR_INVALID_SIZE;
  auto made = std::make_unique<EventPool>();
  made->context = &of(context);
  made->flags = wanted->flags;
  made->taken.resize(wanted->count);
  if ((wanted->flags & ZE_EVENT_POOL_FLAG_IPC) != 0) {
    made->shared = SharedPool::make(of(context), -1, wanted->count);
    if (made->shared == nullptr) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  }
  ++counts().event_pools;
  ++counts().pools_made;
  *out = reinterpret_cast<ze_event_pool_handle_t>(made.release());
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL event_pool_destroy(ze_event_pool_handle_t handle) {
  EventPool& pool = of(handle);
  if (pool.imported) violation("an event pool was destroyed that was opened; it is closed");
  for (const bool taken : pool.taken) {
    if (taken) violation("an event pool was destroyed before its events");
  }
  delete &pool;
  --counts().event_pools;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL event_create(ze_event_pool_handle_t handle, const ze_event_desc_t* wanted,
                                    ze_event_handle_t* out) {
  if (wanted == nullptr || out == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  EventPool& pool = of(handle);
  const std::lock_guard lock(pool.context->mutex);
  if (wanted->index >= pool.taken.size() || pool.taken[wanted->index]) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  pool.taken[wanted->index] = true;
  auto* made = new Event;
  made->pool = &pool;
  made->index = wanted->index;
  ++counts().events;
  ++counts().events_made;
  *out = reinterpret_cast<ze_event_handle_t>(made);
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL event_destroy(ze_event_handle_t handle) {
  Event& event = of(handle);
  {
    const std::lock_guard lock(event.pool->context->mutex);
    if (event.in_use != 0 && !event.pool->context->lost) violation("an event was destroyed while commands use it");
    event.pool->taken[event.index] = false;
  }
  delete &event;
  --counts().events;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL event_host_signal(ze_event_handle_t handle) {
  Event& event = of(handle);
  const std::lock_guard lock(event.pool->context->mutex);
  const bool is_shared = event.pool->shared != nullptr;  // others may have signalled it meanwhile, and wait for it
  if (event.pool->context->lost && !is_shared) return ZE_RESULT_ERROR_DEVICE_LOST;
  if (event.is_signalled() && !is_shared) violation("the host signalled an event that was signalled");
  event.set_signalled(true);
  event.by_device = false;
  event.pool->context->changed.notify_all();
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL event_host_synchronize(ze_event_handle_t handle, uint64_t timeout_ns) {
  Event& event = of(handle);
  Context& context = *event.pool->context;
  std::unique_lock lock(context.mutex);
  const auto over = [&] { return event.is_signalled() || context.lost; };
  if (timeout_ns == UINT64_MAX) {
    context.changed.wait(lock, over);
  } else {
    context.changed.wait_for(lock, std::chrono::nanoseconds(timeout_ns), over);
  }
  if (event.is_signalled()) return ZE_RESULT_SUCCESS;
  return context.lost ? ZE_RESULT_ERROR_DEVICE_LOST : ZE_RESULT_NOT_READY;
}

ze_result_t ZE_APICALL event_query_status(ze_event_handle_t handle) {
  return event_host_synchronize(handle, 0);
}

ze_result_t ZE_APICALL event_host_reset(ze_event_handle_t handle) {
  Event& event = of(handle);
  const std::lock_guard lock(event.pool->context->mutex);
  if (event.in_use != 0 && !event.pool->context->lost) violation("an event was reset while commands use it");
  event.set_signalled(false);
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL event_query_kernel_timestamp(ze_event_handle_t handle, ze_kernel_timestamp_result_t* out) {
  Event& event = of(handle);
  const std::lock_guard lock(event.pool->context->mutex);
  if (!event.is_signalled()) return ZE_RESULT_NOT_READY;
  if ((event.pool->flags & ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP) == 0 || !event.by_device) {
    violation("an event without times was asked for them");
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  }
  out->global = {event.start_ticks, event.end_ticks};
  out->context = out->global;
  return ZE_RESULT_SUCCESS;
}

}  // namespace soft_ze
