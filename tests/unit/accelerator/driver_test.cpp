// What accelerators over a driver have in common, on each of those that have one in software.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <vector>

#include "cuda_device.hpp"
#include "level_zero_device.hpp"

using namespace pliant_test;
using Slots = pliant_accelerator;

TYPE_TO_STRING(SoftwareCuda);
TYPE_TO_STRING(SoftwareLevelZero);
#if !defined(PLIANT_SOFT_LEVEL_ZERO)
#define PLIANT_SOFTWARE_DRIVERS SoftwareCuda
#elif !defined(PLIANT_SOFT_CUDA)
#define PLIANT_SOFTWARE_DRIVERS SoftwareLevelZero
#else
#define PLIANT_SOFTWARE_DRIVERS SoftwareCuda, SoftwareLevelZero
#endif

TEST_CASE_TEMPLATE("an allocation that the driver refuses is told with its size and the result, and the next one works",
                   Driver, PLIANT_SOFTWARE_DRIVERS) {
  const Setting fail(Driver::kFailAllocAt, "2");
  const Driver device;
  void* first = nullptr;
  void* second = &first;
  REQUIRE(device.alloc(1000, &first).ok());
  const Outcome refused = device.alloc(5000, &second);
  CHECK(refused.status == PLIANT_RESOURCE_EXHAUSTED);
  CHECK(contains(refused.message, "out of device memory: 5000 bytes wanted"));
  CHECK(contains(refused.message, Driver::kAllocRefused));
  CHECK(second == nullptr);
  uint64_t free_bytes = 0;
  uint64_t total = 0;
  REQUIRE(device.call(&Slots::memory_info, 0, &free_bytes, &total).ok());
  CHECK(free_bytes == total - 1000);
  REQUIRE(device.alloc(5000, &second).ok());
  device.free(first);
  device.free(second);
}

TEST_CASE_TEMPLATE("each device has its name, its memory and its streams, and an index past them is refused", Driver,
                   PLIANT_SOFTWARE_DRIVERS) {
  const Setting two(Driver::kDevices, "2");
  const Driver device({{{"memory_bytes", 1000}}, {}, {}});
  for (int32_t index = 0; index < 2; ++index) {
    pliant_device_properties properties{};
    properties.struct_size = sizeof(properties);
    REQUIRE(device.call(&Slots::device_properties, index, &properties).ok());
    CHECK(std::string(properties.name) == "software GPU " + std::to_string(index) + " (test double)");
  }
  std::array<void*, 2> buffers{};
  REQUIRE(device.alloc(1000, &buffers[0], 0).ok());
  REQUIRE(device.alloc(1000, &buffers[1], 1).ok());
  void* more = nullptr;
  CHECK(device.alloc(1, &more, 1).status == PLIANT_RESOURCE_EXHAUSTED);
  CHECK(device.alloc(1, &more, 2).message == "device 2 does not exist; devices: 2, counted from 0");
  {
    const Stream first(device, PLIANT_STREAM_COMPUTE, 0);
    const Stream second(device, PLIANT_STREAM_COMPUTE, 1);
    const Event on_first(device, true);
    const Event on_second(device, true);
    REQUIRE(device.call(&Slots::event_record, on_first, first).ok());
    REQUIRE(device.call(&Slots::stream_wait_event, second, on_first).ok());
    REQUIRE(device.call(&Slots::copy_async, buffers[1], buffers[0], 1000, second).ok());
    REQUIRE(device.call(&Slots::event_record, on_second, second).ok());
    REQUIRE(second.synchronize().ok());
    double seconds = 0;
    CHECK(contains(device.call(&Slots::event_elapsed, on_first, on_second, &seconds).message, "different devices"));
  }
  for (void* one : buffers) device.free(one);
}

TEST_CASE_TEMPLATE("shared memory has one address for the CPU and the device", Driver, PLIANT_SOFTWARE_DRIVERS) {
  const Driver device;
  pliant_device_properties properties{};
  properties.struct_size = sizeof(properties);
  REQUIRE(device.call(&Slots::device_properties, 0, &properties).ok());
  CHECK((properties.capabilities & PLIANT_CAP_SHARED_MEMORY) != 0);
  constexpr uint64_t kBytes = 5000;
  void* shared = nullptr;
  REQUIRE(device.alloc(kBytes, &shared, 0, PLIANT_MEMORY_SHARED).ok());
  {
    const Stream stream(device);
    auto* const bytes = static_cast<unsigned char*>(shared);
    REQUIRE(device.call(&Slots::fill_async, shared, 7, kBytes, stream).ok());
    REQUIRE(stream.synchronize().ok());
    CHECK(bytes[kBytes - 1] == 7);
    bytes[kBytes - 1] = 9;
    void* own = nullptr;
    REQUIRE(device.alloc(2, &own).ok());
    std::array<unsigned char, 2> read{};
    REQUIRE(device.call(&Slots::copy_async, own, bytes + kBytes - 2, 2, stream).ok());
    REQUIRE(device.call(&Slots::copy_async, read.data(), own, 2, stream).ok());
    REQUIRE(stream.synchronize().ok());
    CHECK(read == std::array<unsigned char, 2>{7, 9});
    device.free(own);
  }
  device.free(shared, PLIANT_MEMORY_SHARED);
}

TEST_CASE_TEMPLATE("work that leaves its buffer is refused before it is enqueued", Driver, PLIANT_SOFTWARE_DRIVERS) {
  const Driver device;
  void* buffer = nullptr;
  REQUIRE(device.alloc(100, &buffer).ok());
  {
    const Stream stream(device);
    CHECK(device.call(&Slots::fill_async, static_cast<char*>(buffer) + 40, 1, 61, stream).message ==
          "the target exceeds its buffer: 61 bytes from byte 40 of a buffer of 100");
    CHECK(device.call(&Slots::fill_async, static_cast<char*>(buffer) + 40, 1, 60, stream).ok());
    CHECK(stream.synchronize().ok());
  }
  device.free(buffer);
}

TEST_CASE_TEMPLATE("work on memory that was freed is refused before it is enqueued", Driver, PLIANT_SOFTWARE_DRIVERS) {
  const Driver device;
  constexpr uint64_t kBytes = 1 << 20;
  std::vector<char> plain(kBytes);  // before: nothing new may come to lie where the freed memory was
  const Stream stream(device);
  for (const int32_t kind : {PLIANT_MEMORY_DEVICE, PLIANT_MEMORY_PINNED, PLIANT_MEMORY_SHARED}) {
    CAPTURE(kind);
    void* freed = nullptr;
    REQUIRE(device.alloc(kBytes, &freed, 0, kind).ok());
    device.free(freed, kind);
    const Outcome refused = device.call(&Slots::fill_async, freed, 1, kBytes, stream);
    CHECK(refused.status == PLIANT_INVALID_ARGUMENT);
    CHECK(contains(refused.message, "it was freed, or the pointer is wrong"));
    CHECK(device.call(&Slots::copy_async, plain.data(), freed, kBytes, stream).status == PLIANT_INVALID_ARGUMENT);
    CHECK(stream.synchronize().ok());
  }
}

TEST_CASE_TEMPLATE("memory that was not freed goes with the instance", Driver, PLIANT_SOFTWARE_DRIVERS) {
  const Driver device;
  void* pointer = nullptr;
  REQUIRE(device.alloc(64, &pointer).ok());
  REQUIRE(device.alloc(64, &pointer, 0, PLIANT_MEMORY_PINNED).ok());
}  // the check for live objects is in ~Device

TEST_CASE_TEMPLATE("a forked child that uses its parent's instance is told so, and may let go of everything", Driver,
                   PLIANT_SOFTWARE_DRIVERS) {
  auto device = std::make_unique<Driver>();
  void* buffer = nullptr;
  REQUIRE(device->alloc(64, &buffer).ok());
  auto stream = std::make_unique<Stream>(*device);
  auto event = std::make_unique<Event>(*device);
  const auto nothing = [](void*) {};
  REQUIRE(device->call(&Slots::host_function, +nothing, nullptr, *stream).ok());
  REQUIRE(device->call(&Slots::event_record, *event, *stream).ok());
  REQUIRE(stream->synchronize().ok());
  const pid_t child = ::fork();
  if (child == 0) {
    int32_t count = 0;
    void* more = nullptr;
    int told = 0;
    for (const Outcome& outcome :
         {device->call(&Slots::device_count, &count), device->alloc(64, &more), stream->synchronize(),
          device->call(&Slots::fill_async, buffer, 1, 64, *stream), device->call(&Slots::event_synchronize, *event)}) {
      told += contains(outcome.message, "open the accelerator after the fork") ? 1 : 0;
    }
    device->free(buffer);
    event.reset();
    stream.reset();
    // What the parent has is not the child's to check.
    device->let_go();
    static_cast<void>(device.release());
    ::_exit(told);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 5);
  event.reset();
  stream.reset();
  device->free(buffer);
}
