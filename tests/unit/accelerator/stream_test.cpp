// Streams, events and memory of the host device.
#include <array>
#include <memory>

#include "collective_cases.hpp"

using namespace pliant_test;

namespace {

using Slots = pliant_accelerator;

/// Holds a stream up until it is opened: a barrier that the other rank of its communicator has not come to.
class Gate {
 public:
  Gate(const Device& device, const Stream& held) : device_(device), opener_(device) {
    pliant_comm_id id{};
    if (!device.call(&pliant_collectives::comm_id, 2, &id).ok()) throw std::runtime_error("no id");
    near_ = std::make_unique<Comm>(device, id, 0, 2);
    far_ = std::make_unique<Comm>(device, id, 1, 2);
    if (!device.call(&pliant_collectives::barrier, *near_, held).ok()) throw std::runtime_error("no barrier");
  }
  void open() {
    device_.call(&pliant_collectives::barrier, *far_, opener_);
    if (!opener_.synchronize().ok()) throw std::runtime_error("the gate does not open");
  }
  /// Fails the held stream instead.
  void break_it() { near_->abort(); }

 private:
  const Device& device_;
  std::unique_ptr<Comm> near_;
  std::unique_ptr<Comm> far_;
  Stream opener_;
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

TEST_CASE("an event that was never recorded counts as done") {
  const Device device;
  const Stream stream(device);
  Event event(device);
  CHECK(event.done());
  CHECK(device.call(&Slots::event_synchronize, event).ok());
  CHECK(device.call(&Slots::stream_wait_event, stream, event).ok());
  CHECK(stream.synchronize().ok());
}

TEST_CASE("a failure of enqueued work is told once, by the stream or by an event behind it") {
  const Device device;
  const Stream stream(device);
  SUBCASE("by the stream") {
    Gate gate(device, stream);
    gate.break_it();
    CHECK(stream.synchronize().status == PLIANT_ABORTED);
    CHECK(stream.synchronize().ok());
  }
  SUBCASE("by an event") {
    Event before(device);
    Event behind(device);
    CHECK(device.call(&Slots::event_record, before, stream).ok());
    Gate gate(device, stream);
    CHECK(device.call(&Slots::event_record, behind, stream).ok());
    gate.break_it();
    CHECK(device.call(&Slots::event_synchronize, before).ok());
    CHECK(device.call(&Slots::event_synchronize, behind).status == PLIANT_ABORTED);
    CHECK(stream.synchronize().ok());
  }
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

TEST_CASE("collectives refuse wrong types, operations, roots and buffers") {
  const Device device;
  const Stream stream(device);
  pliant_comm_id id{};
  REQUIRE(device.call(&pliant_collectives::comm_id, 1, &id).ok());
  const Comm comm(device, id, 0, 1);
  alignas(8) std::array<uint8_t, 64> bytes{};
  const auto refused = [](const Outcome& outcome) { return outcome.status == PLIANT_INVALID_ARGUMENT; };
  void* at = bytes.data();
  void* odd = bytes.data() + 1;
  CHECK(refused(device.call(&pliant_collectives::all_reduce, comm, at, at, 1, 8, PLIANT_SUM, stream)));
  CHECK(refused(device.call(&pliant_collectives::all_reduce, comm, at, at, 1, PLIANT_F32, 4, stream)));
  CHECK(refused(device.call(&pliant_collectives::all_reduce, comm, odd, odd, 1, PLIANT_F32, PLIANT_SUM, stream)));
  CHECK(refused(device.call(&pliant_collectives::all_reduce, comm, nullptr, at, 1, PLIANT_F32, PLIANT_SUM, stream)));
  CHECK(refused(device.call(&pliant_collectives::all_gather, comm, at, at, UINT64_MAX / 4, PLIANT_F32, stream)));
  CHECK(refused(device.call(&pliant_collectives::broadcast, comm, at, 1, PLIANT_F32, 1, stream)));
  CHECK(refused(device.call(&pliant_collectives::barrier, nullptr, stream)));
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
  std::memset(large, 1, 7 << 20);

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
  CHECK(device.call(&Slots::alloc, 0, 3, 1, &small).status == PLIANT_INVALID_ARGUMENT);
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
  CHECK(std::string(properties.name) == "host");
  CHECK(properties.memory_bytes > 0);
  CHECK((properties.capabilities & PLIANT_CAP_FIXED_ORDER) != 0);
  pliant_device_properties shorter{};
  shorter.struct_size = offsetof(pliant_device_properties, name);
  CHECK(device.call(&Slots::device_properties, 0, &shorter).ok());
  CHECK(shorter.name[0] == '\0');
}
