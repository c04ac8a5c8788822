// The functions of the software driver, by the file that has them, and the way from handles to objects.
#pragma once

#include <level_zero/ze_api.h>

#include <optional>

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

/// The handle of the one driver that there is.
ze_driver_handle_t the_driver();

constexpr uint32_t kLargestGroup = 96;  ///< work items of a group
constexpr uint32_t kMostGroups = 40;    ///< of one launch

/// The events of a command; NULL handles are refused.
bool take_events(Command& command, ze_event_handle_t signal, uint32_t count, ze_event_handle_t* waits);
/// Where the driver finds a range: in an allocation, in memory of the program that it has pinned, or in plain memory if
/// it may. What is none of these is refused.
std::optional<std::byte*> place(Context& context, Command& command, const void* pointer, size_t bytes);

// host_pointers.cpp
ze_result_t ZE_APICALL driver_get_extension_function_address(ze_driver_handle_t, const char*, void**);
/// What holds all of the range; NULL where nothing does.
std::shared_ptr<Allocation> find_pinned(const void* pointer, uint64_t bytes);

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
ze_result_t ZE_APICALL mem_get_address_range(ze_context_handle_t, const void*, void**, size_t*);
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

// modules.cpp
ze_result_t ZE_APICALL device_get_module_properties(ze_device_handle_t, ze_device_module_properties_t*);
ze_result_t ZE_APICALL device_get_compute_properties(ze_device_handle_t, ze_device_compute_properties_t*);
ze_result_t ZE_APICALL module_create(ze_context_handle_t, ze_device_handle_t, const ze_module_desc_t*,
                                     ze_module_handle_t*, ze_module_build_log_handle_t*);
ze_result_t ZE_APICALL module_destroy(ze_module_handle_t);
ze_result_t ZE_APICALL build_log_destroy(ze_module_build_log_handle_t);
ze_result_t ZE_APICALL build_log_get_string(ze_module_build_log_handle_t, size_t*, char*);
ze_result_t ZE_APICALL kernel_create(ze_module_handle_t, const ze_kernel_desc_t*, ze_kernel_handle_t*);
ze_result_t ZE_APICALL kernel_destroy(ze_kernel_handle_t);
ze_result_t ZE_APICALL kernel_set_group_size(ze_kernel_handle_t, uint32_t, uint32_t, uint32_t);
ze_result_t ZE_APICALL kernel_set_argument_value(ze_kernel_handle_t, uint32_t, size_t, const void*);
ze_result_t ZE_APICALL append_launch_kernel(ze_command_list_handle_t, ze_kernel_handle_t, const ze_group_count_t*,
                                            ze_event_handle_t, uint32_t, ze_event_handle_t*);

}  // namespace soft_ze
