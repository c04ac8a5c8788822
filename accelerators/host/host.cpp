// The `host` accelerator: this machine's processors and memory; its ranks share memory, or reach each other over a
// network.
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "common/cpu_device/device.hpp"
#include "pliant/sdk/collectives.hpp"
#include "pliant/sdk/ipc.hpp"
#include "pliant/sdk/optimizer.hpp"

namespace {

class HostAccelerator : public pliant::accelerator::Device {
 public:
  int64_t memory_bytes = 0;
  int64_t chunk_bytes = 512 * 1024;
  std::string transport = "shared_memory";
  std::string interface;
  int64_t peer_timeout_seconds = 30;

  static void options(pliant::sdk::Options<HostAccelerator>& o) {
    o.add("memory_bytes", &HostAccelerator::memory_bytes,
          "Memory that one process may allocate; 0 = all of the machine's.")
        .unit("bytes")
        .at_least(0);
    o.add("chunk_bytes", &HostAccelerator::chunk_bytes,
          "Piece size of collectives; a communicator uses 6 such pieces of shared memory per rank.")
        .unit("bytes")
        .range(4096, 64 * 1024 * 1024);
    o.add("transport", &HostAccelerator::transport,
          "Transport between ranks: \"shared_memory\" within one machine; \"gloo\" over TCP, also between machines.")
        .choices({"shared_memory", "gloo"});
    o.add("interface", &HostAccelerator::interface,
          "Network interface to the other machines, or its address: \"eth0\", \"10.0.0.3\". Required with transport = "
          "\"gloo\", not allowed otherwise.");
    o.add("peer_timeout_seconds", &HostAccelerator::peer_timeout_seconds,
          "With transport = \"gloo\", a rank that is silent for this long counts as lost; 0 = never. Each rank sends "
          "every other rank four signs of life in that time.")
        .unit("s")
        .range(0, 86400);
  }

  const void* extension(const char* id) const {
    if (std::strcmp(id, PLIANT_IPC) == 0) return pliant::sdk::ipc_table<HostAccelerator>();
    if (std::strcmp(id, PLIANT_OPTIMIZER) == 0) return pliant::sdk::optimizer_table<HostAccelerator>();
    return std::strcmp(id, PLIANT_COLLECTIVES) == 0 ? pliant::sdk::collectives_table<HostAccelerator>() : nullptr;
  }

  void start(const pliant::sdk::Host&) {
    using pliant::accelerator::NetworkSettings;
    pliant::accelerator::DeviceSettings settings{"host", static_cast<uint64_t>(memory_bytes),
                                                 static_cast<uint64_t>(chunk_bytes), nullptr};
    settings.network.peer_timeout_seconds = peer_timeout_seconds;
    if (transport == "gloo") {
      settings.network.own = NetworkSettings::resolve(interface);
    } else {
      pliant::sdk::require(
          interface.empty(),
          "interface = \"" + interface + "\" is allowed only with transport = \"gloo\"; set that, or remove the option",
          "interface transport");
    }
    configure(std::move(settings));
  }
};

}  // namespace

PLIANT_ACCELERATOR(HostAccelerator, "host", "0.1.0",
                   "CPU memory; collectives over shared memory, or over a network with Gloo")
