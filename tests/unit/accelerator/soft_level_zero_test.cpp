// The software driver itself, called through the loader: it must see what a plugin gets wrong.
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "../accelerators/level_zero/api.hpp"
#include "level_zero_driver.hpp"

using pliant_test::Setting;
using pliant_test::software_driver_counts;

namespace {

/// One context, one list and one pool of events on the first device.
class Session {
 public:
  Session() {
    pliant_test::use_software_driver();
    REQUIRE(api.open("libze_loader.so.1") == "");
    REQUIRE(api.zeInit(ZE_INIT_FLAG_GPU_ONLY) == ZE_RESULT_SUCCESS);
    uint32_t one = 1;
    ze_driver_handle_t driver = nullptr;
    REQUIRE(api.zeDriverGet(&one, &driver) == ZE_RESULT_SUCCESS);
    REQUIRE(api.zeDeviceGet(driver, &one, &device) == ZE_RESULT_SUCCESS);
    const ze_context_desc_t wanted{ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
    REQUIRE(api.zeContextCreate(driver, &wanted, &context) == ZE_RESULT_SUCCESS);
    ze_command_queue_desc_t queue{};
    queue.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
    REQUIRE(api.zeCommandListCreateImmediate(context, device, &queue, &list) == ZE_RESULT_SUCCESS);
    const ze_event_pool_desc_t events{ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, nullptr, ZE_EVENT_POOL_FLAG_HOST_VISIBLE, 2};
    REQUIRE(api.zeEventPoolCreate(context, &events, 0, nullptr, &pool) == ZE_RESULT_SUCCESS);
    for (uint32_t i = 0; i < 2; ++i) {
      const ze_event_desc_t event{ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, i, 0, 0};
      REQUIRE(api.zeEventCreate(pool, &event, &both[i]) == ZE_RESULT_SUCCESS);
    }
  }
  ~Session() {
    api.zeCommandListDestroy(list);
    for (ze_event_handle_t event : both) api.zeEventDestroy(event);
    api.zeEventPoolDestroy(pool);
    api.zeContextDestroy(context);
    const pliant_soft_ze_counts counts = software_driver_counts();
    CHECK(counts.contexts + counts.allocations + counts.lists + counts.event_pools + counts.events == 0);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  std::byte* alloc(bool pinned, size_t bytes) {
    void* made = nullptr;
    const ze_host_mem_alloc_desc_t on_host{ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, nullptr, 0};
    const ze_device_mem_alloc_desc_t on_device{ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, nullptr, 0, 0};
    REQUIRE((pinned ? api.zeMemAllocHost(context, &on_host, bytes, 64, &made)
                    : api.zeMemAllocDevice(context, &on_device, bytes, 64, device, &made)) == ZE_RESULT_SUCCESS);
    return static_cast<std::byte*>(made);
  }
  ze_result_t copy(void* to, const void* from, size_t bytes) const {
    return api.zeCommandListAppendMemoryCopy(list, to, from, bytes, nullptr, 0, nullptr);
  }
  /// Waits for all that was appended.
  void finish() {
    REQUIRE(api.zeCommandListAppendBarrier(list, both[1], 0, nullptr) == ZE_RESULT_SUCCESS);
    REQUIRE(api.zeEventHostSynchronize(both[1], UINT64_MAX) == ZE_RESULT_SUCCESS);
    REQUIRE(api.zeEventHostReset(both[1]) == ZE_RESULT_SUCCESS);
  }

  pliant::level_zero::Api api;
  ze_device_handle_t device = nullptr;
  ze_context_handle_t context = nullptr;
  ze_command_list_handle_t list = nullptr;
  ze_event_pool_handle_t pool = nullptr;
  std::array<ze_event_handle_t, 2> both{};
};

int64_t violations() {
  return software_driver_counts().violations;
}

}  // namespace

TEST_CASE("a copy that leaves its allocation, or touches plain memory, is refused and counted") {
  Session session;
  std::byte* buffer = session.alloc(true, 100);
  std::array<std::byte, 8> plain{};
  const int64_t before = violations();
  CHECK(session.copy(buffer + 60, buffer, 40) == ZE_RESULT_SUCCESS);
  CHECK(violations() == before);
  CHECK(session.copy(buffer + 61, buffer, 40) == ZE_RESULT_ERROR_INVALID_ARGUMENT);
  CHECK(session.copy(buffer, plain.data(), 8) == ZE_RESULT_ERROR_INVALID_ARGUMENT);
  CHECK(violations() == before + 2);
  session.finish();
  session.api.zeMemFree(session.context, buffer);
}

TEST_CASE("memory of a device is out of the CPU's reach and comes back by a copy") {
  Session session;
  std::byte* pinned = session.alloc(true, 64);
  std::byte* on_device = session.alloc(false, 64);
  std::memset(pinned, 5, 64);
  CHECK(session.copy(on_device, pinned, 64) == ZE_RESULT_SUCCESS);
  session.finish();
  std::memset(pinned, 0, 64);
  CHECK(session.copy(pinned, on_device, 64) == ZE_RESULT_SUCCESS);
  session.finish();
  CHECK(pinned[63] == std::byte{5});
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  CHECK(::write(ends[1], on_device, 1) == -1);  // the kernel reads as the CPU would
  CHECK(::write(ends[1], pinned, 1) == 1);
  for (const int end : ends) ::close(end);
  session.api.zeMemFree(session.context, pinned);
  session.api.zeMemFree(session.context, on_device);
}

TEST_CASE("freeing memory or resetting an event that a command still needs is counted") {
  Session session;
  std::byte* buffer = session.alloc(true, 64);
  std::byte* spare = session.alloc(true, 64);
  const ze_event_handle_t open = session.both[0];
  ze_event_handle_t gate = open;
  REQUIRE(session.api.zeCommandListAppendBarrier(session.list, nullptr, 1, &gate) == ZE_RESULT_SUCCESS);
  // Of no bytes, so that nothing is touched when it runs after the memory is gone.
  REQUIRE(session.copy(buffer, spare, 0) == ZE_RESULT_SUCCESS);
  const int64_t before = violations();
  session.api.zeEventHostReset(open);
  CHECK(violations() == before + 1);
  session.api.zeMemFree(session.context, spare);
  CHECK(violations() == before + 2);
  const auto signal = reinterpret_cast<decltype(&zeEventHostSignal)>(
      ::dlsym(::dlopen("libze_loader.so.1", RTLD_NOW), "zeEventHostSignal"));
  CHECK(session.api.zeEventQueryStatus(open) == ZE_RESULT_NOT_READY);
  REQUIRE(signal(open) == ZE_RESULT_SUCCESS);
  session.finish();
  session.api.zeMemFree(session.context, buffer);
  CHECK(violations() == before + 2);
}

TEST_CASE("without a barrier between them commands overtake each other where a seed is given") {
  const Setting seed("PLIANT_SOFT_ZE_SEED", "3");
  const Setting delay("PLIANT_SOFT_ZE_MAX_DELAY_US", "100");
  Session session;
  std::byte* target = session.alloc(true, 1);
  std::byte* values = session.alloc(true, 64);
  for (int i = 0; i < 64; ++i) values[i] = static_cast<std::byte>(i);
  for (int i = 0; i < 64; ++i) REQUIRE(session.copy(target, values + i, 1) == ZE_RESULT_SUCCESS);
  session.finish();
  CHECK(*target != std::byte{63});
  session.api.zeMemFree(session.context, target);
  session.api.zeMemFree(session.context, values);
}

#ifdef PLIANT_LEVEL_ZERO_SPIRV
namespace {

/// Builds a module of the file's first bytes; what the driver says of it goes to `log`.
ze_result_t build(const Session& session, const std::string& file, ze_module_handle_t& module, std::string& log) {
  ze_module_desc_t wanted{};
  wanted.stype = ZE_STRUCTURE_TYPE_MODULE_DESC;
  wanted.format = ZE_MODULE_FORMAT_IL_SPIRV;
  wanted.inputSize = file.size();
  wanted.pInputModule = reinterpret_cast<const uint8_t*>(file.data());
  ze_module_build_log_handle_t handle = nullptr;
  const ze_result_t result = session.api.zeModuleCreate(session.context, session.device, &wanted, &module, &handle);
  size_t bytes = 0;
  CHECK(session.api.zeModuleBuildLogGetString(handle, &bytes, nullptr) == ZE_RESULT_SUCCESS);
  log.assign(bytes, ' ');
  CHECK(session.api.zeModuleBuildLogGetString(handle, &bytes, log.data()) == ZE_RESULT_SUCCESS);
  CHECK(session.api.zeModuleBuildLogDestroy(handle) == ZE_RESULT_SUCCESS);
  return result;
}

std::string kernel_file() {
  std::ifstream file(PLIANT_LEVEL_ZERO_SPIRV, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The kernel of casts from bytes to 32-bit integers.
struct Cast {
  explicit Cast(const Session& of) : session(of) {
    std::string log;
    REQUIRE(build(session, kernel_file(), module, log) == ZE_RESULT_SUCCESS);
    const ze_kernel_desc_t wanted{ZE_STRUCTURE_TYPE_KERNEL_DESC, nullptr, 0, "pliant_cast_u8_i32"};
    REQUIRE(session.api.zeKernelCreate(module, &wanted, &kernel) == ZE_RESULT_SUCCESS);
  }
  ~Cast() {
    session.api.zeKernelDestroy(kernel);
    session.api.zeModuleDestroy(module);
  }
  Cast(const Cast&) = delete;
  Cast& operator=(const Cast&) = delete;

  const Session& session;
  ze_module_handle_t module = nullptr;
  ze_kernel_handle_t kernel = nullptr;
};

}  // namespace

TEST_CASE("only whole SPIR-V becomes a module, and only its entry points become kernels") {
  const Session session;
  const std::string file = kernel_file();
  ze_module_handle_t module = nullptr;
  std::string log;
  CHECK(build(session, "kernels", module, log) == ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
  CHECK(log.find("this is no SPIR-V") != std::string::npos);
  CHECK(build(session, file.substr(0, file.size() / 8 * 4), module, log) == ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
  REQUIRE(build(session, file, module, log) == ZE_RESULT_SUCCESS);
  ze_kernel_handle_t kernel = nullptr;
  const auto make = [&](const char* name) {
    const ze_kernel_desc_t wanted{ZE_STRUCTURE_TYPE_KERNEL_DESC, nullptr, 0, name};
    return session.api.zeKernelCreate(module, &wanted, &kernel);
  };
  CHECK(make("pliant_reduce_sum_f33") == ZE_RESULT_ERROR_INVALID_KERNEL_NAME);
  CHECK(make("pliant_reduce_sum_f64") == ZE_RESULT_ERROR_INVALID_KERNEL_NAME);  // it is in the other file
  REQUIRE(make("pliant_cast_f32_f16") == ZE_RESULT_SUCCESS);
  CHECK(session.api.zeKernelDestroy(kernel) == ZE_RESULT_SUCCESS);
  CHECK(session.api.zeModuleDestroy(module) == ZE_RESULT_SUCCESS);
}

TEST_CASE("a kernel runs with the arguments of its launch, and not with one too few, too large or astray") {
  Session session;
  const Cast cast(session);
  std::byte* to = session.alloc(true, 400);
  std::byte* from = session.alloc(true, 100);
  uint64_t count = 100;
  const auto set = [&](uint32_t index, const auto& value) {
    return session.api.zeKernelSetArgumentValue(cast.kernel, index, sizeof(value), &value);
  };
  const auto launch = [&] {
    const ze_group_count_t groups{2, 1, 1};
    return session.api.zeCommandListAppendLaunchKernel(session.list, cast.kernel, &groups, nullptr, 0, nullptr);
  };
  CHECK(session.api.zeKernelSetGroupSize(cast.kernel, 4096, 1, 1) == ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
  REQUIRE(session.api.zeKernelSetGroupSize(cast.kernel, 8, 1, 1) == ZE_RESULT_SUCCESS);
  const int64_t before = violations();
  CHECK(set(0, to) == ZE_RESULT_SUCCESS);
  CHECK(set(1, from) == ZE_RESULT_SUCCESS);
  CHECK(launch() == ZE_RESULT_ERROR_INVALID_ARGUMENT);
  CHECK(violations() == before + 1);
  CHECK(set(2, uint32_t{1}) == ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE);
  CHECK(set(3, count) == ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX);
  count = 101;
  CHECK(set(2, count) == ZE_RESULT_SUCCESS);
  CHECK(launch() == ZE_RESULT_ERROR_INVALID_ARGUMENT);  // one element past both buffers
  CHECK(violations() > before + 1);
  const int64_t told = violations();
  count = 100;
  CHECK(set(2, count) == ZE_RESULT_SUCCESS);
  std::memset(from, 7, 100);
  CHECK(launch() == ZE_RESULT_SUCCESS);
  count = 0;
  CHECK(set(2, count) == ZE_RESULT_SUCCESS);  // of the next launch, not of that one
  session.finish();
  int32_t last = 0;
  std::memcpy(&last, to + 396, sizeof(last));
  CHECK(last == 7);
  CHECK(violations() == told);
  session.api.zeMemFree(session.context, to);
  session.api.zeMemFree(session.context, from);
}

TEST_CASE("a kernel on a queue that only copies is refused and counted") {
  Session session;
  const Cast cast(session);
  ze_command_queue_desc_t queue{};
  queue.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  queue.ordinal = 1;
  ze_command_list_handle_t copies = nullptr;
  REQUIRE(session.api.zeCommandListCreateImmediate(session.context, session.device, &queue, &copies) ==
          ZE_RESULT_SUCCESS);
  const int64_t before = violations();
  const ze_group_count_t groups{1, 1, 1};
  CHECK(session.api.zeCommandListAppendLaunchKernel(copies, cast.kernel, &groups, nullptr, 0, nullptr) ==
        ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
  CHECK(violations() == before + 1);
  session.api.zeCommandListDestroy(copies);
}
#endif
