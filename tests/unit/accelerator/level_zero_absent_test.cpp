// The accelerator level_zero on machines that lack the loader, a driver or a device: 0 devices, and the reason is told.
#include "device.hpp"

using namespace pliant_test;

namespace {

using Slots = pliant_accelerator;

int32_t devices_of(const Device& device) {
  int32_t count = -1;
  const Outcome counted = device.call(&Slots::device_count, &count);
  CHECK(counted.text() == "0: ");
  return count;
}

/// Every call that names a device is refused with the same words.
std::string refusal(const Device& device) {
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

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("without a loader there are no devices, and the refusal says what to install") {
  const Device device({{}, {}, {}, {{"loader", "libze_loader_that_is_not_there.so.1"}}}, kLevelZeroFile);
  CHECK(devices_of(device) == 0);
  const std::string said = refusal(device);
  CAPTURE(said);
  CHECK(contains(said, "device 0 does not exist; devices: 0: the loader of Level Zero cannot be opened"));
  CHECK(contains(said, "libze_loader_that_is_not_there.so.1"));
  CHECK(contains(said, "libze1"));
}

TEST_CASE("a library that is no loader is named with what it lacks") {
  const Device device({{}, {}, {}, {{"loader", "libm.so.6"}}}, kLevelZeroFile);
  CHECK(devices_of(device) == 0);
  CHECK(contains(refusal(device), "libm.so.6 is no loader of Level Zero: it lacks zeInit"));
}

TEST_CASE("a loader that is not given by name or absolute path is refused before anything is opened") {
  for (const char* loader : {"", "lib/libze_loader.so.1", "./libze_loader.so.1"}) {
    CAPTURE(loader);
    const OptionSettings settings{{}, {}, {}, {{"loader", loader}}};
    CHECK_THROWS_WITH(Device(settings, kLevelZeroFile), doctest::Contains("give a name without '/'"));
  }
}

TEST_CASE("with a loader and no driver there are no devices, and the refusal names the result") {
  const Setting none("ZE_ENABLE_ALT_DRIVERS", "/no/such/driver.so");
  const Device device({}, kLevelZeroFile);
  CHECK(devices_of(device) == 0);
  const std::string said = refusal(device);
  CAPTURE(said);
  CHECK(contains(said, "ZE_RESULT_ERROR_UNINITIALIZED"));
  CHECK(contains(said, "install the driver"));
}
