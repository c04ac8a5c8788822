// Enqueues and verifies sample work.
#include "testkit/sample_work.hpp"

#include <algorithm>

#include "testkit/values.hpp"

namespace pliant::testkit {

using Slots = pliant_accelerator;

const char* name_of(WorkKind kind) {
  const char* const names[] = {"copy_async", "copy_batch_async", "fill_async", "reduce_async", "cast_async"};
  return names[static_cast<size_t>(kind)];
}

SampleWork::SampleWork(const Accelerator& accelerator, uint64_t seed)
    : accelerator_(accelerator),
      given_(drawn_elements(PLIANT_I32, kCount, Draw::kSmall, seed, 50).bytes()),
      from_(accelerator, kBytes),
      to_(accelerator, kBytes) {
  const Bytes fresh(kBytes, kFresh);
  accelerator.write(from_.at(), given_.data(), kBytes);
  accelerator.write(to_.at(), fresh.data(), kBytes);
}

void SampleWork::enqueue(WorkKind kind, const Stream& stream) const {
  void* to = to_.at();
  const void* from = from_.at();
  const auto enqueued = [&]() -> Outcome {
    switch (kind) {
      case WorkKind::kCopy:
        return accelerator_.call(&Slots::copy_async, to, from, kBytes, stream);
      case WorkKind::kBatch: {
        const pliant_copy copies[] = {{to_.at(), from_.at(), 1000}, {to_.at(1000), from_.at(1000), kBytes - 1000}};
        return accelerator_.call(&Slots::copy_batch_async, static_cast<const pliant_copy*>(copies), 2, stream);
      }
      case WorkKind::kFill:
        return accelerator_.call(&Slots::fill_async, to, 0x77, kBytes, stream);
      case WorkKind::kReduce: {
        const void* const pointers[] = {from, from};
        return accelerator_.call(&Slots::reduce_async, to, static_cast<const void* const*>(pointers), 2, kCount,
                                 PLIANT_I32, PLIANT_SUM, 1.0, stream);
      }
      case WorkKind::kCast:
        return accelerator_.call(&Slots::cast_async, to, PLIANT_F32, from, PLIANT_I32, kCount, stream);
    }
    return {};
  };
  must(name_of(kind), enqueued());
}

bool SampleWork::untouched() const {
  Bytes got(kBytes);
  accelerator_.read(got.data(), to_.at(), kBytes);
  return std::all_of(got.begin(), got.end(), [](unsigned char byte) { return byte == kFresh; });
}

void SampleWork::verify(WorkKind kind) const {
  const Elements given(PLIANT_I32, given_);
  Elements wanted(kind == WorkKind::kCast ? PLIANT_F32 : PLIANT_I32, kCount);
  for (uint64_t i = 0; i < kCount; ++i) {
    if (kind == WorkKind::kFill) {
      wanted.put_integer(i, 0x77777777);
    } else {
      wanted.put(i, given.get(i) * (kind == WorkKind::kReduce ? 2 : 1));
    }
  }
  Elements got(wanted.dtype(), kCount);
  accelerator_.read(got.at(0), to_.at(), kBytes);
  const std::string wrong = difference(got, wanted);
  expect(wrong.empty(), std::string(name_of(kind)) + ": " + wrong);
}

}  // namespace pliant::testkit
