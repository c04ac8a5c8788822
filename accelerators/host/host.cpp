// The `host` accelerator: this machine's processors and memory; its ranks are processes or threads of one machine.
#include <cstdint>
#include <cstring>

#include "kernel/device.hpp"
#include "pliant/sdk/collectives.hpp"
#include "pliant/sdk/ipc.hpp"

namespace {

class HostAccelerator : public pliant::accelerator::Device {
 public:
  int64_t memory_bytes = 0;
  int64_t chunk_bytes = 512 * 1024;

  static void options(pliant::sdk::Options<HostAccelerator>& o) {
    o.add("memory_bytes", &HostAccelerator::memory_bytes,
          "Memory that one process may allocate; 0 is all of the machine's.")
        .unit("bytes")
        .at_least(0);
    o.add("chunk_bytes", &HostAccelerator::chunk_bytes,
          "Piece in which collectives move; a communicator takes 6 such pieces of shared memory for each of its ranks.")
        .unit("bytes")
        .range(4096, 64 * 1024 * 1024);
  }

  const void* extension(const char* id) const {
    if (std::strcmp(id, PLIANT_IPC) == 0) return pliant::sdk::ipc_table<HostAccelerator>();
    return std::strcmp(id, PLIANT_COLLECTIVES) == 0 ? pliant::sdk::collectives_table<HostAccelerator>() : nullptr;
  }

  void start(const pliant::sdk::Host&) {
    configure({"host", static_cast<uint64_t>(memory_bytes), static_cast<uint64_t>(chunk_bytes), nullptr});
  }
};

}  // namespace

PLIANT_ACCELERATOR(HostAccelerator, "host", "0.1.0",
                   "CPU memory, and shared-memory collectives between processes of one machine")
