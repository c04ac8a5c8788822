// What only Level Zero has: faults of driver and device, many devices, instances; on the software driver.
#include <array>
#include <atomic>
#include <memory>

#include "level_zero_device.hpp"

using namespace pliant_test;
using Slots = pliant_accelerator;

TEST_CASE("a driver that passes no memory between processes has no exchange memory") {
  const Setting ipc("PLIANT_SOFT_ZE_IPC", "0");
  const SoftwareLevelZero device;
  void* memory = nullptr;
  const Outcome refused = device.call(&Slots::alloc, 0, PLIANT_MEMORY_EXCHANGE, 100, &memory);
  CHECK(refused.status == PLIANT_UNIMPLEMENTED);
  CHECK(contains(refused.message, "use PLIANT_MEMORY_DEVICE"));
}

TEST_CASE("more than the device has is refused, and what fits is given") {
  const Setting memory("PLIANT_SOFT_ZE_MEMORY_BYTES", "1048576");
  const SoftwareLevelZero device;
  void* pointer = nullptr;
  CHECK(device.alloc(1048577, &pointer).status == PLIANT_RESOURCE_EXHAUSTED);
  REQUIRE(device.alloc(1000000, &pointer).ok());
  void* more = nullptr;
  CHECK(device.alloc(100000, &more).status == PLIANT_RESOURCE_EXHAUSTED);
  device.free(pointer);
  REQUIRE(device.alloc(100000, &more).ok());
  device.free(more);
}

TEST_CASE("a buffer may be larger than what the driver gives in one piece by default") {
  const SoftwareLevelZero device;
  void* pointer = nullptr;
  CHECK(device.alloc(uint64_t{300} << 20, &pointer).text() == "0: ");
  device.free(pointer);
}

TEST_CASE("a lost device is named by synchronize, by an event behind the loss and by alloc") {
  const Setting lose("PLIANT_SOFT_ZE_LOSE_DEVICE_AT", "1");
  const SoftwareLevelZero device;
  void* buffer = nullptr;
  REQUIRE(device.alloc(64, &buffer).ok());
  {
    const Stream stream(device);
    const Event event(device);
    // The device is lost at some time after the first call, so that later ones may be refused or not.
    REQUIRE(device.call(&Slots::fill_async, buffer, 1, 64, stream).ok());
    const Outcome recorded = device.call(&Slots::event_record, event, stream);
    const Outcome told = stream.synchronize();
    CHECK(told.status == PLIANT_FAILED_PRECONDITION);
    CHECK(contains(told.message, "ZE_RESULT_ERROR_DEVICE_LOST: the device hung"));
    if (recorded.ok()) {
      CHECK(contains(device.call(&Slots::event_synchronize, event).message, "ZE_RESULT_ERROR_DEVICE_LOST"));
    }
    CHECK(contains(device.call(&Slots::fill_async, buffer, 1, 64, stream).message + stream.synchronize().message,
                   "ZE_RESULT_ERROR_DEVICE_LOST"));
    int32_t done = -1;
    CHECK(device.call(&Slots::stream_query, stream, &done).ok());
    CHECK(done == 1);
    void* more = nullptr;
    CHECK(contains(device.alloc(64, &more).message, "ZE_RESULT_ERROR_DEVICE_LOST"));
  }
  device.free(buffer);
}

TEST_CASE("host functions behind the loss of a device still run, and nobody waits for ever") {
  const Setting lose("PLIANT_SOFT_ZE_LOSE_DEVICE_AT", "1");
  const SoftwareLevelZero device;
  void* buffer = nullptr;
  REQUIRE(device.alloc(4 * 1000, &buffer).ok());
  {
    const Stream stream(device);
    const Stream waiting(device, PLIANT_STREAM_GATHER);
    const Event event(device);
    std::atomic<int> calls{0};
    std::array<float, 1000> values{};
    const std::array<const void*, 2> from{values.data(), buffer};
    const auto count = [](void* context) { ++*static_cast<std::atomic<int>*>(context); };
    REQUIRE(device.call(&Slots::fill_async, buffer, 1, 64, stream).ok());
    REQUIRE(device.call(&Slots::host_function, +count, &calls, stream).ok());
    static_cast<void>(
        device.call(&Slots::reduce_async, buffer, from.data(), 2, 1000, PLIANT_F32, PLIANT_SUM, 1.0, stream));
    static_cast<void>(device.call(&Slots::event_record, event, stream));
    static_cast<void>(device.call(&Slots::stream_wait_event, waiting, event));
    static_cast<void>(device.call(&Slots::host_function, +count, &calls, waiting));
    CHECK(contains(stream.synchronize().message, "ZE_RESULT_ERROR_DEVICE_LOST"));
    static_cast<void>(waiting.synchronize());
    CHECK(calls == 2);
  }
  device.free(buffer);
}

TEST_CASE("a driver that is too old counts as none, and its version is told") {
  const Setting old("PLIANT_SOFT_ZE_API_VERSION", "1.1");
  const SoftwareLevelZero device;
  int32_t count = -1;
  CHECK(device.call(&Slots::device_count, &count).ok());
  CHECK(count == 0);
  void* pointer = nullptr;
  CHECK(contains(device.alloc(64, &pointer).message, "the driver speaks Level Zero 1.1, and at least 1.2 is needed"));
}

TEST_CASE("a driver without devices is told apart from no driver") {
  const Setting none("PLIANT_SOFT_ZE_DEVICES", "0");
  const SoftwareLevelZero device;
  void* pointer = nullptr;
  CHECK(contains(device.alloc(64, &pointer).message, "no driver of Level Zero knows a GPU here"));
}

TEST_CASE("streams of every role and priority run on the queues that the device has") {
  const SoftwareLevelZero device;
  void* buffer = nullptr;
  REQUIRE(device.alloc(64, &buffer).ok());
  for (int32_t role = PLIANT_STREAM_COMPUTE; role <= PLIANT_STREAM_TO_HOST; ++role) {
    for (int32_t priority = PLIANT_PRIORITY_LOW; priority <= PLIANT_PRIORITY_HIGH; ++priority) {
      pliant_stream* stream = nullptr;
      REQUIRE(device.call(&Slots::stream_create, 0, role, priority, &stream).ok());
      CHECK(device.call(&Slots::fill_async, buffer, role, 64, stream).ok());
      CHECK(device.call(&Slots::stream_synchronize, stream).ok());
      device.slots().stream_destroy(device.self(), stream);
    }
  }
  device.free(buffer);
}

TEST_CASE("events are used again: twenty thousand recordings and waits take a few hundred") {
  const SoftwareLevelZero device;
  const int64_t before = software_driver_counts().events_made;
  void* buffer = nullptr;
  REQUIRE(device.alloc(64, &buffer).ok());
  {
    const Stream first(device);
    const Stream second(device, PLIANT_STREAM_GATHER);
    const Event event(device);
    bool fine = true;
    for (int i = 0; i < 200; ++i) {
      for (int j = 0; j < 50; ++j) {
        fine = fine && device.call(&Slots::fill_async, buffer, j, 64, first).ok() &&
               device.call(&Slots::event_record, event, first).ok() &&
               device.call(&Slots::stream_wait_event, second, event).ok();
      }
      fine = fine && second.synchronize().ok();
    }
    CHECK(fine);
  }
  device.free(buffer);
  CHECK(software_driver_counts().events_made - before <= 512);
}

TEST_CASE("a stream that only ever waits gathers nothing") {
  const SoftwareLevelZero device;
  const int64_t before = software_driver_counts().events_made;
  void* buffer = nullptr;
  REQUIRE(device.alloc(64, &buffer).ok());
  {
    const Stream first(device);
    const Stream second(device, PLIANT_STREAM_GATHER);
    const Event event(device);
    bool fine = true;
    for (int i = 0; i < 5000; ++i) {
      fine = fine && device.call(&Slots::fill_async, buffer, 1, 64, first).ok() &&
             device.call(&Slots::event_record, event, first).ok() &&
             device.call(&Slots::stream_wait_event, second, event).ok();
      if (i % 50 == 0) fine = fine && first.synchronize().ok();
    }
    CHECK(fine);
  }
  device.free(buffer);
  CHECK(software_driver_counts().events_made - before <= 1024);
}

TEST_CASE("where the driver reaches plain memory, copies of it go straight to the device") {
  const Setting shared("PLIANT_SOFT_ZE_SHARED_SYSTEM", "1");
  const SoftwareLevelZero device;
  std::array<int, 16> from{7};
  std::array<int, 16> to{};
  const Stream stream(device);
  REQUIRE(stream.synchronize().ok());
  const int64_t before = software_driver_counts().appended;
  REQUIRE(device.call(&Slots::copy_async, to.data(), from.data(), sizeof(from), stream).ok());
  CHECK(software_driver_counts().appended == before + 1);
  REQUIRE(stream.synchronize().ok());
  CHECK(to == from);
}

TEST_CASE("instances of one process do not know of each other") {
  auto first = std::make_unique<SoftwareLevelZero>();
  void* pointer = nullptr;
  REQUIRE(first->alloc(4096, &pointer).ok());
  {
    use_software_driver();
    pliant_error error{};
    error.struct_size = sizeof(error);
    void* library = ::dlopen(kLevelZeroFile, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != nullptr);
    const auto entry = reinterpret_cast<pliant_plugin_entry>(::dlsym(library, PLIANT_PLUGIN_ENTRY_SYMBOL));
    const pliant_plugin* record = entry();
    std::vector<pliant_value> values;
    for (uint32_t i = 0; i < record->option_count; ++i) values.push_back(*record->options[i].default_value);
    const pliant_option_values view{sizeof(view), record->option_count, sizeof(pliant_value), values.data()};
    void* second = nullptr;
    REQUIRE(record->create(nullptr, &view, &second, &error) == PLIANT_OK);
    const auto& slots = *static_cast<const pliant_accelerator*>(record->vtable);
    uint64_t free_bytes = 0;
    uint64_t total = 0;
    CHECK(slots.memory_info(second, 0, &free_bytes, &total, &error) == PLIANT_OK);
    CHECK(free_bytes == total);
    slots.free(second, 0, PLIANT_MEMORY_DEVICE, pointer);  // not its own: left alone
    record->destroy(second);
    ::dlclose(library);
  }
  CHECK(software_driver_counts().allocations == 1);
  first->free(pointer);
}
