// Memory at a multiple of what is asked for.
#include <array>
#include <initializer_list>
#include <memory>
#include <vector>

#include "testkit/accelerator.hpp"
#include "testkit/checks/accelerator_checks.hpp"

namespace pliant::testkit {

namespace {

using Slots = pliant_accelerator;

struct AlignedKind {
  int32_t memory;
  const char* words;
  uint32_t capability;  ///< 0: always there
};
constexpr std::array kAlignedKinds{AlignedKind{PLIANT_MEMORY_DEVICE, "device memory", 0},
                                   AlignedKind{PLIANT_MEMORY_PINNED, "pinned memory", 0},
                                   AlignedKind{PLIANT_MEMORY_SHARED, "shared memory", PLIANT_CAP_SHARED_MEMORY},
                                   AlignedKind{PLIANT_MEMORY_EXCHANGE, "exchange memory", PLIANT_CAP_EXCHANGE_MEMORY},
                                   AlignedKind{PLIANT_MEMORY_WINDOW, "window memory", PLIANT_CAP_WINDOW_MEMORY}};

/// Skips the check where the plugin aligns no memory.
void require_alignment(const Accelerator& accelerator) {
  if (accelerator.slots().alloc_aligned == nullptr) skip("it lacks the optional alloc_aligned");
}

/// Memory of alloc_aligned, freed in time. Empty where the device has that kind, and does not align it.
class AlignedMemory {
 public:
  AlignedMemory(const Accelerator& accelerator, int32_t kind, uint64_t bytes, uint64_t alignment, int32_t device = 0) {
    void* given = nullptr;
    const Outcome made = accelerator.call(&Slots::alloc_aligned, device, kind, bytes, alignment, &given);
    expect(made.ok() || given == nullptr, "alloc_aligned returned " + made.text() + " but gave memory");
    if (made.status == PLIANT_UNIMPLEMENTED) return;
    accelerator.slots().free(accelerator.self(), device, kind, given);
    try {
      memory_ = sdk::OwnedMemory(accelerator.calls<Slots>(), device, kind, bytes, alignment);
    } catch (const sdk::Failure& refused) {
      if (refused.status() == PLIANT_UNIMPLEMENTED) return;
      fail("alloc_aligned returned " + Outcome(sdk::Answer{refused.status(), refused.what(), ""}).text());
    }
    expect(is_there(), "alloc_aligned returned " + Outcome().text() + " and gave NULL");
  }
  [[nodiscard]] unsigned char* at(uint64_t offset = 0) const {
    return static_cast<unsigned char*>(memory_.get()) + offset;
  }
  [[nodiscard]] bool is_there() const { return memory_.get() != nullptr; }

 private:
  sdk::OwnedMemory memory_;
};

/// Its first and last bytes keep what is written.
void keeps_bytes(const Accelerator& accelerator, const AlignedMemory& memory, uint64_t bytes, const std::string& what) {
  for (const uint64_t offset : {uint64_t{0}, bytes - 1}) {
    const auto wrote = static_cast<unsigned char>(41 + offset % 100);
    unsigned char got = 0;
    accelerator.write(memory.at(offset), &wrote, 1);
    accelerator.read(&got, memory.at(offset), 1);
    expect(got == wrote, what + " do not keep what is written to byte " + std::to_string(offset));
  }
}

void at_multiples(const Subject& subject) {
  const Accelerator accelerator(subject);
  require_alignment(accelerator);
  bool is_any = false;
  for (int32_t device = 0; device < accelerator.devices(); ++device) {
    for (const AlignedKind& kind : kAlignedKinds) {
      if (kind.capability != 0 && !accelerator.has(kind.capability)) continue;
      std::vector<std::unique_ptr<AlignedMemory>> kept;  // neighbours, so that one lucky address is not enough
      for (const uint64_t alignment : std::initializer_list<uint64_t>{1, 64, 128, 512, 4096}) {
        for (const uint64_t bytes : std::initializer_list<uint64_t>{1, 100, 4096, 5000, 1000003, 5000000}) {
          kept.push_back(std::make_unique<AlignedMemory>(accelerator, kind.memory, bytes, alignment, device));
          const AlignedMemory& memory = *kept.back();
          if (!memory.is_there()) continue;
          is_any = true;
          const std::string what = std::to_string(bytes) + " bytes of " + kind.words;
          const auto address = reinterpret_cast<uintptr_t>(memory.at());
          expect(address % alignment == 0, what + " lie at an address that is a multiple of " +
                                               std::to_string(address & (~address + 1)) + " only; " +
                                               std::to_string(alignment) + " was asked for");
          keeps_bytes(accelerator, memory, bytes, what);
        }
      }
    }
  }
  if (!is_any) skip("it cannot align memory");
}

void alignment_refused(const Subject& subject) {
  const Accelerator accelerator(subject);
  require_alignment(accelerator);
  const auto refusal = [&](int32_t device, int32_t kind, uint64_t bytes, uint64_t alignment) {
    void* pointer = nullptr;
    Outcome outcome = accelerator.call(&Slots::alloc_aligned, device, kind, bytes, alignment, &pointer);
    const std::string what = "alloc_aligned of " + std::to_string(bytes) + " bytes at a multiple of " +
                             std::to_string(alignment) + " returned " + outcome.text();
    expect(!outcome.ok() && pointer == nullptr, what + (outcome.ok() ? "" : " but gave memory"));
    expect(!outcome.message.empty(), what + " without a message");
    return outcome.status;
  };
  for (const uint64_t alignment : std::initializer_list<uint64_t>{0, 3, 96, 4097, 8192, uint64_t{1} << 63U}) {
    expect(refusal(0, PLIANT_MEMORY_DEVICE, 64, alignment) == PLIANT_INVALID_ARGUMENT,
           "an alignment that is not a power of two up to 4096 is not refused as PLIANT_INVALID_ARGUMENT");
  }
  expect(refusal(accelerator.devices(), PLIANT_MEMORY_DEVICE, 64, 4096) == PLIANT_INVALID_ARGUMENT,
         "alloc_aligned on a missing device is not refused as PLIANT_INVALID_ARGUMENT");
  expect(refusal(0, 42, 64, 4096) == PLIANT_INVALID_ARGUMENT,
         "alloc_aligned of an unknown memory kind is not refused as PLIANT_INVALID_ARGUMENT");
  if (!AlignedMemory(accelerator, PLIANT_MEMORY_DEVICE, 64, 4096).is_there()) return;
  for (const uint64_t bytes : {uint64_t{1} << 62U, ~uint64_t{0}}) {
    expect(refusal(0, PLIANT_MEMORY_DEVICE, bytes, 4096) == PLIANT_RESOURCE_EXHAUSTED,
           "an aligned allocation beyond the device's memory is not refused as PLIANT_RESOURCE_EXHAUSTED");
  }
}

/// A figure that is less by half of what was taken says that it does not come back.
void aligned_returned(const Subject& subject) {
  const Accelerator accelerator(subject);
  require_alignment(accelerator);
  constexpr uint64_t kBytes = uint64_t{1} << 20U;
  constexpr uint64_t kTimes = 200;
  const auto free_bytes = [&] {
    uint64_t left = 0;
    uint64_t all = 0;
    must("memory_info", accelerator.call(&Slots::memory_info, 0, &left, &all));
    return left;
  };
  const auto take_and_give = [&](uint64_t times) {
    for (uint64_t i = 0; i < times; ++i) {
      const AlignedMemory memory(accelerator, PLIANT_MEMORY_DEVICE, kBytes, 4096);
      if (!memory.is_there()) skip("it cannot align device memory");
    }
  };
  take_and_give(4);  // what a pool keeps it has by now
  const uint64_t before = free_bytes();
  take_and_give(kTimes);
  const uint64_t after = free_bytes();
  const uint64_t lost = before > after ? before - after : 0;
  expect(lost < kTimes / 2 * kBytes, "after " + std::to_string(kTimes) +
                                         " aligned pieces of 1 MiB were taken and freed, " + std::to_string(lost) +
                                         " fewer bytes are free than before");
}

}  // namespace

std::vector<Check> alignment_checks() {
  return {
      {"memory.alignment", "alloc_aligned gives memory at a multiple of the requested alignment", at_multiples},
      {"memory.alignment_refused", "invalid alignments and sizes beyond the device's memory are refused with a message",
       alignment_refused},
      {"memory.alignment_returned", "freed aligned memory is available again", aligned_returned},
  };
}

}  // namespace pliant::testkit
