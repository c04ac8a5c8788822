// Faults of a backend that was written against the slots themselves, without the SDK's care.
#include <atomic>
#include <cstdlib>

#include "faults.hpp"

namespace pliant::broken {
namespace {

/// silent: alloc refuses without a message; wordy: it names the device in words alone; blind: it writes an error that
/// nobody gave; any_device: it takes every device; null: freeing NULL crashes; larger: device_properties writes more
/// than the host knows; unnamed: it gives no name; counts: device_count changes its mind; roles: streams that move data
/// are refused.
struct SlotsWrong : Honest {
  int32_t alloc_slot(const Slots& sdk, int32_t device, int32_t memory, uint64_t bytes, void** out,
                     pliant_error* error) override {
    if (way == "any_device") device = 0;
    const int32_t status = sdk->alloc(sdk.self(), device, memory, bytes, out, error);
    if (way == "silent" && status != PLIANT_OK && error != nullptr) error->message[0] = '\0';
    if (way == "wordy" && status != PLIANT_OK && error != nullptr) error->device = -1;
    if (way == "blind" && status != PLIANT_OK) *const_cast<volatile int32_t*>(&error->status) = status;
    return status;
  }
  void free_slot(const Slots& sdk, int32_t device, int32_t memory, void* pointer) override {
    if (way == "null" && pointer == nullptr) std::abort();
    sdk->free(sdk.self(), device, memory, pointer);
  }
  int32_t device_properties_slot(const Slots& sdk, int32_t device, pliant_device_properties* out,
                                 pliant_error* error) override {
    const int32_t status = sdk->device_properties(sdk.self(), device, out, error);
    if (way == "larger") out->name[sizeof(out->name) - 1] = '\0';
    if (way == "unnamed" && PLIANT_HAS(pliant_device_properties, out, name)) out->name[0] = '\0';
    return status;
  }
  int32_t device_count_slot(const Slots&, int32_t* count, pliant_error*) override {
    *count = way == "counts" && ++counted == 2 ? 2 : 1;
    return PLIANT_OK;
  }
  int32_t stream_create_slot(const Slots& sdk, int32_t device, int32_t role, int32_t priority, pliant_stream** out,
                             pliant_error* error) override {
    const bool refused = way == "roles" && role > PLIANT_STREAM_SCATTER;
    return sdk->stream_create(sdk.self(), device, refused ? -1 : role, priority, out, error);
  }
  std::atomic<int> counted{0};
};

}  // namespace

std::vector<Fault> slot_faults() {
  return {{"slots-wrong",
           {"silent", "wordy", "blind", "any_device", "null", "larger", "unnamed", "counts", "roles"},
           make<SlotsWrong>}};
}

}  // namespace pliant::broken
