// Finds a fault by its name.
#include "faults.hpp"

namespace pliant::broken {
namespace {

std::unique_ptr<Honest> made(const Fault& fault, const char* way) {
  std::unique_ptr<Honest> one = fault.make();
  one->way = way;
  return one;
}

}  // namespace

std::unique_ptr<Honest> make_fault(const std::string& name) {
  for (const auto& part :
       {memory_faults, stream_memory_faults, copy_faults,      reduce_faults,  cast_faults,     digest_faults,
        order_faults,  pointer_faults,       event_faults,     async_faults,   thread_faults,   lifetime_faults,
        limit_faults,  collective_faults,    failure_faults,   renewal_faults, window_faults,   fork_faults,
        ipc_faults,    slot_faults,          optimizer_faults, spend_faults,   register_faults, piece_faults}) {
    for (const Fault& fault : part()) {
      if (name == fault.name) return made(fault, fault.ways.empty() ? "" : fault.ways.front());
      for (const char* way : fault.ways) {
        if (name == std::string(fault.name) + "." + way) return made(fault, way);
      }
    }
  }
  return std::make_unique<Honest>();
}

}  // namespace pliant::broken
