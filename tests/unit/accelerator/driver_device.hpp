// A device of an accelerator over a driver, as the tests of such accelerators use it.
#pragma once

#include <string>

#include "device.hpp"

namespace pliant_test {

class DriverDevice : public Device {
 public:
  using Device::Device;
  [[nodiscard]] Outcome alloc(uint64_t bytes, void** out, int32_t device = 0,
                              int32_t memory = PLIANT_MEMORY_DEVICE) const {
    return call(&pliant_accelerator::alloc, device, memory, bytes, out);
  }
  void free(void* pointer, int32_t memory = PLIANT_MEMORY_DEVICE) const { slots().free(self(), 0, memory, pointer); }
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The words in which an accelerator without devices refuses every call that names one.
inline std::string refusal_without_devices(const Device& device) {
  using Slots = pliant_accelerator;
  int32_t count = -1;
  CHECK(device.call(&Slots::device_count, &count).text() == "0: ");
  CHECK(count == 0);
  void* pointer = nullptr;
  pliant_stream* stream = nullptr;
  pliant_event* event = nullptr;
  uint64_t bytes = 0;
  const Outcome alloc = device.call(&Slots::alloc, 0, PLIANT_MEMORY_DEVICE, 64, &pointer);
  const Outcome created = device.call(&Slots::stream_create, 0, PLIANT_STREAM_COMPUTE, PLIANT_PRIORITY_NORMAL, &stream);
  CHECK(alloc.status == PLIANT_INVALID_ARGUMENT);
  CHECK(created.text() == alloc.text());
  CHECK(device.call(&Slots::event_create, 0, 0, &event).text() == alloc.text());
  CHECK(device.call(&Slots::memory_info, 0, &bytes, &bytes).text() == alloc.text());
  return alloc.message;
}

}  // namespace pliant_test
