// What only Level Zero has: faults of driver and device, many devices, instances; on the software driver.
#include <array>
#include <atomic>
#include <utility>
#include <vector>

#include "level_zero_device.hpp"

using namespace pliant_test;
using Slots = pliant_accelerator;

TEST_CASE("a driver that cannot share memory between processes has no exchange memory") {
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
  CHECK(contains(device.alloc(64, &pointer).message, "no Level Zero driver finds a GPU on this machine"));
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

namespace {

pliant_error blank_error() {
  pliant_error made{};
  made.struct_size = sizeof(made);
  return made;
}

/// One more of the plugin in this process.
class OtherInstance {
 public:
  OtherInstance() : library_(::dlopen(kLevelZeroFile, RTLD_NOW | RTLD_LOCAL)) {
    REQUIRE(library_ != nullptr);
    const auto entry = reinterpret_cast<pliant_plugin_entry>(::dlsym(library_, PLIANT_PLUGIN_ENTRY_SYMBOL));
    record_ = entry();
    std::vector<pliant_value> values;
    for (uint32_t i = 0; i < record_->option_count; ++i) values.push_back(*record_->options[i].default_value);
    const pliant_option_values view{sizeof(view), record_->option_count, sizeof(pliant_value), values.data()};
    pliant_error error = blank_error();
    REQUIRE(record_->create(nullptr, &view, &self_, &error) == PLIANT_OK);
  }
  ~OtherInstance() {
    record_->destroy(self_);
    ::dlclose(library_);
  }
  OtherInstance(const OtherInstance&) = delete;
  OtherInstance& operator=(const OtherInstance&) = delete;
  [[nodiscard]] const pliant_accelerator& slots() const {
    return *static_cast<const pliant_accelerator*>(record_->vtable);
  }
  [[nodiscard]] void* self() const { return self_; }

 private:
  void* library_;
  const pliant_plugin* record_ = nullptr;
  void* self_ = nullptr;
};

/// Pages of the program.
struct OwnMemory {
  [[nodiscard]] Outcome pin(const SoftwareLevelZero& device, size_t at, uint64_t size) {
    return device.call(&Slots::register_host, static_cast<void*>(&bytes[at]), size);
  }
  void unpin(const SoftwareLevelZero& device, size_t at) { device.slots().unregister_host(device.self(), &bytes[at]); }
  std::array<std::byte, 4 * 4096> bytes{};
};

int64_t pinned_ranges() {
  return software_driver_counts().pinned;
}

}  // namespace

TEST_CASE("memory that the program registers is pinned by the driver, whose refusals are told and leave it as it was") {
  OwnMemory own;
  {
    const Setting fail("PLIANT_SOFT_ZE_FAIL_IMPORT_AT", "2");
    const SoftwareLevelZero device;
    CHECK(own.pin(device, 0, 100).text() == "0: ");
    const Outcome failed = own.pin(device, 4096, 4096);
    CHECK(failed.status == PLIANT_RESOURCE_EXHAUSTED);
    CHECK(contains(failed.message, "zexDriverImportExternalPointer: ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY"));
    CHECK(own.pin(device, 4096, 4096).ok());
    CHECK(own.pin(device, 200, 8).ok());  // a page may have several
    CHECK(pinned_ranges() == 3);
    // What the plugin registered it does not free as if it had allocated it.
    device.slots().free(device.self(), 0, PLIANT_MEMORY_PINNED, own.bytes.data());
    CHECK(own.pin(device, 0, 100).status == PLIANT_INVALID_ARGUMENT);
    own.unpin(device, 0);
    own.unpin(device, 1);
    CHECK(own.pin(device, 0, 8192).status == PLIANT_INVALID_ARGUMENT);
    CHECK(own.pin(device, 100, 4096 * 3).status == PLIANT_INVALID_ARGUMENT);  // others lie in its middle
    own.unpin(device, 200);
    own.unpin(device, 4096);
    CHECK(pinned_ranges() == 0);
    CHECK(own.pin(device, 0, 8192).ok());  // what is left registered goes with the instance
  }
  check_software_driver_is_clean();
}

TEST_CASE("copies of registered memory go straight to the device, from where it begins and from its middle") {
  OwnMemory own;
  const SoftwareLevelZero device;
  REQUIRE(own.pin(device, 100, 8000).ok());
  void* there = nullptr;
  REQUIRE(device.alloc(8000, &there).ok());
  for (size_t i = 0; i < 8000; ++i) own.bytes[100 + i] = static_cast<std::byte>(i % 251);
  {
    const Stream stream(device);
    REQUIRE(stream.synchronize().ok());
    const int64_t before = software_driver_counts().appended;
    REQUIRE(device.call(&Slots::copy_async, there, &own.bytes[100], 8000, stream).ok());
    CHECK(software_driver_counts().appended == before + 1);
    REQUIRE(device.call(&Slots::copy_async, &own.bytes[500], there, 1000, stream).ok());
    REQUIRE(stream.synchronize().ok());
    CHECK(own.bytes[500 + 999] == static_cast<std::byte>(999 % 251));
    CHECK(own.bytes[500 + 1000] == static_cast<std::byte>(1400 % 251));
    const Outcome leaves = device.call(&Slots::copy_async, there, &own.bytes[101], 8000, stream);
    CHECK(leaves.status == PLIANT_INVALID_ARGUMENT);
  }
  device.free(there);
  own.unpin(device, 100);
}

TEST_CASE("what somebody else in the process has pinned is left to him") {
  OwnMemory own;
  const SoftwareLevelZero device;
  {
    const OtherInstance other;
    pliant_error error = blank_error();
    REQUIRE(other.slots().register_host(other.self(), own.bytes.data(), 4096, &error) == PLIANT_OK);
    using Range = std::pair<size_t, uint64_t>;
    for (const auto& [at, size] : {Range(0, 4096), Range(100, 8), Range(4000, 4096)}) {
      const Outcome refused = own.pin(device, at, size);
      CHECK(refused.status == PLIANT_UNIMPLEMENTED);
      CHECK(contains(refused.message, "another part of this process"));
    }
    own.unpin(device, 0);
    CHECK(pinned_ranges() == 1);
  }
  CHECK(pinned_ranges() == 0);
  CHECK(own.pin(device, 0, 4096).ok());
}

TEST_CASE("a driver that pins no memory of the program is told apart from one that can") {
  const Setting none("PLIANT_SOFT_ZE_IMPORT", "0");
  OwnMemory own;
  const SoftwareLevelZero device;
  const Outcome refused = own.pin(device, 0, 100);
  CHECK(refused.status == PLIANT_UNIMPLEMENTED);
  CHECK(contains(refused.message, "it lacks zexDriverImportExternalPointer"));
}

// The loader reads the variable when a process first asks it: by itself, as ctest runs it, this case is the first.
TEST_CASE("the driver's own functions get the driver's own handle where the loader hands out others") {
  const Setting intercept("ZE_ENABLE_LOADER_INTERCEPT", "1");
  OwnMemory own;
  {
    const SoftwareLevelZero device;
    CHECK(own.pin(device, 0, 100).text() == "0: ");
    own.unpin(device, 0);
  }
  check_software_driver_is_clean();
}

TEST_CASE("instances of one process do not know of each other") {
  const SoftwareLevelZero first;
  void* pointer = nullptr;
  REQUIRE(first.alloc(4096, &pointer).ok());
  {
    const OtherInstance second;
    pliant_error error = blank_error();
    uint64_t free_bytes = 0;
    uint64_t total = 0;
    CHECK(second.slots().memory_info(second.self(), 0, &free_bytes, &total, &error) == PLIANT_OK);
    CHECK(free_bytes == total);
    second.slots().free(second.self(), 0, PLIANT_MEMORY_DEVICE, pointer);  // not its own: left alone
  }
  CHECK(software_driver_counts().allocations == 1);
  first.free(pointer);
}
