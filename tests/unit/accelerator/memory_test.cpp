// Work between every pair of kinds of memory: device, pinned and plain; of any accelerator.
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>

#include "device.hpp"

using namespace pliant_test;

namespace {

using Slots = pliant_accelerator;

enum class Kind { kDevice, kPinned, kPlain };
const Kind kEveryKind[] = {Kind::kDevice, Kind::kPinned, Kind::kPlain};

/// Staging memory of level_zero as small as it may be, so that modest arrays take several pieces.
const OptionSettings kSmallStaging{{{"staging_bytes", 128 * 1024}}, {}, {}};
constexpr size_t kBytes = 300 * 1000;

/// Bytes of one kind.
class Bytes {
 public:
  Bytes(const Device& device, Kind kind, size_t count) : device_(device), kind_(kind), plain_(count) {
    if (kind == Kind::kPlain) return;
    if (!device.call(&Slots::alloc, 0, memory(), count, &pointer_).ok()) throw std::runtime_error("alloc");
  }
  ~Bytes() {
    if (pointer_ != nullptr) device_.slots().free(device_.self(), 0, memory(), pointer_);
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  [[nodiscard]] uint8_t* at(size_t offset = 0) {
    return (kind_ == Kind::kPlain ? plain_.data() : static_cast<uint8_t*>(pointer_)) + offset;
  }

 private:
  [[nodiscard]] int32_t memory() const { return kind_ == Kind::kPinned ? PLIANT_MEMORY_PINNED : PLIANT_MEMORY_DEVICE; }
  const Device& device_;
  const Kind kind_;
  std::vector<uint8_t> plain_;
  void* pointer_ = nullptr;
};

std::vector<uint8_t> drawn_bytes(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> made(count);
  std::generate(made.begin(), made.end(), [&] { return static_cast<uint8_t>(random()); });
  return made;
}

void put(const Device& device, const Stream& stream, Bytes& to, const void* from, size_t bytes) {
  REQUIRE(device.call(&Slots::copy_async, to.at(), from, bytes, stream).ok());
}
template <class T>
std::vector<T> get(const Device& device, const Stream& stream, Bytes& from, size_t count) {
  std::vector<T> read(count);
  REQUIRE(device.call(&Slots::copy_async, read.data(), from.at(), count * sizeof(T), stream).ok());
  REQUIRE(stream.synchronize().ok());
  return read;
}

}  // namespace

TEST_CASE("bytes come through copies between all kinds of memory unchanged, wherever they begin") {
  const Device device(kSmallStaging);
  const Stream stream(device);
  for (const Kind from_kind : kEveryKind) {
    for (const Kind to_kind : kEveryKind) {
      CAPTURE(static_cast<int>(from_kind));
      CAPTURE(static_cast<int>(to_kind));
      const std::vector<uint8_t> sent = drawn_bytes(kBytes, 1);
      Bytes from(device, from_kind, kBytes);
      Bytes to(device, to_kind, kBytes);
      put(device, stream, from, sent.data(), kBytes);
      REQUIRE(device.call(&Slots::fill_async, to.at(), 9, kBytes, stream).ok());
      REQUIRE(device.call(&Slots::copy_async, to.at(5), from.at(3), kBytes - 10, stream).ok());
      std::vector<uint8_t> expected(kBytes, 9);
      std::copy(sent.begin() + 3, sent.end() - 7, expected.begin() + 5);
      CHECK(get<uint8_t>(device, stream, to, kBytes) == expected);
    }
  }
}

TEST_CASE("a batch of copies may mix all kinds of memory") {
  const Device device(kSmallStaging);
  const Stream stream(device);
  const std::vector<uint8_t> sent = drawn_bytes(kBytes, 2);
  Bytes on_device(device, Kind::kDevice, kBytes);
  Bytes pinned(device, Kind::kPinned, kBytes);
  Bytes plain(device, Kind::kPlain, kBytes);
  put(device, stream, on_device, sent.data(), kBytes);
  put(device, stream, pinned, sent.data() + 1000, kBytes - 1000);
  const size_t half = kBytes / 2;
  const std::vector<pliant_copy> copies{{plain.at(), on_device.at(), half},
                                        {plain.at(half), pinned.at(half - 1000), kBytes - half},
                                        {pinned.at(100), on_device.at(100), 1000}};
  REQUIRE(device.call(&Slots::copy_batch_async, copies.data(), copies.size(), stream).ok());
  CHECK(get<uint8_t>(device, stream, plain, kBytes) == sent);
  CHECK(get<uint8_t>(device, stream, pinned, 1100)[1000] == sent[1000]);
}

TEST_CASE("plain memory is read and written in stream order, not when the call is made") {
  const Device device;
  const Stream stream(device);
  Bytes on_device(device, Kind::kDevice, sizeof(int));
  int value = 1;
  int copy = 0;
  const auto raise = [](void* context) { *static_cast<int*>(context) = 2; };
  REQUIRE(device.call(&Slots::host_function, +raise, &value, stream).ok());
  REQUIRE(device.call(&Slots::copy_async, on_device.at(), &value, sizeof(int), stream).ok());
  REQUIRE(device.call(&Slots::copy_async, &copy, on_device.at(), sizeof(int), stream).ok());
  REQUIRE(device.call(&Slots::copy_async, &value, on_device.at(), sizeof(int), stream).ok());
  REQUIRE(stream.synchronize().ok());
  CHECK(copy == 2);
}

TEST_CASE("a reduction of arrays in all kinds of memory adds in the order of its sources") {
  const Device device(kSmallStaging);
  const Stream stream(device);
  constexpr size_t kCount = 50001;
  std::mt19937 random(4);
  std::vector<std::vector<float>> values(5, std::vector<float>(kCount));
  for (auto& one : values) std::generate(one.begin(), one.end(), [&] { return static_cast<float>(random()) - 2e9F; });
  std::vector<float> expected(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    float sum = values[0][i];
    for (size_t s = 1; s < values.size(); ++s) sum += values[s][i];
    expected[i] = sum * 0.5F;
  }
  for (const Kind to_kind : kEveryKind) {
    for (const bool in_place : {false, true}) {
      CAPTURE(static_cast<int>(to_kind));
      CAPTURE(in_place);
      const Kind kinds[] = {to_kind, Kind::kDevice, Kind::kPinned, Kind::kPlain, Kind::kDevice};
      std::vector<std::unique_ptr<Bytes>> sources;
      std::vector<const void*> from;
      for (size_t s = 0; s < values.size(); ++s) {
        sources.push_back(std::make_unique<Bytes>(device, kinds[s], kCount * sizeof(float)));
        put(device, stream, *sources[s], values[s].data(), kCount * sizeof(float));
        from.push_back(sources[s]->at());
      }
      Bytes apart(device, to_kind, kCount * sizeof(float));
      Bytes& to = in_place ? *sources[0] : apart;
      REQUIRE(device
                  .call(&Slots::reduce_async, to.at(), from.data(), from.size(), kCount, PLIANT_F32, PLIANT_SUM, 0.5,
                        stream)
                  .ok());
      CHECK(get<float>(device, stream, to, kCount) == expected);
    }
  }
}

TEST_CASE("a reduction of as many sources as there may be fits into the smallest staging memory") {
  const Device device(kSmallStaging);
  const Stream stream(device);
  constexpr size_t kCount = 100;
  Bytes all(device, Kind::kDevice, 1024 * kCount * sizeof(int32_t));
  Bytes to(device, Kind::kDevice, kCount * sizeof(int32_t));
  std::vector<int32_t> values(1024 * kCount);
  std::iota(values.begin(), values.end(), 0);
  put(device, stream, all, values.data(), values.size() * sizeof(int32_t));
  std::vector<const void*> from;
  for (size_t s = 0; s < 1024; ++s) from.push_back(all.at(s * kCount * sizeof(int32_t)));
  REQUIRE(
      device.call(&Slots::reduce_async, to.at(), from.data(), 1024, kCount, PLIANT_I32, PLIANT_MAX, 1.0, stream).ok());
  const std::vector<int32_t> made = get<int32_t>(device, stream, to, kCount);
  CHECK(made.front() == 1023 * 100);
  CHECK(made.back() == 1023 * 100 + 99);
}

TEST_CASE("a cast between all kinds of memory converts every element") {
  const Device device(kSmallStaging);
  const Stream stream(device);
  constexpr size_t kCount = 40001;
  std::vector<int32_t> values(kCount);
  std::iota(values.begin(), values.end(), -20000);
  for (const Kind from_kind : kEveryKind) {
    for (const Kind to_kind : kEveryKind) {
      Bytes from(device, from_kind, kCount * sizeof(int32_t));
      Bytes to(device, to_kind, kCount * sizeof(double));
      put(device, stream, from, values.data(), kCount * sizeof(int32_t));
      REQUIRE(device.call(&Slots::cast_async, to.at(), PLIANT_F64, from.at(), PLIANT_I32, kCount, stream).ok());
      CHECK(get<double>(device, stream, to, kCount) == std::vector<double>(values.begin(), values.end()));
    }
  }
}

TEST_CASE("two streams hand a buffer to each other by events, a thousand times, and every hand adds one") {
  const Device device;
  const Stream first(device, PLIANT_STREAM_GATHER);
  const Stream second(device, PLIANT_STREAM_COMPUTE);
  Event to_first(device);
  Event to_second(device);
  Bytes number(device, Kind::kDevice, sizeof(int32_t));
  Bytes one(device, Kind::kDevice, sizeof(int32_t));
  const int32_t begin[] = {0, 1};
  put(device, first, number, &begin[0], sizeof(int32_t));
  put(device, first, one, &begin[1], sizeof(int32_t));
  const std::vector<const void*> from{number.at(), one.at()};
  const auto add = [&](const Stream& stream) {
    return device.call(&Slots::reduce_async, number.at(), from.data(), 2, 1, PLIANT_I32, PLIANT_SUM, 1.0, stream).ok();
  };
  bool fine = true;
  for (int i = 0; i < 1000; ++i) {
    fine = fine && add(first) && device.call(&Slots::event_record, to_second, first).ok() &&
           device.call(&Slots::stream_wait_event, second, to_second).ok() && add(second) &&
           device.call(&Slots::event_record, to_first, second).ok() &&
           device.call(&Slots::stream_wait_event, first, to_first).ok();
  }
  CHECK(fine);
  CHECK(get<int32_t>(device, first, number, 1).front() == 2000);
  CHECK(second.synchronize().ok());
}
