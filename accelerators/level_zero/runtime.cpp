// Finds drivers and devices, and reads what they say of themselves.
#include "runtime.hpp"

#include <unistd.h>

#include <algorithm>

#include "kernels.hpp"
#include "result.hpp"

namespace pliant::level_zero {
namespace {

std::string version_text(uint32_t version) {
  return std::to_string(ZE_MAJOR_VERSION(version)) + "." + std::to_string(ZE_MINOR_VERSION(version));
}

uint64_t memory_of(const Api& api, ze_device_handle_t device) {
  uint32_t count = 0;
  check(api.zeDeviceGetMemoryProperties(device, &count, nullptr), "zeDeviceGetMemoryProperties");
  std::vector<ze_device_memory_properties_t> parts(count);
  for (auto& part : parts) part.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
  if (count != 0) {
    check(api.zeDeviceGetMemoryProperties(device, &count, parts.data()), "zeDeviceGetMemoryProperties");
  }
  return parts.empty() ? 0 : parts.front().totalSize;  // zeMemAllocDevice takes from the first
}

void read_queues(const Api& api, DeviceEntry& entry) {
  uint32_t count = 0;
  check(api.zeDeviceGetCommandQueueGroupProperties(entry.handle, &count, nullptr),
        "zeDeviceGetCommandQueueGroupProperties");
  std::vector<ze_command_queue_group_properties_t> groups(count);
  for (auto& group : groups) group.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES;
  if (count != 0) {
    check(api.zeDeviceGetCommandQueueGroupProperties(entry.handle, &count, groups.data()),
          "zeDeviceGetCommandQueueGroupProperties");
  }
  bool computes = false;
  for (uint32_t ordinal = 0; ordinal < count; ++ordinal) {
    const auto& group = groups[ordinal];
    if (group.numQueues == 0 || (group.flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY) == 0) continue;
    const QueueGroup queues{ordinal, group.numQueues};
    if ((group.flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE) == 0) {
      if (group.maxMemoryFillPatternSize >= 1) entry.copy.push_back(queues);
    } else if (!computes) {
      entry.compute = queues;
      computes = true;
    }
  }
  if (!computes) {
    throw sdk::Failure(PLIANT_FAILED_PRECONDITION, "device '" + entry.name + "' has no queue that computes and copies");
  }
}

Timer timer_of(ze_device_handle_t device, const ze_device_properties_t& properties) {
  Timer timer;
  timer.device = device;
  timer.ticks_per_second = static_cast<double>(std::max<uint64_t>(properties.timerResolution, 1));
  const uint32_t bits = properties.kernelTimestampValidBits;
  if (bits > 0 && bits < 64) timer.mask = (uint64_t{1} << bits) - 1;
  return timer;
}

void read_arithmetic(const Api& api, const ze_device_properties_t& device, DeviceEntry& entry) {
  ze_device_module_properties_t floats{};
  floats.stype = ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES;
  check(api.zeDeviceGetModuleProperties(entry.handle, &floats), "zeDeviceGetModuleProperties");
  entry.has_doubles = (floats.flags & ZE_DEVICE_MODULE_FLAG_FP64) != 0;
  entry.float_flags = floats.fp32flags;
  entry.double_flags = floats.fp64flags;
  ze_device_compute_properties_t groups{};
  groups.stype = ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES;
  check(api.zeDeviceGetComputeProperties(entry.handle, &groups), "zeDeviceGetComputeProperties");
  const uint32_t largest = std::min(groups.maxTotalGroupSize, groups.maxGroupSizeX);
  entry.group_size = std::clamp<uint32_t>(largest, 1, kernels::kGroupSize);
  // As many as the hardware has threads: a thread runs several work items at once, so that this fills it a few times.
  const uint64_t threads =
      uint64_t{device.numSlices} * device.numSubslicesPerSlice * device.numEUsPerSubslice * device.numThreadsPerEU;
  const uint64_t most = groups.maxGroupCountX == 0 ? UINT32_MAX : groups.maxGroupCountX;
  entry.most_groups = static_cast<uint32_t>(std::min(std::max<uint64_t>(threads, 64), most));
}

}  // namespace

Context::Context(const Api& functions, ze_driver_handle_t driver, uint32_t driver_version)
    : api(functions), version(driver_version), owner(::getpid()), host_pointers(functions, driver) {
  const ze_context_desc_t wanted{ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
  check(api.zeContextCreate(driver, &wanted, &handle), "zeContextCreate");
}

Context::~Context() {
  if (::getpid() == owner) api.zeContextDestroy(handle);
}

Runtime::Runtime(const std::string& loader) : owner_(::getpid()) {
  try {
    why_none_ = find_devices(loader);
  } catch (const sdk::Failure& failure) {
    devices_.clear();
    why_none_ = failure.what();
  }
}

void Runtime::require_owner() const {
  require_process(owner_);
}

std::string Runtime::find_devices(const std::string& loader) {
  std::string refused = api_.open(loader);
  if (!refused.empty()) return refused;
  const ze_result_t started = api_.zeInit(ZE_INIT_FLAG_GPU_ONLY);
  if (started != ZE_RESULT_SUCCESS) {
    return "zeInit: " + text_of(started) +
           "; install the driver of the device (for Intel's: intel-level-zero-gpu or libze-intel-gpu1)";
  }
  uint32_t count = 0;
  check(api_.zeDriverGet(&count, nullptr), "zeDriverGet");
  std::vector<ze_driver_handle_t> drivers(count);
  if (count != 0) check(api_.zeDriverGet(&count, drivers.data()), "zeDriverGet");
  std::string why = "no Level Zero driver finds a GPU on this machine";
  for (ze_driver_handle_t driver : drivers) {
    ze_api_version_t version = ZE_API_VERSION_1_0;
    check(api_.zeDriverGetApiVersion(driver, &version), "zeDriverGetApiVersion");
    if (static_cast<uint32_t>(version) < kOldestApi) {
      why = "the driver speaks Level Zero " + version_text(static_cast<uint32_t>(version)) + ", and at least " +
            version_text(kOldestApi) + " is needed; install a newer one";
      continue;
    }
    add_devices_of(driver, static_cast<uint32_t>(version));
  }
  return devices_.empty() ? why : "";
}

void Runtime::add_devices_of(ze_driver_handle_t driver, uint32_t version) {
  ze_driver_ipc_properties_t ipc{};
  ipc.stype = ZE_STRUCTURE_TYPE_DRIVER_IPC_PROPERTIES;
  check(api_.zeDriverGetIpcProperties(driver, &ipc), "zeDriverGetIpcProperties");
  uint32_t count = 0;
  check(api_.zeDeviceGet(driver, &count, nullptr), "zeDeviceGet");
  std::vector<ze_device_handle_t> handles(count);
  if (count != 0) check(api_.zeDeviceGet(driver, &count, handles.data()), "zeDeviceGet");
  std::shared_ptr<Context> context;
  uint64_t device_list = 14695981039346656037U;  // FNV-1a
  const size_t first = devices_.size();
  for (ze_device_handle_t handle : handles) {
    ze_device_properties_t properties{};
    properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2;
    check(api_.zeDeviceGetProperties(handle, &properties), "zeDeviceGetProperties");
    for (const uint8_t byte : properties.uuid.id) device_list = (device_list ^ byte) * 1099511628211U;
    if (properties.type != ZE_DEVICE_TYPE_GPU) continue;
    ze_device_memory_access_properties_t access{};
    access.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_ACCESS_PROPERTIES;
    check(api_.zeDeviceGetMemoryAccessProperties(handle, &access), "zeDeviceGetMemoryAccessProperties");
    if (!context) context = std::make_shared<Context>(api_, driver, version);
    DeviceEntry entry;
    entry.handle = handle;
    entry.context = context;
    entry.name = properties.name;
    entry.memory_bytes = memory_of(api_, handle);
    entry.largest_alloc_bytes = properties.maxMemAllocSize;
    entry.reaches_plain_memory = (access.sharedSystemAllocCapabilities & ZE_MEMORY_ACCESS_CAP_FLAG_RW) != 0;
    entry.has_shared_memory = (access.sharedSingleDeviceAllocCapabilities & ZE_MEMORY_ACCESS_CAP_FLAG_RW) != 0;
    entry.has_ipc = (ipc.flags & ZE_IPC_PROPERTY_FLAG_MEMORY) != 0;
    entry.has_event_ipc = (ipc.flags & ZE_IPC_PROPERTY_FLAG_EVENT_POOL) != 0;
    entry.timer = timer_of(handle, properties);
    read_queues(api_, entry);
    read_arithmetic(api_, properties, entry);
    devices_.push_back(std::move(entry));
  }
  for (size_t i = first; i < devices_.size(); ++i) devices_[i].device_list = device_list;
}

}  // namespace pliant::level_zero
