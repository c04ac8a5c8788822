// The `sim` accelerator: a TEST DOUBLE. It is the host device with faults injected from a seed; it is never installed
// with the plugins and no job should name it.
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "injection.hpp"
#include "kernel/device.hpp"
#include "pliant/sdk/collectives.hpp"
#include "pliant/sdk/ipc.hpp"

namespace {

class SimAccelerator : public pliant::accelerator::Device {
 public:
  int64_t memory_bytes = 0;
  int64_t chunk_bytes = 256 * 1024;
  int64_t seed = 1;
  int64_t max_delay_us = 0;
  bool reorder = false;
  std::vector<int64_t> fail_alloc_at;
  double fail_alloc_probability = 0;
  int64_t lost_rank = -1;
  int64_t lost_at = 1;
  bool collectives = true;
  bool host_visible = true;
  bool exchange = true;

  static void options(pliant::sdk::Options<SimAccelerator>& o) {
    using S = SimAccelerator;
    o.add("memory_bytes", &S::memory_bytes, "Memory that one process may allocate; 0 is all of the machine's.")
        .unit("bytes")
        .at_least(0);
    o.add("chunk_bytes", &S::chunk_bytes,
          "Piece in which collectives move; a communicator takes 6 such pieces of shared memory for each of its ranks.")
        .unit("bytes")
        .range(4096, 64 * 1024 * 1024);
    o.add("seed", &S::seed, "What all injected faults are drawn from.");
    o.add("max_delay_us", &S::max_delay_us, "Each piece of work starts late by up to that much.")
        .unit("us")
        .range(0, 1000000);
    o.add("reorder", &S::reorder, "Work of different streams runs in a drawn order, one piece at a time.");
    o.add("fail_alloc_at", &S::fail_alloc_at, "Allocations that fail for want of memory, counted from 1.").at_least(1);
    o.add("fail_alloc_probability", &S::fail_alloc_probability, "How likely each other allocation fails.")
        .range(0.0, 1.0);
    o.add("lost_rank", &S::lost_rank, "Rank that vanishes from its communicator; -1 is none.").at_least(-1);
    o.add("lost_at", &S::lost_at, "The collective at which it vanishes, counted from 1.").at_least(1);
    o.add("collectives", &S::collectives, "false = as a device without collectives of its own.");
    o.add("host_visible", &S::host_visible, "false = as a device whose memory the processors may not touch.");
    o.add("exchange", &S::exchange, "false = as a device whose memory other processes cannot map.");
  }

  const void* extension(const char* id) const {
    if (std::strcmp(id, PLIANT_IPC) == 0) return exchange ? pliant::sdk::ipc_table<SimAccelerator>() : nullptr;
    const bool has = collectives && std::strcmp(id, PLIANT_COLLECTIVES) == 0;
    return has ? pliant::sdk::collectives_table<SimAccelerator>() : nullptr;
  }
  pliant::sdk::DeviceProperties device_properties(int32_t device) {
    pliant::sdk::DeviceProperties made = Device::device_properties(device);
    if (!host_visible) made.capabilities &= ~uint32_t{PLIANT_CAP_HOST_VISIBLE};
    if (!exchange) made.capabilities &= ~uint32_t{PLIANT_CAP_EXCHANGE_MEMORY};
    return made;
  }

  void start(const pliant::sdk::Host&) {
    configure({"sim (test double)", static_cast<uint64_t>(memory_bytes), static_cast<uint64_t>(chunk_bytes),
               std::make_shared<pliant::accelerator::Injection>(
                   pliant::accelerator::InjectionPlan{static_cast<uint64_t>(seed), max_delay_us, reorder, fail_alloc_at,
                                                      fail_alloc_probability, lost_rank, lost_at})});
  }
};

}  // namespace

PLIANT_ACCELERATOR(SimAccelerator, "sim", "0.1.0",
                   "Test double: the host device with delays, reordering and losses from a seed")
