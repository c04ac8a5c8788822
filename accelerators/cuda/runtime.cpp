// Finds the runtime library and the devices, and reads what they say of themselves.
#include "runtime.hpp"

#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <optional>
#include <utility>

#include "result.hpp"

namespace pliant::cuda {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

int attribute(const Api& api, cudaDeviceAttr which, int device) {
  int value = 0;
  check(api, api.cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

/// Room for what any runtime knows of a device, whose first fields are those of cudaDeviceProp.
union Properties {
  Properties() : room{} {}
  cudaDeviceProp known;
  char room[8192];
};

/// Domain, bus, device and function, one after the other.
uint64_t bus_address(const Api& api, int device) {
  char text[32] = {};
  check(api, api.cudaDeviceGetPCIBusId(text, sizeof(text), device), "cudaDeviceGetPCIBusId");
  uint64_t address = 0;
  for (const char* at = text; *at != '\0'; ++at) {
    if (std::isxdigit(static_cast<unsigned char>(*at)) == 0) continue;
    const char digit[] = {*at, '\0'};
    address = address << 4U | std::strtoul(digit, nullptr, 16);
  }
  return address;
}

}  // namespace

Runtime::Runtime(const std::string& file) : owner_(::getpid()) {
  if (!file.empty()) {
    static_cast<void>(try_file(file));
    return;
  }
  std::string all;
  for (const char* known : {"libcudart.so.13", "libcudart.so.12"}) {
    const Found found = try_file(known);
    if (!devices_.empty()) return;
    all += (all.empty() ? "" : "; ") + why_none_;
    if (found == Found::kSettled) return;
  }
  why_none_ = all;
}

void Runtime::require_owner() const {
  require_process(owner_);
}

Runtime::Found Runtime::try_file(const std::string& file) {
  const auto none = [this](std::string why, Found found = Found::kSettled) {
    why_none_ = std::move(why);
    return found;
  };
  Api api;
  if (const std::optional<Api::Refusal> refused = api.open(file)) {
    if (refused->is_there) return none(refused->why);
    return none("the CUDA runtime cannot be opened (" + refused->why +
                    "); install it (libcudart of CUDA 12 or 13) or name its file in the option runtime",
                Found::kNoFile);
  }
  try {
    int runtime = 0;
    int driver = 0;
    check(api, api.cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    check(api, api.cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    int count = 0;
    const cudaError_t counted = api.cudaGetDeviceCount(&count);
    if (counted == cudaErrorInsufficientDriver) {
      static_cast<void>(api.cudaGetLastError());
      if (driver == 0) {
        return none(file + " found no CUDA driver (libcuda.so.1); install NVIDIA's driver for the device");
      }
      return none("the driver is older than the CUDA runtime: it knows CUDA " + version_text(driver) + ", and " + file +
                      " is CUDA " + version_text(runtime) + "; install a newer driver, or an older runtime",
                  Found::kOlderDriver);
    }
    if (counted == cudaErrorNoDevice || (counted == cudaSuccess && count == 0)) {
      static_cast<void>(api.cudaGetLastError());
      return none("the CUDA driver finds no device; check nvidia-smi -L and CUDA_VISIBLE_DEVICES");
    }
    check(api, counted, "cudaGetDeviceCount");
    for (int index = 0; index < count; ++index) add_device(api, index);
  } catch (const sdk::Failure& failure) {
    devices_.clear();
    return none(failure.what());
  }
  return none("");
}

void Runtime::add_device(const Api& api, int index) {
  Properties properties;
  check(api, api.cudaGetDeviceProperties(&properties.known, index), "cudaGetDeviceProperties");
  auto made = std::make_shared<DeviceEntry>();
  made->api = api;
  made->owner = owner_;
  made->index = index;
  made->name = properties.known.name;
  made->memory_bytes = properties.known.totalGlobalMem;
  made->shares_memory = attribute(api, cudaDevAttrManagedMemory, index) != 0 &&
                        attribute(api, cudaDevAttrConcurrentManagedAccess, index) != 0;
  made->registers_memory = attribute(api, cudaDevAttrCanUseHostPointerForRegisteredMem, index) != 0;
  made->has_pools = attribute(api, cudaDevAttrMemoryPoolsSupported, index) != 0;
  made->has_ipc = attribute(api, cudaDevAttrIpcEventSupport, index) != 0 &&
                  attribute(api, cudaDevAttrUnifiedAddressing, index) != 0;
  made->bus_address = bus_address(api, index);
  made->processors = static_cast<uint32_t>(attribute(api, cudaDevAttrMultiProcessorCount, index));
  {
    const OnDevice here(api, index);
    check(api, api.cudaDeviceGetStreamPriorityRange(&made->least_priority, &made->greatest_priority),
          "cudaDeviceGetStreamPriorityRange");
  }
  devices_.push_back(std::move(made));
}

}  // namespace pliant::cuda
