// Accelerators that lack something or fail on purpose: the host device with one thing changed by VARIANT_*.
#include <csignal>
#include <cstdint>
#include <cstring>
#include <memory>

#include "common/cpu_device/device.hpp"
#include "pliant/sdk/collectives.hpp"

namespace {

class OddAccelerator : public pliant::accelerator::Device {
 public:
  static void options(pliant::sdk::Options<OddAccelerator>&) {}

#ifdef VARIANT_empty
  int32_t device_count() {
    return 0;
  }
#endif
#ifdef VARIANT_deadly
  std::unique_ptr<Comm> make_comm(int32_t device, const pliant_comm_id& id, int32_t rank, int32_t world_size) {
    if (rank == 1) ::raise(SIGKILL);
    return Device::make_comm(device, id, rank, world_size);
  }
#endif
#ifdef VARIANT_wrong
  void all_gather(Comm&, const void*, void*, pliant::sdk::Elements, Stream&) {}
#endif
#ifndef VARIANT_bare
  const void* extension(const char* id) const {
    return std::strcmp(id, PLIANT_COLLECTIVES) == 0 ? pliant::sdk::collectives_table<OddAccelerator>() : nullptr;
  }
#endif
  void start(const pliant::sdk::Host&) {
    configure({"odd", 0, 65536, nullptr});
  }
};

}  // namespace

PLIANT_ACCELERATOR(OddAccelerator, PLUGIN_NAME, "1.0.0", "Lacks something on purpose")
