// A TEST DOUBLE: the device of the accelerator `host` whose ranks reach each other over Gloo and the loopback
// interface, without an option being set.
#include <cstring>

#include "common/cpu_device/device.hpp"
#include "pliant/sdk/collectives.hpp"

namespace {

class HostOverGloo : public pliant::accelerator::Device {
 public:
  static void options(pliant::sdk::Options<HostOverGloo>&) {}
  const void* extension(const char* id) const {
    return std::strcmp(id, PLIANT_COLLECTIVES) == 0 ? pliant::sdk::collectives_table<HostOverGloo>() : nullptr;
  }
  void start(const pliant::sdk::Host&) {
    pliant::accelerator::DeviceSettings settings{"host over Gloo (test double)", 0, 64 * 1024, nullptr};
    settings.network.own = pliant::accelerator::NetworkSettings::resolve("lo");
    configure(std::move(settings));
  }
};

}  // namespace

PLIANT_ACCELERATOR(HostOverGloo, "host_over_gloo", "0.1.0", "Test double: the device of the host with ranks over Gloo")
