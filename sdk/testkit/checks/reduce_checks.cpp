// Reductions on one device, against the plain loop.
#include <initializer_list>

#include "testkit/checks/huge_checks.hpp"
#include "testkit/checks/work_checks.hpp"
#include "testkit/values.hpp"

namespace pliant::testkit {

namespace {

using Slots = pliant_accelerator;

struct Case {
  int32_t dtype;
  int32_t op;
  size_t sources;
  uint64_t count;
  Draw draw = Draw::kSmall;
  double scale = 1;
  int in_place = -1;   ///< the source that is the target, too
  uint64_t shift = 0;  ///< elements past the alignment
};

std::string words(const Case& one) {
  std::string text = std::string("the ") + name_of_op(one.op) + " of " + std::to_string(one.sources) + " times " +
                     std::to_string(one.count) + " " + name_of_type(one.dtype);
  if (one.scale != 1) text += " with scale " + std::to_string(one.scale);
  if (one.in_place >= 0) text += " into source " + std::to_string(one.in_place);
  if (one.shift != 0) text += ", " + std::to_string(one.shift) + " elements past the alignment";
  return text;
}

void check_case(const Accelerator& accelerator, const Stream& stream, uint64_t seed, const Case& one) {
  std::vector<Elements> from;
  std::vector<std::unique_ptr<Guarded>> kept;
  std::vector<const void*> pointers;
  const uint64_t bytes = one.count * size_of(one.dtype);
  const uint64_t offset = one.shift * size_of(one.dtype);
  for (size_t s = 0; s < one.sources; ++s) {
    from.push_back(drawn_elements(one.dtype, one.count, one.draw, seed, s * 31 + one.count));
    kept.push_back(std::make_unique<Guarded>(accelerator, bytes, offset));
    kept.back()->set(from.back().bytes());
    pointers.push_back(kept.back()->at());
  }
  const Guarded own(accelerator, bytes, offset);
  const Guarded& to = one.in_place < 0 ? own : *kept[static_cast<size_t>(one.in_place)];
  const void* const* sources = pointers.data();
  must("reduce_async", accelerator.call(&Slots::reduce_async, static_cast<void*>(to.at()), sources, one.sources,
                                        one.count, one.dtype, one.op, one.scale, stream));
  pointers.assign(pointers.size(), nullptr);  // the array may be gone
  stream.wait();
  const std::string what = words(one);
  // A scale may be applied in float or in double: two roundings against one.
  const std::string wrong =
      difference({one.dtype, to.get(what)}, reduced(from, one.op, one.scale), one.scale == 1 ? 0 : 2);
  expect(wrong.empty(), what + ": " + wrong);
}

void exact(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  for (const int32_t dtype : kTypes) {
    for (const int32_t op : kOps) {
      for (const size_t sources : std::initializer_list<size_t>{1, 2, 3, 9}) {
        for (const uint64_t count : std::initializer_list<uint64_t>{0, 1, 7, 1001}) {
          check_case(accelerator, stream, subject.seed, {dtype, op, sources, count});
        }
        check_case(accelerator, stream, subject.seed, {dtype, op, sources, 333, Draw::kSmall, 1, -1, 3});
      }
    }
  }
}

void large(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  for (const int32_t dtype : kTypes) {
    check_case(accelerator, stream, subject.seed, {dtype, PLIANT_SUM, 2, 100003});
  }
}

/// More than one launch of a device may hold.
void very_large(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  constexpr uint64_t kCount = (uint64_t{1} << 24U) + 5;
  std::vector<float> given(kCount);
  for (uint64_t i = 0; i < kCount; ++i) given[i] = static_cast<float>(drawn(subject.seed, 12, i) % 4096);
  const Memory from(accelerator, kCount * 4);
  const Memory to(accelerator, kCount * 4);
  accelerator.write(from.at(), given.data(), kCount * 4);
  const void* const pointers[] = {from.at(), from.at(), from.at()};
  must("reduce_async",
       accelerator.call(&Slots::reduce_async, static_cast<void*>(to.at()), static_cast<const void* const*>(pointers), 3,
                        kCount, PLIANT_F32, PLIANT_SUM, 1.0, stream));
  stream.wait();
  std::vector<float> got(kCount);
  accelerator.read(got.data(), to.at(), kCount * 4);
  for (uint64_t i = 0; i < kCount; ++i) {
    if (got[i] == 3 * given[i]) continue;
    fail("the sum of 3 times " + std::to_string(kCount) + " f32: element " + std::to_string(i) + " is " +
         std::to_string(got[i]) + ", not " + std::to_string(3 * given[i]));
  }
}

void wraps(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  for (const int32_t dtype : kTypes) {
    if (!is_integer(dtype)) continue;
    for (const int32_t op : kOps) {
      check_case(accelerator, stream, subject.seed, {dtype, op, 5, 2003, Draw::kRounding});
    }
  }
}

void order(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  for (const int32_t dtype : {PLIANT_F32, PLIANT_F64}) {
    for (const size_t sources : std::initializer_list<size_t>{2, 3, 4, 17}) {
      check_case(accelerator, stream, subject.seed, {dtype, PLIANT_SUM, sources, 4099, Draw::kRounding});
    }
    check_case(accelerator, stream, subject.seed, {dtype, PLIANT_MIN, 5, 1001, Draw::kRounding});
    check_case(accelerator, stream, subject.seed, {dtype, PLIANT_MAX, 5, 1001, Draw::kRounding});
  }
}

void sixteen(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  for (const int32_t dtype : {PLIANT_F16, PLIANT_BF16}) {
    for (const int32_t op : kOps) {
      for (const size_t sources : std::initializer_list<size_t>{1, 2, 5, 17}) {
        check_case(accelerator, stream, subject.seed, {dtype, op, sources, 2003, Draw::kSixteenth});
      }
    }
  }
}

void scaled(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  for (const int32_t dtype : kTypes) {
    if (is_integer(dtype)) continue;
    for (const double scale : {0.5, 1.0 / 3.0, -2.0, 0.0}) {
      check_case(accelerator, stream, subject.seed, {dtype, PLIANT_SUM, 4, 1003, Draw::kSmall, scale});
      check_case(accelerator, stream, subject.seed, {dtype, PLIANT_MAX, 1, 1003, Draw::kSmall, scale});
    }
  }
}

void in_place(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  for (const int32_t dtype : kTypes) {
    for (const int source : {0, 1, 3}) {
      check_case(accelerator, stream, subject.seed, {dtype, PLIANT_SUM, 4, 5003, Draw::kSmall, 1, source});
    }
  }
}

void many(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  for (const size_t sources : std::initializer_list<size_t>{100, 1024}) {
    check_case(accelerator, stream, subject.seed, {PLIANT_F32, PLIANT_SUM, sources, 65});
    check_case(accelerator, stream, subject.seed, {PLIANT_I64, PLIANT_SUM, sources, 65, Draw::kRounding});
  }
}

}  // namespace

std::vector<Check> reduce_checks() {
  return {
      {"reduce.exact", "sums, minima and maxima of small whole numbers are exact, for every type", exact},
      {"reduce.large", "sums of many elements are exact, for every type", large},
      {"reduce.very_large", "a sum of 16 million elements is exact", very_large, 90},
      {"reduce.huge", "a sum of more than 2^32 elements is exact", huge_reduction, 120},
      {"reduce.wraps", "integers wrap around", wraps},
      {"reduce.order", "f32 and f64 are added in the order of the sources, bit by bit", order},
      {"reduce.sixteen", "16-bit floats are computed as floats and rounded once, bit by bit", sixteen},
      {"reduce.scale", "the result is scaled, within two units in the last place", scaled},
      {"reduce.in_place", "the target may be any of the sources", in_place},
      {"reduce.many", "a reduction takes up to 1024 sources, and their array may be freed at once", many},
  };
}

}  // namespace pliant::testkit
