// Casts between all types.
#include <cmath>
#include <initializer_list>
#include <limits>

#include "testkit/checks/huge_checks.hpp"
#include "testkit/checks/work_checks.hpp"
#include "testkit/values.hpp"

namespace pliant::testkit {

namespace {

using Slots = pliant_accelerator;

std::string words(const Elements& from, int32_t to) {
  return std::string("a cast of ") + std::to_string(from.count()) + " " + name_of_type(from.dtype()) + " to " +
         name_of_type(to);
}

Elements cast(const Accelerator& accelerator, const Stream& stream, const Elements& from, int32_t to,
              uint64_t shift = 0) {
  const Guarded source(accelerator, from.bytes().size(), shift * size_of(from.dtype()));
  const Guarded target(accelerator, from.count() * size_of(to), shift * size_of(to));
  source.set(from.bytes());
  must("cast_async", accelerator.call(&Slots::cast_async, static_cast<void*>(target.at()), to,
                                      static_cast<const void*>(source.at()), from.dtype(), from.count(), stream));
  stream.wait();
  return {to, target.get(words(from, to))};
}

Elements converted(const Elements& from, int32_t to) {
  Elements made(to, from.count());
  for (uint64_t i = 0; i < from.count(); ++i) made.put(i, from.get(i));
  return made;
}

void compare(const Accelerator& accelerator, const Stream& stream, const Elements& from, int32_t to,
             uint64_t shift = 0) {
  const std::string wrong = difference(cast(accelerator, stream, from, to, shift), converted(from, to));
  expect(wrong.empty(), words(from, to) + ": " + wrong);
}

void exact(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  for (const int32_t from : kTypes) {
    for (const int32_t to : kTypes) {
      for (const uint64_t count : std::initializer_list<uint64_t>{0, 1, 7, 1001}) {
        compare(accelerator, stream, drawn_elements(from, count, Draw::kSmall, subject.seed, count), to);
      }
      compare(accelerator, stream, drawn_elements(from, 333, Draw::kSmall, subject.seed, 2), to, 5);
    }
  }
}

/// Values of `from` at, and next to, the middle between two neighbours of a narrower type.
Elements around_ties(int32_t from, int32_t narrow, uint64_t seed) {
  Elements neighbours(narrow, 2);
  std::vector<long double> values;
  for (uint64_t i = 0; values.size() < 1500; ++i) {
    const auto bits = static_cast<int64_t>(drawn(seed, 77, i));
    Elements one(narrow, 1);
    one.put(0, std::ldexp(static_cast<long double>(bits % 100000), static_cast<int>(i % 24) - 20));
    const long double value = one.get(0);
    if (!std::isfinite(value)) continue;
    const long double above = std::nextafter(static_cast<double>(value), 1e300);
    // The next value of the narrow type: push by ever larger steps until rounding moves.
    long double step = std::abs(value) * 0x1p-12L + 0x1p-30L;
    for (neighbours.put(0, value + step); neighbours.get(0) == value; neighbours.put(0, value + step)) step *= 2;
    const long double middle = (value + neighbours.get(0)) / 2;
    values.push_back(middle);
    values.push_back(std::nextafter(middle, 1e300L));
    values.push_back(middle * (1 + 0x1p-40L));
    values.push_back(middle * (1 - 0x1p-40L));
    values.push_back(above);
  }
  Elements made(from, values.size());
  for (uint64_t i = 0; i < values.size(); ++i) made.put(i, values[i]);
  return made;
}

void nearest(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  for (const int32_t to : {PLIANT_F16, PLIANT_BF16}) {
    compare(accelerator, stream, drawn_elements(PLIANT_F32, 5003, Draw::kRounding, subject.seed, 1), to);
    compare(accelerator, stream, around_ties(PLIANT_F32, to, subject.seed), to);
  }
  compare(accelerator, stream, drawn_elements(PLIANT_F64, 5003, Draw::kRounding, subject.seed, 1), PLIANT_F32);
  compare(accelerator, stream, around_ties(PLIANT_F64, PLIANT_F32, subject.seed), PLIANT_F32);
  compare(accelerator, stream, drawn_elements(PLIANT_I32, 5003, Draw::kRounding, subject.seed, 1), PLIANT_F32);
  compare(accelerator, stream, drawn_elements(PLIANT_I64, 5003, Draw::kRounding, subject.seed, 1), PLIANT_F64);
}

/// By way of float a tie may appear that was none.
void rounded_once(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  for (const int32_t to : {PLIANT_F16, PLIANT_BF16}) {
    compare(accelerator, stream, around_ties(PLIANT_F64, to, subject.seed), to);
    Elements whole(PLIANT_I64, 600);
    for (uint64_t i = 0; i < whole.count(); ++i) {
      const auto high = static_cast<int64_t>(256 + drawn(subject.seed, 9, i) % 256);
      whole.put_integer(i, (high * 2 + 1) * (int64_t{1} << 30U) + static_cast<int64_t>(i % 3) - 1);
    }
    if (to == PLIANT_BF16) compare(accelerator, stream, whole, to);
  }
}

void to_whole(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  for (const int32_t from : {PLIANT_F32, PLIANT_F64, PLIANT_F16, PLIANT_BF16}) {
    for (const int32_t to : {PLIANT_I32, PLIANT_I64, PLIANT_U8}) {
      Elements given(from, 2003);
      for (uint64_t i = 0; i < given.count(); ++i) {
        const long double value = static_cast<long double>(drawn(subject.seed, 5, i) % 20000) / 160.0L;
        given.put(i, to == PLIANT_U8 || i % 2 == 0 ? value : -value);
      }
      const Elements got = cast(accelerator, stream, given, to);
      for (uint64_t i = 0; i < given.count(); ++i) {
        const auto value = static_cast<double>(given.get(i));
        expect(static_cast<double>(got.integer(i)) == std::trunc(value),
               words(given, to) + ": " + std::to_string(value) + " became " + std::to_string(got.integer(i)));
      }
    }
  }
}

void clamped(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  constexpr long double kInfinity = std::numeric_limits<long double>::infinity();
  for (const int32_t from : {PLIANT_F32, PLIANT_F64, PLIANT_F16, PLIANT_BF16}) {
    for (const int32_t to : {PLIANT_I32, PLIANT_I64, PLIANT_U8}) {
      Elements given(from, 5);
      const long double far = from == PLIANT_F16 ? kInfinity : 1e30L;
      const long double values[] = {kInfinity, -kInfinity, far, -far, std::numeric_limits<long double>::quiet_NaN()};
      for (uint64_t i = 0; i < 5; ++i) given.put(i, values[i]);
      const Elements got = cast(accelerator, stream, given, to);
      const int64_t least = to == PLIANT_U8 ? 0 : to == PLIANT_I32 ? INT32_MIN : INT64_MIN;
      const int64_t most = to == PLIANT_U8 ? 255 : to == PLIANT_I32 ? INT32_MAX : INT64_MAX;
      const int64_t wanted[] = {most, least, most, least, 0};
      for (uint64_t i = 0; i < 5; ++i) {
        expect(got.integer(i) == wanted[i], words(given, to) + ": " + std::to_string(static_cast<double>(values[i])) +
                                                " became " + std::to_string(got.integer(i)) + ", not " +
                                                std::to_string(wanted[i]));
      }
    }
  }
}

void overflow(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  for (const int32_t from : {PLIANT_F32, PLIANT_F64}) {
    for (const int32_t to : {PLIANT_F32, PLIANT_F16, PLIANT_BF16}) {
      if (from == to) continue;
      Elements given(from, 6);
      const long double past = to == PLIANT_F16 ? 65520.0L : 3.4e38L * (from == PLIANT_F64 ? 2 : 1);
      const long double values[] = {past,     -past,    std::numeric_limits<long double>::infinity(),
                                    65504.0L, 65519.0L, std::numeric_limits<long double>::quiet_NaN()};
      for (uint64_t i = 0; i < given.count(); ++i) given.put(i, values[i]);
      compare(accelerator, stream, given, to);
    }
  }
}

/// More than one launch of a device may hold: from bytes to f32, and from that to bf16.
void large(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  constexpr uint64_t kCount = (uint64_t{1} << 24U) + 5;
  const Bytes given = drawn_bytes(subject.seed, 11, kCount);
  const Memory bytes(accelerator, kCount);
  const Memory wide(accelerator, kCount * 4);
  const Memory narrow(accelerator, kCount * 2);
  accelerator.write(bytes.at(), given.data(), kCount);
  const auto enqueue = [&](const Memory& to, int32_t to_type, const Memory& from, int32_t from_type) {
    must("cast_async", accelerator.call(&Slots::cast_async, static_cast<void*>(to.at()), to_type,
                                        static_cast<const void*>(from.at()), from_type, kCount, stream));
  };
  enqueue(wide, PLIANT_F32, bytes, PLIANT_U8);
  enqueue(narrow, PLIANT_BF16, wide, PLIANT_F32);
  stream.wait();
  std::vector<float> floats(kCount);
  std::vector<uint16_t> halves(kCount);
  accelerator.read(floats.data(), wide.at(), kCount * 4);
  accelerator.read(halves.data(), narrow.at(), kCount * 2);
  for (uint64_t i = 0; i < kCount; ++i) {
    const auto wanted = static_cast<float>(given[i]);  // of 8 bits, so that bf16 holds it, too
    const uint32_t bits = uint32_t{halves[i]} << 16U;
    float half = 0;
    std::memcpy(&half, &bits, sizeof(half));
    if (floats[i] == wanted && half == wanted) continue;
    fail("a cast of " + std::to_string(kCount) + " elements is wrong from element " + std::to_string(i) + " on");
  }
}

}  // namespace

std::vector<Check> cast_checks() {
  return {
      {"cast.exact", "casts between all types keep small whole numbers", exact},
      {"cast.large", "casts of 16 million elements are complete", large, 90},
      {"cast.huge", "a cast to more than 4 GiB is complete", huge_cast, 120},
      {"cast.nearest", "values are rounded to the nearest value of the target type, ties to even", nearest},
      {"cast.once", "casts of f64 and i64 to 16 bits round once", rounded_once},
      {"cast.whole", "a float becomes an integer by dropping its fraction", to_whole},
      {"cast.range", "floats beyond an integer's range become its least or largest value, NaN becomes 0", clamped},
      {"cast.overflow", "floats beyond the largest become infinity, NaN stays NaN", overflow},
  };
}

}  // namespace pliant::testkit
