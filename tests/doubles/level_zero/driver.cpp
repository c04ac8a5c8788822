// Drivers, devices and contexts of the software driver, and the tables by which the loader finds its functions.
#include <level_zero/ze_ddi.h>
#include <level_zero/zes_ddi.h>
#include <level_zero/zet_ddi.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "objects.hpp"

#define SOFT_ZE_EXPORT extern "C" __attribute__((visibility("default")))

namespace soft_ze {
namespace {

constexpr uint32_t kMostDevices = 8;
Device* device_at(uint32_t index) {
  static std::array<Device, kMostDevices> all{{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}};
  return &all[index];
}

ze_result_t ZE_APICALL init(ze_init_flags_t) {
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL driver_get(uint32_t* count, ze_driver_handle_t* drivers) {
  if (drivers != nullptr && *count >= 1) drivers[0] = the_driver();
  *count = 1;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL driver_get_api_version(ze_driver_handle_t, ze_api_version_t* version) {
  unsigned major = 1;
  unsigned minor = 4;
  const char* wanted = std::getenv("PLIANT_SOFT_ZE_API_VERSION");
  if (wanted != nullptr) static_cast<void>(std::sscanf(wanted, "%u.%u", &major, &minor));
  *version = static_cast<ze_api_version_t>(ZE_MAKE_VERSION(major, minor));
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL driver_get_properties(ze_driver_handle_t, ze_driver_properties_t* properties) {
  properties->driverVersion = 1;
  return ZE_RESULT_SUCCESS;
}

bool has_ipc() {
  return setting("PLIANT_SOFT_ZE_IPC", 1) != 0;
}

ze_result_t ZE_APICALL driver_get_ipc_properties(ze_driver_handle_t, ze_driver_ipc_properties_t* properties) {
  properties->flags = has_ipc() ? ze_ipc_property_flags_t{ZE_IPC_PROPERTY_FLAG_MEMORY} : 0U;
  if (has_ipc() && setting("PLIANT_SOFT_ZE_EVENT_IPC", 1) != 0) properties->flags |= ZE_IPC_PROPERTY_FLAG_EVENT_POOL;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL driver_get_extension_properties(ze_driver_handle_t, uint32_t* count,
                                                       ze_driver_extension_properties_t*) {
  *count = 0;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL device_get(ze_driver_handle_t, uint32_t* count, ze_device_handle_t* devices) {
  const auto there = std::min(static_cast<uint32_t>(setting("PLIANT_SOFT_ZE_DEVICES", 1)), kMostDevices);
  for (uint32_t i = 0; devices != nullptr && i < std::min(*count, there); ++i) devices[i] = handle_of(device_at(i));
  *count = there;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL device_get_properties(ze_device_handle_t device, ze_device_properties_t* properties) {
  properties->type = ZE_DEVICE_TYPE_GPU;
  properties->uuid.id[0] = static_cast<uint8_t>(of(device).index + 1);
  properties->maxMemAllocSize = kLargestAlloc;
  properties->kernelTimestampValidBits = kTickBits;
  properties->timestampValidBits = kTickBits;
  properties->timerResolution =
      properties->stype == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2 ? kTicksPerSecond : 1000000000 / kTicksPerSecond;
  std::snprintf(properties->name, sizeof(properties->name), "software GPU %u (test double)", of(device).index);
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL device_get_memory_properties(ze_device_handle_t, uint32_t* count,
                                                    ze_device_memory_properties_t* properties) {
  if (properties != nullptr && *count >= 1) {
    properties[0].totalSize = static_cast<uint64_t>(setting("PLIANT_SOFT_ZE_MEMORY_BYTES", int64_t{1} << 30));
  }
  *count = 1;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL device_get_memory_access_properties(ze_device_handle_t,
                                                           ze_device_memory_access_properties_t* properties) {
  properties->hostAllocCapabilities = ZE_MEMORY_ACCESS_CAP_FLAG_RW;
  properties->deviceAllocCapabilities = ZE_MEMORY_ACCESS_CAP_FLAG_RW;
  properties->sharedSingleDeviceAllocCapabilities = ZE_MEMORY_ACCESS_CAP_FLAG_RW;
  properties->sharedCrossDeviceAllocCapabilities = 0;
  properties->sharedSystemAllocCapabilities =
      setting("PLIANT_SOFT_ZE_SHARED_SYSTEM", 0) != 0 ? ze_memory_access_cap_flags_t{ZE_MEMORY_ACCESS_CAP_FLAG_RW} : 0U;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL device_get_command_queue_group_properties(ze_device_handle_t, uint32_t* count,
                                                                 ze_command_queue_group_properties_t* properties) {
  if (properties != nullptr && *count >= 2) {
    properties[0].flags = ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE | ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY;
    properties[0].maxMemoryFillPatternSize = 16;
    properties[0].numQueues = 1;
    properties[1].flags = ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY;
    properties[1].maxMemoryFillPatternSize = 1;
    properties[1].numQueues = 2;
  }
  *count = 2;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL context_create(ze_driver_handle_t, const ze_context_desc_t* wanted, ze_context_handle_t* out) {
  if (wanted == nullptr || out == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  *out = reinterpret_cast<ze_context_handle_t>(new Context);
  ++counts().contexts;
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL context_destroy(ze_context_handle_t handle) {
  Context& context = of(handle);
  if (!context.allocations.empty()) violation("a context was destroyed before its memory was freed");
  if (context.lost) --counts().lost;
  delete &context;
  --counts().contexts;
  return ZE_RESULT_SUCCESS;
}

}  // namespace

ze_driver_handle_t the_driver() {
  static int only = 0;  // its address is the handle
  return reinterpret_cast<ze_driver_handle_t>(&only);
}

}  // namespace soft_ze

using namespace soft_ze;

SOFT_ZE_EXPORT void pliant_soft_ze_report(pliant_soft_ze_counts* out) {
  Counts& all = counts();
  *out = {};
  out->contexts = all.contexts;
  out->allocations = all.allocations;
  out->imports = all.imports;
  out->lists = all.lists;
  out->event_pools = all.event_pools;
  out->events = all.events;
  out->modules = all.modules;
  out->kernels = all.kernels;
  out->build_logs = all.build_logs;
  out->launched = all.launched;
  out->appended = all.appended;
  out->pools_made = all.pools_made;
  out->events_made = all.events_made;
  out->pinned = all.pinned;
  out->violations = all.violations;
  const std::lock_guard lock(all.mutex);
  std::snprintf(out->first_violation, sizeof(out->first_violation), "%s", all.first_violation.c_str());
}

SOFT_ZE_EXPORT ze_result_t ZE_APICALL zeGetGlobalProcAddrTable(ze_api_version_t, ze_global_dditable_t* table) {
  *table = {};
  table->pfnInit = init;
  return ZE_RESULT_SUCCESS;
}

SOFT_ZE_EXPORT ze_result_t ZE_APICALL zeGetDriverProcAddrTable(ze_api_version_t, ze_driver_dditable_t* table) {
  *table = {};
  table->pfnGet = driver_get;
  table->pfnGetApiVersion = driver_get_api_version;
  table->pfnGetProperties = driver_get_properties;
  table->pfnGetIpcProperties = driver_get_ipc_properties;
  table->pfnGetExtensionProperties = driver_get_extension_properties;
  table->pfnGetExtensionFunctionAddress = driver_get_extension_function_address;
  return ZE_RESULT_SUCCESS;
}

SOFT_ZE_EXPORT ze_result_t ZE_APICALL zeGetDeviceProcAddrTable(ze_api_version_t, ze_device_dditable_t* table) {
  *table = {};
  table->pfnGet = device_get;
  table->pfnGetProperties = device_get_properties;
  table->pfnGetMemoryProperties = device_get_memory_properties;
  table->pfnGetMemoryAccessProperties = device_get_memory_access_properties;
  table->pfnGetCommandQueueGroupProperties = device_get_command_queue_group_properties;
  table->pfnGetComputeProperties = device_get_compute_properties;
  table->pfnGetModuleProperties = device_get_module_properties;
  return ZE_RESULT_SUCCESS;
}

SOFT_ZE_EXPORT ze_result_t ZE_APICALL zeGetContextProcAddrTable(ze_api_version_t, ze_context_dditable_t* table) {
  *table = {};
  table->pfnCreate = context_create;
  table->pfnDestroy = context_destroy;
  return ZE_RESULT_SUCCESS;
}

SOFT_ZE_EXPORT ze_result_t ZE_APICALL zeGetCommandListProcAddrTable(ze_api_version_t,
                                                                    ze_command_list_dditable_t* table) {
  *table = {};
  table->pfnCreateImmediate = list_create_immediate;
  table->pfnDestroy = list_destroy;
  table->pfnAppendBarrier = append_barrier;
  table->pfnAppendMemoryCopy = append_memory_copy;
  table->pfnAppendMemoryFill = append_memory_fill;
  table->pfnAppendLaunchKernel = append_launch_kernel;
  return ZE_RESULT_SUCCESS;
}

SOFT_ZE_EXPORT ze_result_t ZE_APICALL zeGetEventPoolProcAddrTable(ze_api_version_t, ze_event_pool_dditable_t* table) {
  *table = {};
  table->pfnCreate = event_pool_create;
  table->pfnDestroy = event_pool_destroy;
  table->pfnGetIpcHandle = event_pool_get_ipc_handle;
  table->pfnOpenIpcHandle = event_pool_open_ipc_handle;
  table->pfnCloseIpcHandle = event_pool_close_ipc_handle;
  return ZE_RESULT_SUCCESS;
}

SOFT_ZE_EXPORT ze_result_t ZE_APICALL zeGetEventProcAddrTable(ze_api_version_t, ze_event_dditable_t* table) {
  *table = {};
  table->pfnCreate = event_create;
  table->pfnDestroy = event_destroy;
  table->pfnHostSignal = event_host_signal;
  table->pfnHostSynchronize = event_host_synchronize;
  table->pfnQueryStatus = event_query_status;
  table->pfnHostReset = event_host_reset;
  table->pfnQueryKernelTimestamp = event_query_kernel_timestamp;
  return ZE_RESULT_SUCCESS;
}

SOFT_ZE_EXPORT ze_result_t ZE_APICALL zeGetMemProcAddrTable(ze_api_version_t, ze_mem_dditable_t* table) {
  *table = {};
  table->pfnAllocDevice = mem_alloc_device;
  table->pfnAllocHost = mem_alloc_host;
  table->pfnAllocShared = mem_alloc_shared;
  table->pfnFree = mem_free;
  table->pfnGetAllocProperties = mem_get_alloc_properties;
  table->pfnGetAddressRange = mem_get_address_range;
  table->pfnGetIpcHandle = mem_get_ipc_handle;
  table->pfnOpenIpcHandle = mem_open_ipc_handle;
  table->pfnCloseIpcHandle = mem_close_ipc_handle;
  return ZE_RESULT_SUCCESS;
}

SOFT_ZE_EXPORT ze_result_t ZE_APICALL zeGetModuleProcAddrTable(ze_api_version_t, ze_module_dditable_t* table) {
  *table = {};
  table->pfnCreate = module_create;
  table->pfnDestroy = module_destroy;
  return ZE_RESULT_SUCCESS;
}

SOFT_ZE_EXPORT ze_result_t ZE_APICALL zeGetModuleBuildLogProcAddrTable(ze_api_version_t,
                                                                       ze_module_build_log_dditable_t* table) {
  *table = {};
  table->pfnDestroy = build_log_destroy;
  table->pfnGetString = build_log_get_string;
  return ZE_RESULT_SUCCESS;
}

SOFT_ZE_EXPORT ze_result_t ZE_APICALL zeGetKernelProcAddrTable(ze_api_version_t, ze_kernel_dditable_t* table) {
  *table = {};
  table->pfnCreate = kernel_create;
  table->pfnDestroy = kernel_destroy;
  table->pfnSetGroupSize = kernel_set_group_size;
  table->pfnSetArgumentValue = kernel_set_argument_value;
  return ZE_RESULT_SUCCESS;
}

// The loader takes no driver that lacks one of the other tables, so they are there and empty.
#define SOFT_ZE_EMPTY(function, table_type)                                             \
  SOFT_ZE_EXPORT ze_result_t ZE_APICALL function(ze_api_version_t, table_type* table) { \
    *table = {};                                                                        \
    return ZE_RESULT_SUCCESS;                                                           \
  }
SOFT_ZE_EMPTY(zeGetCommandQueueProcAddrTable, ze_command_queue_dditable_t)
SOFT_ZE_EMPTY(zeGetImageProcAddrTable, ze_image_dditable_t)
SOFT_ZE_EMPTY(zeGetFenceProcAddrTable, ze_fence_dditable_t)
SOFT_ZE_EMPTY(zeGetSamplerProcAddrTable, ze_sampler_dditable_t)
SOFT_ZE_EMPTY(zeGetPhysicalMemProcAddrTable, ze_physical_mem_dditable_t)
SOFT_ZE_EMPTY(zeGetVirtualMemProcAddrTable, ze_virtual_mem_dditable_t)
SOFT_ZE_EMPTY(zetGetDeviceProcAddrTable, zet_device_dditable_t)
SOFT_ZE_EMPTY(zetGetContextProcAddrTable, zet_context_dditable_t)
SOFT_ZE_EMPTY(zetGetCommandListProcAddrTable, zet_command_list_dditable_t)
SOFT_ZE_EMPTY(zetGetModuleProcAddrTable, zet_module_dditable_t)
SOFT_ZE_EMPTY(zetGetKernelProcAddrTable, zet_kernel_dditable_t)
SOFT_ZE_EMPTY(zetGetMetricGroupProcAddrTable, zet_metric_group_dditable_t)
SOFT_ZE_EMPTY(zetGetMetricGroupExpProcAddrTable, zet_metric_group_exp_dditable_t)
SOFT_ZE_EMPTY(zetGetMetricProcAddrTable, zet_metric_dditable_t)
SOFT_ZE_EMPTY(zetGetMetricStreamerProcAddrTable, zet_metric_streamer_dditable_t)
SOFT_ZE_EMPTY(zetGetMetricQueryPoolProcAddrTable, zet_metric_query_pool_dditable_t)
SOFT_ZE_EMPTY(zetGetMetricQueryProcAddrTable, zet_metric_query_dditable_t)
SOFT_ZE_EMPTY(zetGetTracerExpProcAddrTable, zet_tracer_exp_dditable_t)
SOFT_ZE_EMPTY(zetGetDebugProcAddrTable, zet_debug_dditable_t)
SOFT_ZE_EMPTY(zesGetDriverProcAddrTable, zes_driver_dditable_t)
SOFT_ZE_EMPTY(zesGetDeviceProcAddrTable, zes_device_dditable_t)
SOFT_ZE_EMPTY(zesGetSchedulerProcAddrTable, zes_scheduler_dditable_t)
SOFT_ZE_EMPTY(zesGetPerformanceFactorProcAddrTable, zes_performance_factor_dditable_t)
SOFT_ZE_EMPTY(zesGetPowerProcAddrTable, zes_power_dditable_t)
SOFT_ZE_EMPTY(zesGetFrequencyProcAddrTable, zes_frequency_dditable_t)
SOFT_ZE_EMPTY(zesGetEngineProcAddrTable, zes_engine_dditable_t)
SOFT_ZE_EMPTY(zesGetStandbyProcAddrTable, zes_standby_dditable_t)
SOFT_ZE_EMPTY(zesGetFirmwareProcAddrTable, zes_firmware_dditable_t)
SOFT_ZE_EMPTY(zesGetMemoryProcAddrTable, zes_memory_dditable_t)
SOFT_ZE_EMPTY(zesGetFabricPortProcAddrTable, zes_fabric_port_dditable_t)
SOFT_ZE_EMPTY(zesGetTemperatureProcAddrTable, zes_temperature_dditable_t)
SOFT_ZE_EMPTY(zesGetPsuProcAddrTable, zes_psu_dditable_t)
SOFT_ZE_EMPTY(zesGetFanProcAddrTable, zes_fan_dditable_t)
SOFT_ZE_EMPTY(zesGetLedProcAddrTable, zes_led_dditable_t)
SOFT_ZE_EMPTY(zesGetRasProcAddrTable, zes_ras_dditable_t)
SOFT_ZE_EMPTY(zesGetDiagnosticsProcAddrTable, zes_diagnostics_dditable_t)
