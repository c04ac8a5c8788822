// Work of a device beside reductions and casts: batches of copies, host functions, times; and what is refused.
#include <algorithm>
#include <array>
#include <latch>
#include <numeric>

#include "device.hpp"

using namespace pliant_test;

namespace {
using Slots = pliant_accelerator;
}

TEST_CASE("a batch of copies makes all of them, and its array may be freed at once") {
  const Device device;
  const Stream stream(device);
  std::vector<int> from(1000);
  std::iota(from.begin(), from.end(), 1);
  std::vector<int> to(1000);
  std::vector<pliant_copy> copies;
  for (size_t i = 0; i < 1000; ++i) copies.push_back({&to[i], &from[999 - i], sizeof(int)});
  copies.push_back({nullptr, nullptr, 0});
  REQUIRE(device.call(&Slots::copy_batch_async, copies.data(), copies.size(), stream).ok());
  copies.assign(copies.size(), {});
  REQUIRE(stream.synchronize().ok());
  std::reverse(to.begin(), to.end());
  CHECK(to == from);
  CHECK(device.call(&Slots::copy_batch_async, static_cast<const pliant_copy*>(nullptr), 0, stream).ok());
}

TEST_CASE("a host function runs in stream order, and a stream is done when all its work is") {
  const Device device;
  const Stream stream(device);
  struct Held {
    std::latch opened{1};
    int seen = 0;
    int value = 0;
  } held;
  int one = 1;
  const auto wait = [](void* context) { static_cast<Held*>(context)->opened.wait(); };
  const auto look = [](void* context) {
    auto& state = *static_cast<Held*>(context);
    state.seen = state.value;
  };
  REQUIRE(device.call(&Slots::host_function, +wait, &held, stream).ok());
  REQUIRE(device.call(&Slots::copy_async, &held.value, &one, sizeof(one), stream).ok());
  REQUIRE(device.call(&Slots::host_function, +look, &held, stream).ok());
  int32_t done = -1;
  CHECK(device.call(&Slots::stream_query, stream, &done).ok());
  CHECK(done == 0);
  held.opened.count_down();
  CHECK(stream.synchronize().ok());
  CHECK(held.seen == 1);
  CHECK(device.call(&Slots::stream_query, stream, &done).ok());
  CHECK(done == 1);
}

TEST_CASE("the time between two events is what passed on the stream, and untimed or unreached ones are refused") {
  const Device device;
  const Stream stream(device);
  const Event begin(device, true);
  const Event end(device, true);
  const Event untimed(device);
  double seconds = -1;
  const auto refused = [&](pliant_event* first, pliant_event* last) {
    const Outcome made = device.call(&Slots::event_elapsed, first, last, &seconds);
    CHECK(made.status == PLIANT_FAILED_PRECONDITION);
    return made.message;
  };
  CHECK(refused(begin, end).find("never recorded") != std::string::npos);
  std::latch opened{1};
  REQUIRE(device.call(&Slots::event_record, begin, stream).ok());
  const auto wait = [](void* context) { static_cast<std::latch*>(context)->wait(); };
  REQUIRE(device.call(&Slots::host_function, +wait, &opened, stream).ok());
  REQUIRE(device.call(&Slots::event_record, end, stream).ok());
  REQUIRE(device.call(&Slots::event_record, untimed, stream).ok());
  CHECK(refused(begin, end).find("not been reached") != std::string::npos);
  opened.count_down();
  REQUIRE(stream.synchronize().ok());
  REQUIRE(device.call(&Slots::event_elapsed, begin, end, &seconds).ok());
  CHECK(seconds > 0);
  REQUIRE(device.call(&Slots::event_elapsed, end, begin, &seconds).ok());
  CHECK(seconds < 0);
  CHECK(refused(begin, untimed).find("without timing") != std::string::npos);
}

TEST_CASE("the memory that is free shrinks with each buffer and comes back") {
  const Device device({{{"memory_bytes", 1000000}}, {}, {}});
  uint64_t free_bytes = 0;
  uint64_t total = 0;
  REQUIRE(device.call(&Slots::memory_info, 0, &free_bytes, &total).ok());
  CHECK(free_bytes == 1000000);
  CHECK(total == 1000000);
  void* buffer = nullptr;
  REQUIRE(device.call(&Slots::alloc, 0, PLIANT_MEMORY_DEVICE, 400000, &buffer).ok());
  REQUIRE(device.call(&Slots::memory_info, 0, &free_bytes, &total).ok());
  CHECK(free_bytes == 600000);
  device.slots().free(device.self(), 0, PLIANT_MEMORY_DEVICE, buffer);
  REQUIRE(device.call(&Slots::memory_info, 0, &free_bytes, &total).ok());
  CHECK(free_bytes == 1000000);
  CHECK(device.call(&Slots::memory_info, 1, &free_bytes, &total).status == PLIANT_INVALID_ARGUMENT);
}

TEST_CASE("work that cannot be is refused by name before it is enqueued") {
  const Device device;
  const Stream stream(device);
  std::array<float, 8> values{};
  std::vector<const void*> from{values.data(), values.data() + 4};
  const auto reduce = [&](void* to, int32_t sources, uint64_t count, int32_t dtype, int32_t op, double scale) {
    return device.call(&Slots::reduce_async, to, from.data(), sources, count, dtype, op, scale, stream).message;
  };
  CHECK(reduce(values.data(), 0, 1, PLIANT_F32, PLIANT_SUM, 1).find("1 to 1024 sources") != std::string::npos);
  CHECK(reduce(values.data(), 2, 4, 9, PLIANT_SUM, 1).find("element type 9") != std::string::npos);
  CHECK(reduce(values.data(), 2, 4, PLIANT_F32, 7, 1).find("reduction 7") != std::string::npos);
  CHECK(reduce(values.data(), 2, 4, PLIANT_I32, PLIANT_SUM, 0.5).find("scale 1") != std::string::npos);
  CHECK(reduce(values.data() + 2, 2, 4, PLIANT_F32, PLIANT_SUM, 1).find("overlap") != std::string::npos);
  CHECK(reduce(nullptr, 2, 4, PLIANT_F32, PLIANT_SUM, 1).find("NULL") != std::string::npos);
  const auto cast = [&](void* to, int32_t target, const void* source, int32_t type, uint64_t count) {
    return device.call(&Slots::cast_async, to, target, source, type, count, stream).message;
  };
  CHECK(cast(values.data(), PLIANT_F64, values.data() + 3, PLIANT_F32, 2).find("overlap") != std::string::npos);
  CHECK(cast(values.data(), 0, values.data() + 4, PLIANT_F32, 2).find("element type 0") != std::string::npos);
  CHECK(cast(reinterpret_cast<char*>(values.data()) + 1, PLIANT_F16, values.data() + 4, PLIANT_F32, 2)
            .find("not aligned") != std::string::npos);
  const std::vector<pliant_copy> copies{{values.data(), values.data() + 4, 4}, {values.data(), nullptr, 4}};
  CHECK(device.call(&Slots::copy_batch_async, copies.data(), 2, stream).message.find("NULL") != std::string::npos);
  pliant_stream* made = nullptr;
  CHECK(device.call(&Slots::stream_create, 0, 9, 0, &made).message.find("stream role 9") != std::string::npos);
  CHECK(device.call(&Slots::stream_create, 0, 0, 2, &made).message.find("priority 2") != std::string::npos);
  pliant_event* event = nullptr;
  CHECK(device.call(&Slots::event_create, 0, 6, &event).message.find("event flags 6") != std::string::npos);
  CHECK(stream.synchronize().ok());
}
