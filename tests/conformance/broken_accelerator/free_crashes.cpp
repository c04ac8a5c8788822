// BROKEN: freeing what is not, or no more, allocated ends the process.
#include <cstdlib>
#include <mutex>
#include <set>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct FreeCrashes : Honest<FreeCrashes> {
  void* alloc(int32_t device, pliant::sdk::Memory memory, uint64_t bytes) {
    const std::lock_guard lock(mutex);
    return *live.insert(Device::alloc(device, memory, bytes)).first;
  }
  void free(int32_t device, pliant::sdk::Memory memory, void* pointer) {
    const std::lock_guard lock(mutex);
    if (live.erase(pointer) == 0) std::abort();
    Device::free(device, memory, pointer);
  }
  std::mutex mutex;
  std::set<void*> live;
};

}  // namespace

PLIANT_BROKEN(FreeCrashes, "free-crashes")
