// Reductions and casts of a device, against the plain loop.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "device.hpp"
#include "elements.hpp"

using namespace pliant_test;
using pliant::sdk::Half;

namespace {

using Slots = pliant_accelerator;

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
