// Devices and refusals.
#include "testkit/accelerator.hpp"
#include "testkit/checks/accelerator_checks.hpp"

namespace pliant::testkit {

namespace {

using Slots = pliant_accelerator;

int32_t counted(const Accelerator& accelerator) {
  int32_t count = -1;
  must("device_count", accelerator.call(&Slots::device_count, &count));
  return count;
}

void count(const Subject& subject) {
  const Accelerator accelerator(subject, Accelerator::Devices::kAnyNumber);
  const int32_t first = counted(accelerator);
  expect(first >= 0, "device_count set " + std::to_string(first));
  expect(counted(accelerator) == first, "a second call of device_count gives another number");
}

void properties(const Subject& subject) {
  const Accelerator accelerator(subject);
  for (int32_t device = 0; device < accelerator.devices(); ++device) {
    pliant_device_properties found{};
    found.struct_size = sizeof(found);
    std::memset(found.name, 'x', sizeof(found.name));
    must("device_properties", accelerator.call(&Slots::device_properties, device, &found));
    const std::string who = "device " + std::to_string(device);
    expect(found.struct_size == sizeof(found), who + ": struct_size is the host's and was changed");
    expect(found.memory_bytes > 0, who + " has no memory");
    expect(std::memchr(found.name, '\0', sizeof(found.name)) != nullptr, who + ": its name does not end");
    expect(found.name[0] != '\0', who + " has no name");
    const uint32_t known = PLIANT_CAP_HOST_VISIBLE | PLIANT_CAP_FIXED_ORDER | PLIANT_CAP_SHARED_MEMORY |
                           PLIANT_CAP_EXCHANGE_MEMORY | PLIANT_CAP_WINDOW_MEMORY;
    if ((found.capabilities & ~known) != 0) {
      warn(who + " has capability bits that this kit does not know: " + std::to_string(found.capabilities & ~known));
    }
  }
}

/// A struct of an older host ends before `name`.
void older_host(const Subject& subject) {
  const Accelerator accelerator(subject);
  pliant_device_properties found{};
  found.struct_size = offsetof(pliant_device_properties, name);
  std::memset(found.name, 'x', sizeof(found.name));
  must("device_properties", accelerator.call(&Slots::device_properties, 0, &found));
  for (const char c : found.name) {
    expect(c == 'x', "device_properties wrote past struct_size; PLIANT_HAS shows which fields the host knows");
  }
}

/// What is said of a device that is not there.
class Refusals {
 public:
  Refusals(const Accelerator& accelerator, int32_t device) : accelerator_(accelerator), device_(device) {}
  void judge(const char* slot, const Outcome& outcome) const {
    const std::string who = "device " + std::to_string(device_);
    expect(!outcome.ok(), std::string(slot) + " returned OK for " + who);
    expect(!outcome.message.empty(), std::string(slot) + " refused " + who + " without a message");
    if (!accelerator_.says_whom()) return;
    expect(outcome.device == device_, std::string(slot) + " refused " + who + " with " +
                                          std::to_string(outcome.device) +
                                          " as the device of its error: " + outcome.text());
  }

 private:
  const Accelerator& accelerator_;
  const int32_t device_;
};

void out_of_range(const Subject& subject) {
  const Accelerator accelerator(subject, Accelerator::Devices::kAnyNumber);
  const int32_t devices = counted(accelerator);
  for (const int32_t device : {devices, -1, devices + 1000}) {
    const Refusals refusals(accelerator, device);
    pliant_device_properties found{};
    found.struct_size = sizeof(found);
    refusals.judge("device_properties", accelerator.call(&Slots::device_properties, device, &found));
    void* pointer = nullptr;
    refusals.judge("alloc", accelerator.call(&Slots::alloc, device, PLIANT_MEMORY_DEVICE, 64, &pointer));
    expect(pointer == nullptr, "alloc failed and left a pointer");
    pliant_stream* stream = nullptr;
    refusals.judge("stream_create", accelerator.call(&Slots::stream_create, device, 0, 0, &stream));
    pliant_event* event = nullptr;
    refusals.judge("event_create", accelerator.call(&Slots::event_create, device, 0, &event));
    uint64_t bytes[2] = {0, 0};
    refusals.judge("memory_info", accelerator.call(&Slots::memory_info, device, &bytes[0], &bytes[1]));
  }
}

void worded(const char* what, const Outcome& outcome) {
  expect(!outcome.ok(), std::string(what) + " was accepted");
  expect(!outcome.message.empty(),
         std::string(what) + " was refused with status " + std::to_string(outcome.status) + " and no message");
}

void errors(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  const Memory memory(accelerator, 256);
  void* out = nullptr;
  pliant_stream* made = nullptr;
  worded("alloc of memory kind 77", accelerator.call(&Slots::alloc, 0, 77, 64, &out));
  worded("stream_create of role 77", accelerator.call(&Slots::stream_create, 0, 77, 0, &made));
  const void* sources[] = {memory.at(64)};
  const void* const* from = sources;
  const auto reduce = [&](int32_t count, int32_t dtype, int32_t op, double scale) {
    return accelerator.call(&Slots::reduce_async, static_cast<void*>(memory.at()), from, count, 4, dtype, op, scale,
                            stream);
  };
  worded("reduce_async of element type 77", reduce(1, 77, PLIANT_SUM, 1.0));
  worded("reduce_async with operation 77", reduce(1, PLIANT_F32, 77, 1.0));
  worded("reduce_async of 0 sources", reduce(0, PLIANT_F32, PLIANT_SUM, 1.0));
  worded("reduce_async of integers with scale 0.5", reduce(1, PLIANT_I32, PLIANT_SUM, 0.5));
  worded("cast_async to element type 77",
         accelerator.call(&Slots::cast_async, static_cast<void*>(memory.at()), 77,
                          static_cast<const void*>(memory.at(64)), PLIANT_F32, 4, stream));
  must("stream_synchronize after refused calls", stream.synchronize());
}

/// Callers that do not care pass NULL.
void no_error_wanted(const Subject& subject) {
  const Accelerator accelerator(subject);
  void* out = nullptr;
  expect(accelerator.slots().alloc(accelerator.self(), 0, 77, 64, &out, nullptr) != PLIANT_OK,
         "alloc of memory kind 77 was accepted");
}

}  // namespace

std::vector<Check> device_checks() {
  return {
      {"device.count", "the number of devices is 0 or more, and the same at every call", count},
      {"device.properties", "every device has a name, memory and known capabilities", properties},
      {"device.older_host", "a host with an older properties struct gets the fields that fit", older_host},
      {"device.range", "every call refuses a device that does not exist and names it in the error", out_of_range},
      {"device.errors", "invalid arguments are refused with a status and a message", errors},
      {"device.null_error", "a refusal works without an error struct", no_error_wanted},
  };
}

}  // namespace pliant::testkit
