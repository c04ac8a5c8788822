// Streams, events and memory of any accelerator.
#include <array>
#include <latch>
#include <optional>
#include <string>
#include <thread>

#include "device.hpp"

using namespace pliant_test;

namespace {

using Slots = pliant_accelerator;

/// Holds a stream up until it is opened.
class Gate {
 public:
  Gate(const Device& device, const Stream& held) {
    const auto wait = [](void* context) { static_cast<std::latch*>(context)->wait(); };
    if (!device.call(&Slots::host_function, +wait, &opened_, held).ok()) throw std::runtime_error("no gate");
  }
  ~Gate() {
    if (!open_) open();
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open() {
    open_ = true;
    opened_.count_down();
  }

 private:
  bool open_ = false;
  std::latch opened_{1};
};

}  // namespace

TEST_CASE("a copy on a busy stream returns at once and happens in stream order") {
  const Device device;
  const Stream stream(device);
  Gate gate(device, stream);
  int from = 5;
  int to = 0;
  Event copied(device);
  REQUIRE(device.call(&Slots::copy_async, &to, &from, sizeof(to), stream).ok());
  REQUIRE(device.call(&Slots::event_record, copied, stream).ok());
  CHECK_FALSE(copied.done());  // the calls are back while the stream is still held up
  gate.open();
  CHECK(stream.synchronize().ok());
  CHECK(copied.done());
  CHECK(to == 5);
}

TEST_CASE("work on one stream runs while another is held up") {
  const Device device;
  const Stream held(device);
  const Stream free(device);
  Gate gate(device, held);
  std::array<uint8_t, 100> bytes{};
  REQUIRE(device.call(&Slots::fill_async, bytes.data(), 7, bytes.size(), free).ok());
  CHECK(free.synchronize().ok());
  CHECK(bytes[99] == 7);
  gate.open();
  CHECK(held.synchronize().ok());
}

TEST_CASE("a stream that waits for the CPU holds no other up, even if they share a queue of the device") {
  const Device device;
  const Stream held(device);
  const Stream free(device);
  std::array<void*, 2> buffers{};
  for (void*& one : buffers) REQUIRE(device.call(&Slots::alloc, 0, PLIANT_MEMORY_DEVICE, 64, &one).ok());
  const auto wait = [](void* context) { static_cast<std::latch*>(context)->wait(); };
  const auto open = [](void* context) { static_cast<std::latch*>(context)->count_down(); };
  std::latch opened{1};
  Event behind(device);
  REQUIRE(device.call(&Slots::host_function, +wait, &opened, held).ok());
  REQUIRE(device.call(&Slots::fill_async, buffers[0], 1, 64, held).ok());
  REQUIRE(device.call(&Slots::event_record, behind, held).ok());
  const Stream waiting(device);
  REQUIRE(device.call(&Slots::stream_wait_event, waiting, behind).ok());
  REQUIRE(device.call(&Slots::fill_async, buffers[0], 2, 64, waiting).ok());
  REQUIRE(device.call(&Slots::fill_async, buffers[1], 1, 64, free).ok());
  REQUIRE(device.call(&Slots::host_function, +open, &opened, free).ok());
  for (const Stream* stream : {&free, &held, &waiting}) CHECK(stream->synchronize().ok());
  for (void* one : buffers) device.slots().free(device.self(), 0, PLIANT_MEMORY_DEVICE, one);
}

TEST_CASE("a stream waits for an event of another stream as it was recorded, not as it is recorded later") {
  const Device device;
  const Stream first(device);
  const Stream second(device);
  const Stream waiting(device);
  Event event(device);
  Gate gate(device, second);
  REQUIRE(device.call(&Slots::event_record, event, first).ok());
  REQUIRE(device.call(&Slots::stream_wait_event, waiting, event).ok());
  REQUIRE(device.call(&Slots::event_record, event, second).ok());
  CHECK(waiting.synchronize().ok());
  CHECK_FALSE(event.done());
  gate.open();
  CHECK(device.call(&Slots::event_synchronize, event).ok());
  CHECK(event.done());
}

TEST_CASE("a stream that waits for an event sees what came before it") {
  const Device device;
  const Stream producer(device);
  const Stream consumer(device);
  Event produced(device);
  Gate gate(device, producer);
  int made = 0;
  int taken = 0;
  const int value = 9;
  REQUIRE(device.call(&Slots::copy_async, &made, &value, sizeof(int), producer).ok());
  REQUIRE(device.call(&Slots::event_record, produced, producer).ok());
  REQUIRE(device.call(&Slots::stream_wait_event, consumer, produced).ok());
  REQUIRE(device.call(&Slots::copy_async, &taken, &made, sizeof(int), consumer).ok());
  gate.open();
  CHECK(consumer.synchronize().ok());
  CHECK(taken == 9);
}

TEST_CASE("a stream that only waits ends its wait whoever comes: a query, a record, its end, or two that synchronize") {
  const Device device;
  const Stream producer(device);
  Event produced(device);
  for (const char* const who : {"query", "record", "end", "synchronize"}) {
    CAPTURE(who);
    Gate gate(device, producer);
    int made = 0;
    const int value = 9;
    REQUIRE(device.call(&Slots::copy_async, &made, &value, sizeof(int), producer).ok());
    REQUIRE(device.call(&Slots::event_record, produced, producer).ok());
    std::optional<Stream> consumer(std::in_place, device);
    REQUIRE(device.call(&Slots::stream_wait_event, *consumer, produced).ok());
    const std::string how = who;
    if (how == "query") {
      int32_t done = 1;
      REQUIRE(device.call(&Slots::stream_query, *consumer, &done).ok());
      CHECK(done == 0);
      gate.open();
      while (done == 0) REQUIRE(device.call(&Slots::stream_query, *consumer, &done).ok());
    } else if (how == "record") {
      Event behind(device);
      REQUIRE(device.call(&Slots::event_record, behind, *consumer).ok());
      CHECK_FALSE(behind.done());
      gate.open();
      CHECK(device.call(&Slots::event_synchronize, behind).ok());
    } else if (how == "end") {
      gate.open();
      consumer.reset();
    } else {
      std::thread other([&] { static_cast<void>(consumer->synchronize()); });
      gate.open();
      CHECK(consumer->synchronize().ok());
      other.join();
    }
    CHECK(produced.done());
    CHECK(made == value);
    REQUIRE(producer.synchronize().ok());
  }
}

TEST_CASE("an event that was never recorded counts as done") {
  const Device device;
  const Stream stream(device);
  Event event(device);
  CHECK(event.done());
  CHECK(device.call(&Slots::event_synchronize, event).ok());
  CHECK(device.call(&Slots::stream_wait_event, stream, event).ok());
  CHECK(stream.synchronize().ok());
}

TEST_CASE("destroying a stream waits for its work, destroying an event does not disturb it") {
  const Device device;
  std::vector<uint8_t> bytes(1 << 20);
  {
    const Stream stream(device);
    const Event event(device);
    CHECK(device.call(&Slots::event_record, event, stream).ok());
    CHECK(device.call(&Slots::stream_wait_event, stream, event).ok());
    CHECK(device.call(&Slots::fill_async, bytes.data(), 3, bytes.size(), stream).ok());
  }
  CHECK(bytes.back() == 3);
}

TEST_CASE("copies and fills refuse what can be seen to be wrong") {
  const Device device;
  const Stream stream(device);
  std::array<uint8_t, 16> bytes{};
  const auto refusal = [](const Outcome& outcome) {
    CHECK(outcome.status == PLIANT_INVALID_ARGUMENT);
    return outcome.message;
  };
  pliant_stream* none = nullptr;
  CHECK(refusal(device.call(&Slots::copy_async, bytes.data(), bytes.data() + 4, 8, stream)) ==
        "source and target overlap");
  CHECK(refusal(device.call(&Slots::copy_async, nullptr, bytes.data(), 8, stream)) ==
        "the target is NULL, but 8 bytes are wanted");
  CHECK(refusal(device.call(&Slots::fill_async, bytes.data(), 256, 8, stream)) ==
        "a fill value is one byte, 0..255; got 256");
  CHECK(refusal(device.call(&Slots::fill_async, bytes.data(), 1, 8, none)) == "the stream is NULL");
  CHECK(device.call(&Slots::copy_async, nullptr, nullptr, 0, stream).ok());
  CHECK(stream.synchronize().ok());
}

TEST_CASE("memory is aligned, may be empty, and is counted") {
  const Device device({{{"memory_bytes", 8 << 20}}, {}, {}});
  void* small = nullptr;
  void* empty = nullptr;
  void* large = nullptr;
  CHECK(device.call(&Slots::alloc, 0, PLIANT_MEMORY_DEVICE, 1, &small).ok());
  CHECK(reinterpret_cast<uintptr_t>(small) % 64 == 0);
  CHECK(device.call(&Slots::alloc, 0, PLIANT_MEMORY_PINNED, 0, &empty).ok());
  CHECK(empty != nullptr);
  CHECK(device.call(&Slots::alloc, 0, PLIANT_MEMORY_DEVICE, 7 << 20, &large).ok());
  CHECK(reinterpret_cast<uintptr_t>(large) % 64 == 0);
  {
    const Stream stream(device);
    CHECK(device.call(&Slots::fill_async, large, 1, 7 << 20, stream).ok());
    CHECK(stream.synchronize().ok());
  }

  void* more = large;
  const Outcome refused = device.call(&Slots::alloc, 0, PLIANT_MEMORY_DEVICE, 2 << 20, &more);
  CHECK(refused.status == PLIANT_RESOURCE_EXHAUSTED);
  CHECK(refused.message ==
        "out of device memory: 2097152 bytes wanted, 1048575 of 8388608 left; free buffers or raise memory_bytes");
  CHECK(more == nullptr);
  device.slots().free(device.self(), 0, PLIANT_MEMORY_DEVICE, large);
  CHECK(device.call(&Slots::alloc, 0, PLIANT_MEMORY_DEVICE, 2 << 20, &more).ok());

  device.slots().free(device.self(), 0, PLIANT_MEMORY_DEVICE, nullptr);
  for (void* pointer : {more, empty, small}) device.slots().free(device.self(), 0, PLIANT_MEMORY_DEVICE, pointer);
  CHECK(device.call(&Slots::alloc, 1, PLIANT_MEMORY_DEVICE, 1, &small).message ==
        "device 1 does not exist; devices: 1, counted from 0");
  CHECK(device.call(&Slots::alloc, 0, 9, 1, &small).status == PLIANT_INVALID_ARGUMENT);
}

TEST_CASE("an allocation beyond all memory of the machine is refused and the device stays usable") {
  const Device device;
  void* pointer = nullptr;
  CHECK(device.call(&Slots::alloc, 0, PLIANT_MEMORY_DEVICE, uint64_t{1} << 60, &pointer).status ==
        PLIANT_RESOURCE_EXHAUSTED);
  CHECK(device.call(&Slots::alloc, 0, PLIANT_MEMORY_DEVICE, 4096, &pointer).ok());
  device.slots().free(device.self(), 0, PLIANT_MEMORY_DEVICE, pointer);
}

TEST_CASE("the device describes itself to callers that know more or fewer properties") {
  const Device device;
  int32_t count = 0;
  CHECK(device.call(&Slots::device_count, &count).ok());
  CHECK(count == 1);
  pliant_device_properties properties{};
  properties.struct_size = sizeof(properties);
  CHECK(device.call(&Slots::device_properties, 0, &properties).ok());
  const bool host = device.name() == "host";
  CHECK(std::string(properties.name) == (host ? "host" : "software GPU 0 (test double)"));
  CHECK(properties.memory_bytes > 0);
  CHECK(((properties.capabilities & PLIANT_CAP_HOST_VISIBLE) != 0) == host);
  pliant_device_properties shorter{};
  shorter.struct_size = offsetof(pliant_device_properties, name);
  CHECK(device.call(&Slots::device_properties, 0, &shorter).ok());
  CHECK(shorter.name[0] == '\0');
}
