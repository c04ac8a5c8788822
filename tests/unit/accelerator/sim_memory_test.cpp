// The simulator's shared memory and memory in stream order: faults, and the virtual clock.
#include <cmath>
#include <latch>

#include "device.hpp"
#include "stream_memory.hpp"

using namespace pliant_test;

namespace {

using Slots = pliant_accelerator;

/// A byte is a nanosecond, and every piece of work takes a microsecond more.
OptionSettings virtual_time() {
  return {{}, {{"launch_us", 1.0}, {"memory_gbps", 1.0}}, {}, {{"clock", "virtual"}}};
}

uint64_t free_bytes(const Device& device) {
  uint64_t free = 0;
  uint64_t total = 0;
  REQUIRE(device.call(&Slots::memory_info, 0, &free, &total).ok());
  return free;
}

/// Holds a stream until it is let go.
class Held {
 public:
  Held(const Device& device, pliant_stream* stream) {
    const auto stand = [](void* context) { static_cast<std::latch*>(context)->wait(); };
    REQUIRE(device.call(&Slots::host_function, +stand, &opened_, stream).ok());
  }
  ~Held() { let_go(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  void let_go() {
    if (!opened_.try_wait()) opened_.count_down();
  }

 private:
  std::latch opened_{1};
};

void fill(const Device& device, void* to, int value, uint64_t bytes, pliant_stream* stream) {
  REQUIRE(device.call(&Slots::fill_async, to, value, bytes, stream).ok());
}

/// Nanoseconds of the virtual clock from `begin` on, by the end of what is on the stream now.
int64_t time_since(const Device& device, const Event& begin, const Stream& stream) {
  const Event end(device, true);
  REQUIRE(device.call(&Slots::event_record, end, stream).ok());
  REQUIRE(device.call(&Slots::event_synchronize, end).ok());
  double seconds = -1;
  REQUIRE(device.call(&Slots::event_elapsed, begin, end, &seconds).ok());
  return std::llround(seconds * 1e9);
}

}  // namespace

TEST_CASE("the simulator has shared memory, unless it is told to be a device without") {
  void* shared = nullptr;
  {
    const Device device({}, kSimFile);
    REQUIRE(device.call(&Slots::alloc, 0, PLIANT_MEMORY_SHARED, 4096, &shared).ok());
    const Stream stream(device);
    fill(device, shared, 5, 4096, stream);
    REQUIRE(stream.synchronize().ok());
    CHECK(static_cast<char*>(shared)[4095] == 5);
    device.slots().free(device.self(), 0, PLIANT_MEMORY_SHARED, shared);
  }
  const Device without({{{"shared_memory", 0}}, {}, {}}, kSimFile);
  CHECK(without.call(&Slots::alloc, 0, PLIANT_MEMORY_SHARED, 4096, &shared).status == PLIANT_UNIMPLEMENTED);
}

TEST_CASE("shared memory and memory in stream order fail where the simulator is told so, and the next works") {
  const Device device({{}, {}, {{"fail_alloc_at", {2, 3}}}}, kSimFile);
  const StreamPool pool(device);
  const Stream stream(device);
  void* first = pool.take(4096, stream);
  void* out = nullptr;
  CHECK(device.call(&Slots::alloc, 0, PLIANT_MEMORY_SHARED, 4096, &out).status == PLIANT_RESOURCE_EXHAUSTED);
  REQUIRE(pool.free(first, stream).ok());
  // What was given back would serve; the device is said to be full all the same.
  const Outcome refused = pool.alloc(4096, stream, &out);
  CHECK(refused.status == PLIANT_RESOURCE_EXHAUSTED);
  CHECK(refused.message.find("allocation 3") != std::string::npos);
  CHECK(pool.take(4096, stream) == first);
}

TEST_CASE("the simulator gives memory back to its own stream at once, and to another where there is no more") {
  const Device device({{{"memory_bytes", 3 << 20}, {"seed", 4}, {"max_delay_us", 200}}, {}, {}}, kSimFile);
  const StreamPool pool(device);
  const Stream first(device);
  const Stream second(device);
  constexpr uint64_t kBytes = 2 << 20;
  char* const memory = pool.take(kBytes, first);
  CHECK(free_bytes(device) == 1 << 20);
  std::vector<char> got(kBytes);
  Held held(device, first);
  fill(device, memory, 1, kBytes, first);
  REQUIRE(device.call(&Slots::copy_async, got.data(), memory, kBytes, first).ok());
  REQUIRE(pool.free(memory, first).ok());
  char* const again = pool.take(kBytes, first);
  CHECK(again == memory);
  REQUIRE(pool.free(again, first).ok());
  char* const elsewhere = pool.take(kBytes, second);
  CHECK(elsewhere == memory);
  fill(device, elsewhere, 2, kBytes, second);
  int32_t done = -1;
  CHECK(device.call(&Slots::stream_query, second, &done).ok());
  CHECK(done == 0);
  held.let_go();
  REQUIRE(first.synchronize().ok());
  REQUIRE(second.synchronize().ok());
  CHECK(got == std::vector<char>(kBytes, 1));
  CHECK(elsewhere[kBytes - 1] == 2);
  void* out = nullptr;
  CHECK(pool.alloc(kBytes, second, &out).status == PLIANT_RESOURCE_EXHAUSTED);
  CHECK(out == nullptr);
}

TEST_CASE("what the simulator keeps goes back when it is trimmed, or when the device is full") {
  const Device device({{{"memory_bytes", 3 << 20}}, {}, {}}, kSimFile);
  const StreamPool pool(device);
  const Stream stream(device);
  void* const used = pool.take(1 << 20, stream);
  void* const small = pool.take(4096, stream);
  void* const smaller = pool.take(2048, stream);
  Held held(device, stream);
  for (void* const taken : {used, small, smaller}) REQUIRE(pool.free(taken, stream).ok());
  REQUIRE(pool.trim(0).ok());
  CHECK(free_bytes(device) == (2 << 20) - 6144);  // work may use it
  held.let_go();
  REQUIRE(stream.synchronize().ok());
  REQUIRE(pool.trim(6144).ok());
  CHECK(free_bytes(device) == (3 << 20) - 6144);
  REQUIRE(pool.trim(0).ok());
  CHECK(free_bytes(device) == 3 << 20);
  REQUIRE(pool.free(pool.take(2 << 20, stream), stream).ok());
  void* const larger = pool.take((2 << 20) + 64, stream);  // makes room for itself
  REQUIRE(pool.free(larger, stream).ok());
  REQUIRE(stream.synchronize().ok());
  void* plain = nullptr;
  REQUIRE(device.call(&Slots::alloc, 0, PLIANT_MEMORY_DEVICE, 3 << 20, &plain).ok());
  device.slots().free(device.self(), 0, PLIANT_MEMORY_DEVICE, plain);
}

TEST_CASE("what is not memory in stream order is refused by the simulator, and a lost device takes it back") {
  const Device device({{{"lose_device_at", 1}}, {}, {}}, kSimFile);
  const StreamPool pool(device);
  const Stream stream(device);
  char other = 0;
  CHECK(pool.free(&other, stream).status == PLIANT_INVALID_ARGUMENT);
  void* const taken = pool.take(100, stream);
  void* const kept = pool.take(100, stream);
  REQUIRE(pool.free(taken, stream).ok());
  CHECK(pool.free(taken, stream).message.find("freed before") != std::string::npos);
  fill(device, kept, 1, 100, stream);
  CHECK(stream.synchronize().status == PLIANT_FAILED_PRECONDITION);
  void* out = nullptr;
  CHECK(pool.alloc(100, stream, &out).status == PLIANT_FAILED_PRECONDITION);
  CHECK(pool.free(kept, stream).ok());
}

TEST_CASE("virtual time: new memory takes a launch, kept memory nothing, and that of another stream its work") {
  constexpr int64_t kLaunch = 1000;
  constexpr int64_t kBytes = 40000;
  OptionSettings settings = virtual_time();
  settings.integers = {{"memory_bytes", kBytes}};
  const Device device(settings, kSimFile);
  const StreamPool pool(device);
  const Stream first(device);
  const Stream second(device, PLIANT_STREAM_GATHER);  // an engine of its own
  const Event begin(device, true);
  REQUIRE(device.call(&Slots::event_record, begin, first).ok());
  Held held(device, first);  // so that nothing real has happened when the other stream asks
  void* memory = pool.take(kBytes, first);
  REQUIRE(pool.free(memory, first).ok());
  memory = pool.take(kBytes, first);
  fill(device, memory, 1, kBytes, first);
  REQUIRE(pool.free(memory, first).ok());
  memory = pool.take(kBytes, second);
  fill(device, memory, 2, kBytes, second);
  held.let_go();
  CHECK(time_since(device, begin, first) == 2 * kLaunch + kBytes);
  CHECK(time_since(device, begin, second) == 3 * kLaunch + 2 * kBytes);
}
