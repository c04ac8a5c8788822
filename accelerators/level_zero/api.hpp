// Api: the functions of Level Zero's loader, found at run time, so that the plugin opens on a machine that has none.
#pragma once

#include <level_zero/ze_api.h>

#include <string>

// Every call that the plugin makes. All are of Level Zero 1.0.
#define PLIANT_ZE_CALLS(call)                   \
  call(zeInit);                                 \
  call(zeDriverGet);                            \
  call(zeDriverGetApiVersion);                  \
  call(zeDriverGetIpcProperties);               \
  call(zeDeviceGet);                            \
  call(zeDeviceGetProperties);                  \
  call(zeDeviceGetMemoryProperties);            \
  call(zeDeviceGetMemoryAccessProperties);      \
  call(zeDeviceGetCommandQueueGroupProperties); \
  call(zeDeviceGetComputeProperties);           \
  call(zeDeviceGetModuleProperties);            \
  call(zeContextCreate);                        \
  call(zeContextDestroy);                       \
  call(zeMemAllocDevice);                       \
  call(zeMemAllocHost);                         \
  call(zeMemAllocShared);                       \
  call(zeMemFree);                              \
  call(zeMemGetAllocProperties);                \
  call(zeMemGetAddressRange);                   \
  call(zeMemGetIpcHandle);                      \
  call(zeMemOpenIpcHandle);                     \
  call(zeMemCloseIpcHandle);                    \
  call(zeCommandListCreateImmediate);           \
  call(zeCommandListDestroy);                   \
  call(zeCommandListAppendBarrier);             \
  call(zeCommandListAppendMemoryCopy);          \
  call(zeCommandListAppendMemoryFill);          \
  call(zeEventPoolCreate);                      \
  call(zeEventPoolDestroy);                     \
  call(zeEventPoolGetIpcHandle);                \
  call(zeEventPoolOpenIpcHandle);               \
  call(zeEventPoolCloseIpcHandle);              \
  call(zeEventCreate);                          \
  call(zeEventDestroy);                         \
  call(zeEventHostSignal);                      \
  call(zeEventHostSynchronize);                 \
  call(zeEventQueryStatus);                     \
  call(zeEventHostReset);                       \
  call(zeEventQueryKernelTimestamp);            \
  call(zeModuleCreate);                         \
  call(zeModuleDestroy);                        \
  call(zeModuleBuildLogDestroy);                \
  call(zeModuleBuildLogGetString);              \
  call(zeKernelCreate);                         \
  call(zeKernelDestroy);                        \
  call(zeKernelSetGroupSize);                   \
  call(zeKernelSetArgumentValue);               \
  call(zeCommandListAppendLaunchKernel)

namespace pliant::level_zero {

struct Api {
#define PLIANT_ZE_MEMBER(name) decltype(&::name) name = nullptr  // NOLINT(bugprone-macro-parentheses): a declaration
  PLIANT_ZE_CALLS(PLIANT_ZE_MEMBER);
#undef PLIANT_ZE_MEMBER
  /// Of Level Zero 1.6; NULL where the loader is older. Until then a handle goes with its memory.
  static constexpr uint32_t kPutIpcHandleApi = ZE_MAKE_VERSION(1, 6);
  // NOLINTNEXTLINE(readability-identifier-naming): its name in the library
  ze_result_t(ZE_APICALL* zeMemPutIpcHandle)(ze_context_handle_t, ze_ipc_mem_handle_t) = nullptr;
  /// Of Level Zero 1.1, and of loaders since; NULL where the loader is older. The second gives the handle that the
  /// driver knows for one of the loader's, of that kind.
  static constexpr int kDriverHandle = 0;  ///< ZEL_HANDLE_DRIVER
  // NOLINTNEXTLINE(readability-identifier-naming): likewise
  ze_result_t(ZE_APICALL* zeDriverGetExtensionFunctionAddress)(ze_driver_handle_t, const char*, void**) = nullptr;
  // NOLINTNEXTLINE(readability-identifier-naming): likewise
  ze_result_t(ZE_APICALL* zelLoaderTranslateHandle)(int, void*, void**) = nullptr;

  /// Opens the loader, for good: drivers have threads and do not survive being closed. "" or why it cannot be used.
  std::string open(const std::string& loader);
};

}  // namespace pliant::level_zero
