// The functions of the software driver, by the file that has them, and the way from handles to objects.
#pragma once

#include <level_zero/ze_api.h>

#include "soft.hpp"

namespace soft_ze {

/// More in one allocation needs ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE.
constexpr uint64_t kLargestAlloc = uint64_t{256} << 20;

inline Context& of(ze_context_handle_t handle) {
  return *reinterpret_cast<Context*>(handle);
}
inline Device& of(ze_device_handle_t handle) {
  return *reinterpret_cast<Device*>(handle);
}
inline List& of(ze_command_list_handle_t handle) {
  return *reinterpret_cast<List*>(handle);
}
inline EventPool& of(ze_event_pool_handle_t handle) {
  return *reinterpret_cast<EventPool*>(handle);
}
inline Event& of(ze_event_handle_t handle) {
  return *reinterpret_cast<Event*>(handle);
}
inline ze_device_handle_t handle_of(Device* device) {
  return reinterpret_cast<ze_device_handle_t>(device);
}

// memory.cpp
ze_result_t ZE_APICALL mem_alloc_device(ze_context_handle_t, const ze_device_mem_alloc_desc_t*, size_t, size_t,
                                        ze_device_handle_t, void**);
ze_result_t ZE_APICALL mem_alloc_host(ze_context_handle_t, const ze_host_mem_alloc_desc_t*, size_t, size_t, void**);
ze_result_t ZE_APICALL mem_alloc_shared(ze_context_handle_t, const ze_device_mem_alloc_desc_t*,
                                        const ze_host_mem_alloc_desc_t*, size_t, size_t, ze_device_handle_t, void**);
ze_result_t ZE_APICALL mem_free(ze_context_handle_t, void*);
ze_result_t ZE_APICALL mem_get_alloc_properties(ze_context_handle_t, const void*, ze_memory_allocation_properties_t*,
                                                ze_device_handle_t*);

// ipc.cpp
ze_result_t ZE_APICALL mem_get_ipc_handle(ze_context_handle_t, const void*, ze_ipc_mem_handle_t*);
ze_result_t ZE_APICALL mem_open_ipc_handle(ze_context_handle_t, ze_device_handle_t, ze_ipc_mem_handle_t,
                                           ze_ipc_memory_flags_t, void**);
ze_result_t ZE_APICALL mem_close_ipc_handle(ze_context_handle_t, const void*);

// events.cpp
ze_result_t ZE_APICALL event_pool_create(ze_context_handle_t, const ze_event_pool_desc_t*, uint32_t,
                                         ze_device_handle_t*, ze_event_pool_handle_t*);
ze_result_t ZE_APICALL event_pool_destroy(ze_event_pool_handle_t);
ze_result_t ZE_APICALL event_create(ze_event_pool_handle_t, const ze_event_desc_t*, ze_event_handle_t*);
ze_result_t ZE_APICALL event_destroy(ze_event_handle_t);
ze_result_t ZE_APICALL event_host_signal(ze_event_handle_t);
ze_result_t ZE_APICALL event_host_synchronize(ze_event_handle_t, uint64_t);
ze_result_t ZE_APICALL event_query_status(ze_event_handle_t);
ze_result_t ZE_APICALL event_host_reset(ze_event_handle_t);
ze_result_t ZE_APICALL event_query_kernel_timestamp(ze_event_handle_t, ze_kernel_timestamp_result_t*);

// ipc_events.cpp
ze_result_t ZE_APICALL event_pool_get_ipc_handle(ze_event_pool_handle_t, ze_ipc_event_pool_handle_t*);
ze_result_t ZE_APICALL event_pool_open_ipc_handle(ze_context_handle_t, ze_ipc_event_pool_handle_t,
                                                  ze_event_pool_handle_t*);
ze_result_t ZE_APICALL event_pool_close_ipc_handle(ze_event_pool_handle_t);

// commands.cpp
ze_result_t ZE_APICALL list_create_immediate(ze_context_handle_t, ze_device_handle_t, const ze_command_queue_desc_t*,
                                             ze_command_list_handle_t*);
ze_result_t ZE_APICALL list_destroy(ze_command_list_handle_t);
ze_result_t ZE_APICALL append_barrier(ze_command_list_handle_t, ze_event_handle_t, uint32_t, ze_event_handle_t*);
ze_result_t ZE_APICALL append_memory_copy(ze_command_list_handle_t, void*, const void*, size_t, ze_event_handle_t,
                                          uint32_t, ze_event_handle_t*);
ze_result_t ZE_APICALL append_memory_fill(ze_command_list_handle_t, void*, const void*, size_t, size_t,
                                          ze_event_handle_t, uint32_t, ze_event_handle_t*);

}  // namespace soft_ze
