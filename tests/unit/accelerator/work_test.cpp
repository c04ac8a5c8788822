// Work of a device beside copies: reductions, casts, batches of copies, host functions, times; and 16-bit floats.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <latch>
#include <limits>
#include <numeric>
#include <random>

#include "device.hpp"
#include "pliant/sdk/half.hpp"

using namespace pliant_test;
using pliant::sdk::BFloat;
using pliant::sdk::Half;

namespace {

using Slots = pliant_accelerator;

const std::array<int32_t, 7> kTypes{PLIANT_F32, PLIANT_F64, PLIANT_I32, PLIANT_I64, PLIANT_U8, PLIANT_F16, PLIANT_BF16};

size_t size_of(int32_t dtype) {
  const std::array<size_t, 8> sizes{0, 4, 8, 4, 8, 1, 2, 2};
  return sizes[static_cast<size_t>(dtype)];
}
bool is_integer(int32_t dtype) {
  return dtype == PLIANT_I32 || dtype == PLIANT_I64 || dtype == PLIANT_U8;
}

/// The value of a 16-bit float by its definition. `mantissa` bits of it, exponents from `least` on.
double defined_value(uint16_t bits, int mantissa, int least) {
  const int exponents = 1 << (15 - mantissa);
  const int exponent = bits >> mantissa & (exponents - 1);
  const int fraction = bits & ((1 << mantissa) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == exponents - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  const double whole = exponent == 0 ? 0.0 : 1.0;
  return sign * std::ldexp(whole + std::ldexp(fraction, -mantissa), least + std::max(exponent, 1) - 1);
}
double value_of(Half value) {
  return defined_value(value.bits, 10, -14);
}
double value_of(BFloat value) {
  return defined_value(value.bits, 7, -126);
}

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

/// What narrow must give, by looking at both neighbours: the nearer, the even one of two that are as near; infinity
/// counts as the next number after the largest.
template <class T>
uint16_t nearest(float value) {
  // Magnitudes of all bits up to infinity, which counts as the next number after the largest.
  static const std::vector<double> magnitudes = [] {
    std::vector<double> made;
    for (uint16_t bits = 0; !std::isinf(value_of(T{bits})); ++bits) made.push_back(value_of(T{bits}));
    made.push_back(2 * made.back() - made[made.size() - 2]);
    return made;
  }();
  const double wanted = std::abs(static_cast<double>(value));
  const auto above = std::lower_bound(magnitudes.begin(), magnitudes.end(), wanted);
  auto best = static_cast<uint16_t>(above - magnitudes.begin());
  if (above == magnitudes.end()) --best;
  if (above != magnitudes.end() && best > 0) {
    const double up = *above - wanted;
    const double down = wanted - *(above - 1);
    if (down < up || (down == up && best % 2 == 1)) --best;
  }
  return static_cast<uint16_t>(best | (std::signbit(value) ? 0x8000 : 0));
}

template <class T>
void check_all_of() {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const T value{static_cast<uint16_t>(bits)};
    const float wide = widen(value);
    const bool exact = same(wide, value_of(value));
    T back{0};
    narrow(wide, back);
    const bool returns = std::isnan(wide) ? std::isnan(widen(back)) : back.bits == value.bits;
    if (exact && returns) continue;
    CAPTURE(bits);
    CHECK(exact);
    CHECK(returns);
    return;
  }
}

template <class T>
void check_rounding_of(float value) {
  T made{0};
  narrow(value, made);
  if (made.bits == nearest<T>(value)) return;
  CAPTURE(value);
  CHECK(made.bits == nearest<T>(value));
}

template <class T>
void check_rounding() {
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    const float any = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isnan(any)) check_rounding_of<T>(any);
    // Halfway between two neighbours, and next to it.
    const T value{static_cast<uint16_t>(random() % 0x7b00)};
    const float halfway = (widen(value) + widen(T{static_cast<uint16_t>(value.bits + 1)})) / 2;
    for (const float one : {halfway, std::nextafter(halfway, 0.0F), std::nextafter(halfway, 1e30F), -halfway}) {
      check_rounding_of<T>(one);
    }
  }
  for (const float edge : {0.0F, -0.0F, 65504.0F, 65519.99F, 65520.0F, 1e38F, std::numeric_limits<float>::max(),
                           std::numeric_limits<float>::infinity(), std::numeric_limits<float>::denorm_min()}) {
    check_rounding_of<T>(edge);
  }
}

/// Elements of one type as bytes, read and written as doubles or integers.
struct Array {
  int32_t dtype = 0;
  std::vector<std::byte> bytes;

  Array(int32_t type, size_t count) : dtype(type), bytes(count * size_of(type)) {}
  [[nodiscard]] size_t count() const { return bytes.size() / size_of(dtype); }
  template <class T>
  [[nodiscard]] T get(size_t i) const {
    T value{};
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    return value;
  }
  template <class T>
  void put(size_t i, T value) {
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  [[nodiscard]] double real(size_t i) const {
    switch (dtype) {
      case PLIANT_F32:
        return get<float>(i);
      case PLIANT_F64:
        return get<double>(i);
      case PLIANT_F16:
        return widen(get<Half>(i));
      case PLIANT_BF16:
        return widen(get<BFloat>(i));
      default:
        return static_cast<double>(integer(i));
    }
  }
  [[nodiscard]] int64_t integer(size_t i) const {
    if (dtype == PLIANT_I32) return get<int32_t>(i);
    if (dtype == PLIANT_I64) return get<int64_t>(i);
    return get<uint8_t>(i);
  }
  void set_real(size_t i, double value) {
    if (dtype == PLIANT_F32) return put(i, static_cast<float>(value));
    if (dtype == PLIANT_F64) return put(i, value);
    if (dtype == PLIANT_F16) {
      Half half;
      narrow(static_cast<float>(value), half);
      return put(i, half);
    }
    BFloat half;
    narrow(static_cast<float>(value), half);
    put(i, half);
  }
  void set_integer(size_t i, int64_t value) {
    if (dtype == PLIANT_I32) return put(i, static_cast<int32_t>(value));
    if (dtype == PLIANT_I64) return put(i, value);
    put(i, static_cast<uint8_t>(value));
  }
  void set(size_t i, double value) {
    if (is_integer(dtype)) return set_integer(i, static_cast<int64_t>(value));
    set_real(i, value);
  }
};

Array drawn(int32_t dtype, size_t count, std::mt19937& random) {
  Array made(dtype, count);
  for (size_t i = 0; i < count; ++i) {
    const double value = (static_cast<double>(random() % 200001) - 100000) / 977.0;
    made.set(i, is_integer(dtype) ? std::floor(std::abs(value)) : value);
  }
  return made;
}

/// One element, the plainest way: in the order of sources, in float for 16 bits, rounded once.
double reduced(const std::vector<Array>& from, size_t i, int32_t op, double scale) {
  const int32_t dtype = from.front().dtype;
  const auto fold = [op](auto a, auto b) {
    if (op == PLIANT_SUM) return static_cast<decltype(a)>(a + b);
    return (op == PLIANT_MIN) == (b < a) ? b : a;
  };
  if (dtype == PLIANT_F64) {
    double value = from[0].real(i);
    for (size_t s = 1; s < from.size(); ++s) value = fold(value, from[s].real(i));
    return value * scale;
  }
  auto value = static_cast<float>(from[0].real(i));
  for (size_t s = 1; s < from.size(); ++s) value = fold(value, static_cast<float>(from[s].real(i)));
  return value * static_cast<float>(scale);
}

std::string reduce_and_check(const Device& device, const Stream& stream, int32_t dtype, int32_t op, size_t sources,
                             size_t count, double scale, int in_place) {
  std::mt19937 random(static_cast<uint32_t>(count + sources));
  std::vector<Array> from;
  for (size_t s = 0; s < sources; ++s) from.push_back(drawn(dtype, count, random));
  Array expected(dtype, count);
  for (size_t i = 0; i < count; ++i) {
    if (is_integer(dtype)) {
      int64_t value = from[0].integer(i);
      for (size_t s = 1; s < sources; ++s) {
        const int64_t next = from[s].integer(i);
        value = op == PLIANT_SUM ? value + next : op == PLIANT_MIN ? std::min(value, next) : std::max(value, next);
      }
      expected.set_integer(i, value);
    } else {
      expected.set_real(i, reduced(from, i, op, scale));
    }
  }
  Array own(dtype, count);
  std::vector<Array> given = from;
  std::byte* to = in_place < 0 ? own.bytes.data() : given[static_cast<size_t>(in_place)].bytes.data();
  std::vector<const void*> pointers;
  for (const Array& one : given) pointers.push_back(one.bytes.data());
  Outcome made = device.call(&Slots::reduce_async, to, pointers.data(), sources, count, dtype, op, scale, stream);
  std::fill(pointers.begin(), pointers.end(), nullptr);
  if (made.ok()) made = stream.synchronize();
  if (!made.ok()) return made.text();
  if (count > 0 && std::memcmp(to, expected.bytes.data(), expected.bytes.size()) != 0) return "other bits";
  return "";
}

}  // namespace

TEST_CASE("every 16-bit float is the float that its bits define, and comes back from it") {
  check_all_of<Half>();
  check_all_of<BFloat>();
}

TEST_CASE("floats become the nearest 16-bit float, ties to even, infinity past the largest") {
  check_rounding<Half>();
  check_rounding<BFloat>();
  Half half;
  narrow(std::numeric_limits<float>::signaling_NaN(), half);
  CHECK(std::isnan(widen(half)));
  BFloat upper;
  narrow(std::bit_cast<float>(0x7f800001U), upper);  // cut off it would be infinity
  CHECK(std::isnan(widen(upper)));
}

TEST_CASE("a reduction equals the plain loop, bit by bit: every type, operation, size and number of sources") {
  const Device device;
  const Stream stream(device);
  for (const int32_t dtype : kTypes) {
    for (const int32_t op : {PLIANT_SUM, PLIANT_MIN, PLIANT_MAX}) {
      for (const size_t sources : {size_t{1}, size_t{2}, size_t{3}, size_t{7}}) {
        for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{4096}, size_t{20001}}) {
          CAPTURE(dtype);
          CAPTURE(op);
          CAPTURE(sources);
          CAPTURE(count);
          CHECK(reduce_and_check(device, stream, dtype, op, sources, count, 1, -1) == "");
          if (!is_integer(dtype)) {
            CHECK(reduce_and_check(device, stream, dtype, op, sources, count, 1.0 / 3, -1) == "");
          }
        }
        for (int in_place = 0; in_place < static_cast<int>(sources); ++in_place) {
          CHECK(reduce_and_check(device, stream, dtype, op, sources, 9001, 1, in_place) == "");
        }
      }
    }
  }
}

TEST_CASE("16-bit floats are added as floats and rounded once") {
  const Device device;
  const Stream stream(device);
  // 2048 + 1 is 2048 in binary16, 4 times over; added as floats it is 2052.
  std::vector<Half> values(5);
  narrow(2048.0F, values[0]);
  for (size_t i = 1; i < 5; ++i) narrow(1.0F, values[i]);
  std::vector<const void*> from;
  for (const Half& one : values) from.push_back(&one);
  Half sum;
  REQUIRE(device.call(&Slots::reduce_async, &sum, from.data(), 5, 1, PLIANT_F16, PLIANT_SUM, 1.0, stream).ok());
  REQUIRE(stream.synchronize().ok());
  CHECK(widen(sum) == 2052.0F);
}

TEST_CASE("casts between all types equal the plain conversion") {
  const Device device;
  const Stream stream(device);
  std::mt19937 random(5);
  for (const int32_t source : kTypes) {
    for (const int32_t target : kTypes) {
      CAPTURE(source);
      CAPTURE(target);
      for (const size_t count : {size_t{0}, size_t{1}, size_t{5003}}) {
        const Array from = drawn(source, count, random);
        Array to(target, count);
        REQUIRE(
            device.call(&Slots::cast_async, to.bytes.data(), target, from.bytes.data(), source, count, stream).ok());
        REQUIRE(stream.synchronize().ok());
        Array expected(target, count);
        for (size_t i = 0; i < count; ++i) {
          if (is_integer(source) && is_integer(target)) {
            expected.set_integer(i, from.integer(i));
          } else if (is_integer(target)) {
            const double least = target == PLIANT_U8 ? 0 : -1e9;
            const double most = target == PLIANT_U8 ? 255 : 1e9;
            expected.set_integer(i, static_cast<int64_t>(std::clamp(std::trunc(from.real(i)), least, most)));
          } else {
            expected.set_real(i, from.real(i));
          }
        }
        CHECK(to.bytes == expected.bytes);
      }
    }
  }
}

TEST_CASE("a cast to an integer stays within its range, and NaN becomes 0") {
  const Device device;
  const Stream stream(device);
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> from{infinity, -infinity, std::nan(""), 1e30, -1e30, 9.2233720368547758e18, -2.9, 255.9};
  const auto cast_to = [&](int32_t dtype, void* to) {
    REQUIRE(device.call(&Slots::cast_async, to, dtype, from.data(), PLIANT_F64, from.size(), stream).ok());
    REQUIRE(stream.synchronize().ok());
  };
  constexpr auto kMost64 = std::numeric_limits<int64_t>::max();
  constexpr auto kLeast64 = std::numeric_limits<int64_t>::min();
  std::vector<int64_t> wide(from.size());
  cast_to(PLIANT_I64, wide.data());
  CHECK(wide == std::vector<int64_t>{kMost64, kLeast64, 0, kMost64, kLeast64, kMost64, -2, 255});
  constexpr auto kMost32 = std::numeric_limits<int32_t>::max();
  constexpr auto kLeast32 = std::numeric_limits<int32_t>::min();
  std::vector<int32_t> narrow_ones(from.size());
  cast_to(PLIANT_I32, narrow_ones.data());
  CHECK(narrow_ones == std::vector<int32_t>{kMost32, kLeast32, 0, kMost32, kLeast32, kMost32, -2, 255});
  std::vector<uint8_t> bytes(from.size());
  cast_to(PLIANT_U8, bytes.data());
  CHECK(bytes == std::vector<uint8_t>{255, 0, 0, 255, 0, 255, 0, 255});
}

TEST_CASE("a batch of copies does all of them, and its array may go at once") {
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
