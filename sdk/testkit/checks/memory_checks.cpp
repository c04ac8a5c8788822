// Device and pinned memory.
#include <algorithm>
#include <initializer_list>

#include "testkit/accelerator.hpp"
#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/ranks.hpp"

namespace pliant::testkit {

namespace {

using Slots = pliant_accelerator;

constexpr int32_t kKinds[] = {PLIANT_MEMORY_DEVICE, PLIANT_MEMORY_PINNED};

const char* words(int32_t kind) {
  return kind == PLIANT_MEMORY_DEVICE ? "device memory" : "pinned memory";
}

struct Info {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};

Info info(const Accelerator& accelerator, int32_t device = 0) {
  Info found;
  must("memory_info", accelerator.call(&Slots::memory_info, device, &found.free_bytes, &found.total_bytes));
  return found;
}

void aligned(const Subject& subject) {
  const Accelerator accelerator(subject);
  for (int32_t device = 0; device < accelerator.devices(); ++device) {
    for (const int32_t kind : kKinds) {
      std::vector<std::unique_ptr<Memory>> kept;  // neighbours, so that one lucky address is not enough
      for (const uint64_t bytes : std::initializer_list<uint64_t>{1, 3, 63, 64, 65, 100, 4097, 1000003, 5000000}) {
        kept.push_back(std::make_unique<Memory>(accelerator, bytes, kind, device));
        const auto address = reinterpret_cast<uintptr_t>(kept.back()->at());
        const std::string what = std::to_string(bytes) + " bytes of " + words(kind);
        expect(address != 0, what + ": alloc returned OK and gave NULL");
        expect(address % 64 == 0, what + " lie at an address that is a multiple of " +
                                      std::to_string(address & (~address + 1)) + " only; 64 is promised");
      }
    }
  }
}

void apart(const Subject& subject) {
  const Accelerator accelerator(subject);
  for (const int32_t kind : kKinds) {
    std::vector<std::unique_ptr<Memory>> kept;
    std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
    for (uint64_t i = 0; i < 64; ++i) {
      const uint64_t bytes = 1 + i * 37 % 1000;
      kept.push_back(std::make_unique<Memory>(accelerator, bytes, kind));
      const auto begin = reinterpret_cast<uintptr_t>(kept.back()->at());
      ranges.emplace_back(begin, begin + bytes);
    }
    std::sort(ranges.begin(), ranges.end());
    for (size_t i = 1; i < ranges.size(); ++i) {
      expect(ranges[i - 1].second <= ranges[i].first, std::string("two pieces of ") + words(kind) + " overlap");
    }
  }
}

void empty(const Subject& subject) {
  const Accelerator accelerator(subject);
  for (const int32_t kind : kKinds) {
    for (int i = 0; i < 3; ++i) {
      void* pointer = nullptr;
      const Outcome made = accelerator.call(&Slots::alloc, 0, kind, 0, &pointer);
      expect(made.ok(), std::string("alloc of 0 bytes of ") + words(kind) + " returned " + made.text());
      accelerator.slots().free(accelerator.self(), 0, kind, pointer);
    }
  }
}

void free_null(const Subject& subject) {
  const Accelerator accelerator(subject);
  for (const int32_t kind : kKinds) accelerator.slots().free(accelerator.self(), 0, kind, nullptr);
  const Memory memory(accelerator, 64);
}

void plausible(const Subject& subject) {
  const Accelerator accelerator(subject);
  for (int32_t device = 0; device < accelerator.devices(); ++device) {
    const Info found = info(accelerator, device);
    expect(found.total_bytes > 0, "memory_info reports no memory");
    expect(found.free_bytes <= found.total_bytes, "memory_info reports more free memory, " +
                                                      std::to_string(found.free_bytes) + " bytes, than total memory, " +
                                                      std::to_string(found.total_bytes));
  }
}

/// Other programs may use the same device, so a figure that does not move is no more than a warning.
void accounted(const Subject& subject) {
  const Accelerator accelerator(subject);
  constexpr uint64_t kBytes = uint64_t{32} << 20U;
  const Info before = info(accelerator);
  if (before.free_bytes < 4 * kBytes) skip("less than 128 MiB of device memory are free");
  const Memory memory(accelerator, kBytes);
  if (info(accelerator).free_bytes >= before.free_bytes) {
    warn("32 MiB were allocated, but memory_info reports as much free memory as before");
  }
}

void exhausted(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Info all = info(accelerator);
  for (const uint64_t bytes : {all.total_bytes + (uint64_t{1} << 30U), uint64_t{1} << 62U, ~uint64_t{0}}) {
    for (int i = 0; i < 3; ++i) {
      void* pointer = nullptr;
      const Outcome refused = accelerator.call(&Slots::alloc, 0, PLIANT_MEMORY_DEVICE, bytes, &pointer);
      const std::string what = "alloc of " + std::to_string(bytes) + " bytes, of " + std::to_string(all.total_bytes) +
                               " in all, returned " + refused.text();
      expect(refused.status == PLIANT_RESOURCE_EXHAUSTED, what + " in place of PLIANT_RESOURCE_EXHAUSTED");
      expect(!refused.message.empty(), what + " without a message");
      expect(pointer == nullptr, what + " and left a pointer");
    }
  }
}

/// Pieces of device memory of one size.
class Pieces {
 public:
  Pieces(const Accelerator& accelerator, uint64_t bytes) : accelerator_(accelerator), bytes_(bytes) {}
  ~Pieces() { free(); }
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;
  [[nodiscard]] size_t count() const { return pieces_.size(); }
  Outcome take() {
    void* pointer = nullptr;
    Outcome outcome = accelerator_.call(&Slots::alloc, 0, PLIANT_MEMORY_DEVICE, bytes_, &pointer);
    if (outcome.ok()) pieces_.push_back(pointer);
    return outcome;
  }
  /// Until one is refused, or there are `most`.
  Outcome fill(size_t most) {
    Outcome outcome;
    while (outcome.ok() && count() < most) outcome = take();
    return outcome;
  }
  void free() {
    for (void* const one : pieces_) {
      accelerator_.slots().free(accelerator_.self(), 0, PLIANT_MEMORY_DEVICE, one);
    }
    pieces_.clear();
  }

 private:
  const Accelerator& accelerator_;
  const uint64_t bytes_;
  std::vector<void*> pieces_;
};

/// Nothing is written to most of it. Some drivers lend more than a device has, which is no more than a warning.
void filled(const Subject& subject) {
  const Accelerator accelerator(subject);
  constexpr uint64_t kParts = 16;
  const uint64_t total = info(accelerator).total_bytes;
  const uint64_t bytes = std::max<uint64_t>(total / kParts, uint64_t{1} << 20U);
  const Memory kept(accelerator, 4096);
  Pieces pieces(accelerator, bytes);
  const Outcome refused = pieces.fill(2 * kParts);
  const std::string what = "after " + std::to_string(pieces.count()) + " pieces of " + std::to_string(bytes) +
                           " bytes, of " + std::to_string(total) + " in all,";
  if (refused.ok()) return warn(what + " no allocation was refused");
  expect(refused.status == PLIANT_RESOURCE_EXHAUSTED,
         what + " alloc returned " + refused.text() + " in place of PLIANT_RESOURCE_EXHAUSTED");
  expect(!refused.message.empty(), what + " alloc refused the next one without a message");
  const unsigned char wrote = 7;
  unsigned char got = 0;
  accelerator.write(kept.at(), &wrote, 1);
  accelerator.read(&got, kept.at(), 1);
  expect(got == wrote, what + " memory allocated before does not keep what was written");
  const size_t had = pieces.count();
  pieces.free();
  if (had == 0)
    return warn("other programs use too much memory: none of " + std::to_string(kParts) +
                " parts of all memory could be allocated");
  const Outcome again = pieces.take();
  expect(again.ok(), what + " all were freed, but the next allocation is refused: " + again.text());
}

void recovers(const Subject& subject) {
  const Accelerator accelerator(subject);
  void* pointer = nullptr;
  const Outcome refused = accelerator.call(&Slots::alloc, 0, PLIANT_MEMORY_DEVICE, uint64_t{1} << 62U, &pointer);
  if (refused.ok()) skip("memory cannot be exhausted: see memory.exhausted");
  const Memory memory(accelerator, 1 << 20);
  const Stream stream(accelerator);
  must("fill_async", accelerator.call(&Slots::fill_async, static_cast<void*>(memory.at()), 7, 1 << 20, stream));
  stream.wait();
  unsigned char last = 0;
  accelerator.read(&last, memory.at((1 << 20) - 1), 1);
  expect(last == 7, "memory allocated after a refusal does not keep what was filled in");
}

void returned(const Subject& subject) {
  const Accelerator accelerator(subject);
  constexpr uint64_t kBytes = uint64_t{1} << 20U;
  const auto take_and_give = [&](int rounds) {
    for (int i = 0; i < rounds; ++i) {
      const Memory device(accelerator, kBytes);
      const Memory small(accelerator, 1000);
      const Memory pinned(accelerator, 1000, PLIANT_MEMORY_PINNED);
    }
  };
  take_and_give(8);  // what a pool keeps it has by now
  const Info before = info(accelerator);
  take_and_give(400);
  const Info after = info(accelerator);
  const uint64_t lost = before.free_bytes > after.free_bytes ? before.free_bytes - after.free_bytes : 0;
  expect(lost < 40 * kBytes, "after 400 pieces of 1 MiB were allocated and freed, " + std::to_string(lost) +
                                 " fewer bytes are free than before");
  if (lost > 0) warn(std::to_string(lost) + " fewer bytes are free than before 400 pieces were allocated and freed");
}

/// Pieces of one size, each filled with its own number, are told apart again later.
void distinct(const Accelerator& accelerator, const std::vector<const Memory*>& pieces, uint64_t bytes,
              const std::string& when) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Bytes number(bytes, static_cast<unsigned char>(i + 1));
    accelerator.write(pieces[i]->at(), number.data(), bytes);
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    Bytes got(bytes);
    accelerator.read(got.data(), pieces[i]->at(), bytes);
    const bool own = std::all_of(got.begin(), got.end(), [&](unsigned char byte) { return byte == i + 1; });
    expect(own, "of " + std::to_string(pieces.size()) + " pieces of " + std::to_string(bytes) + " bytes " + when +
                    ", number " + std::to_string(i + 1) + " does not keep what was written");
  }
}

void reused(const Subject& subject) {
  const Accelerator accelerator(subject);
  for (const uint64_t bytes : std::initializer_list<uint64_t>{100, 4096, 3 << 20U}) {
    const Memory kept(accelerator, bytes);
    { const Memory given_back(accelerator, bytes); }
    const Memory first(accelerator, bytes);
    const Memory second(accelerator, bytes);
    distinct(accelerator, {&kept, &first, &second}, bytes, "that were taken after another was freed");
  }
}

/// In a process of its own: what it does no program may do.
void free_twice_script(const Rank& rank) {
  const Accelerator& accelerator = rank.accelerator;
  for (const int32_t kind : kKinds) {
    const Memory before(accelerator, 1000, kind);
    void* pointer = nullptr;
    must("alloc", accelerator.call(&Slots::alloc, 0, kind, 1000, &pointer));
    const Memory after(accelerator, 1000, kind);
    for (int i = 0; i < 3; ++i) accelerator.slots().free(accelerator.self(), 0, kind, pointer);
    unsigned char own = 0;
    accelerator.slots().free(accelerator.self(), 0, kind, &own);
    const Memory first(accelerator, 1000, kind);
    const Memory second(accelerator, 1000, kind);
    distinct(accelerator, {&before, &after, &first, &second}, 1000, "around one that was freed three times");
  }
}

/// No slot promises it, so a crash is no more than a warning.
void freed_twice(const Subject& subject) {
  { const Accelerator accelerator(subject); }  // skips without a device
  Ranks ranks(subject, "free_twice", 1);
  const std::string crash = ranks.crash_of(0);
  if (!crash.empty()) warn("a process that freed memory twice and an invalid pointer " + crash);
}

void usable(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Memory pinned(accelerator, 4096, PLIANT_MEMORY_PINNED);
  std::memset(pinned.at(), 42, 4096);
  for (uint64_t i = 0; i < 4096; ++i) expect(*pinned.at(i) == 42, "pinned memory does not keep what the CPU wrote");
  if (!accelerator.has(PLIANT_CAP_HOST_VISIBLE)) return;
  const Memory device(accelerator, 4096);
  std::memset(device.at(), 43, 4096);
  for (uint64_t i = 0; i < 4096; ++i) {
    expect(*device.at(i) == 43, "device memory is PLIANT_CAP_HOST_VISIBLE and does not keep what the CPU wrote");
  }
}

/// Written and read by both sides, without a copy; refused by name where it is not claimed.
void shared(const Subject& subject) {
  const Accelerator accelerator(subject);
  if (!accelerator.has(PLIANT_CAP_SHARED_MEMORY)) {
    void* pointer = nullptr;
    const Outcome refused = accelerator.call(&Slots::alloc, 0, PLIANT_MEMORY_SHARED, 4096, &pointer);
    expect(refused.status == PLIANT_UNIMPLEMENTED,
           "it does not claim PLIANT_CAP_SHARED_MEMORY, and alloc of PLIANT_MEMORY_SHARED returned " + refused.text() +
               " in place of PLIANT_UNIMPLEMENTED");
    return;
  }
  constexpr uint64_t kBytes = 65536;
  const Memory shared(accelerator, kBytes, PLIANT_MEMORY_SHARED);
  const Memory device(accelerator, kBytes);
  const Stream stream(accelerator);
  std::memset(shared.at(), 42, kBytes);
  const void* const from = shared.at();
  must("copy_async", accelerator.call(&Slots::copy_async, static_cast<void*>(device.at()), from, kBytes, stream));
  must("fill_async", accelerator.call(&Slots::fill_async, static_cast<void*>(shared.at()), 43, kBytes / 2, stream));
  stream.wait();
  unsigned char got = 0;
  accelerator.read(&got, device.at(kBytes - 1), 1);
  expect(got == 42, "the device does not see what the CPU wrote into shared memory");
  expect(*shared.at() == 43 && *shared.at(kBytes / 2 - 1) == 43 && *shared.at(kBytes / 2) == 42,
         "the CPU does not see in shared memory what the device filled in");
}

}  // namespace

std::vector<Script> memory_scripts() {
  return {{"free_twice", free_twice_script}};
}

std::vector<Check> memory_checks() {
  return {
      {"memory.aligned", "memory begins at a multiple of 64 bytes", aligned},
      {"memory.apart", "allocations do not overlap", apart},
      {"memory.empty", "alloc of 0 bytes gives a pointer that can be freed", empty},
      {"memory.free_null", "freeing NULL does nothing", free_null},
      {"memory.visible", "the CPU can use pinned memory, and device memory that is host-visible", usable},
      {"memory.shared", "shared memory, if claimed, is read and written by the CPU and the device", shared},
      {"memory.info", "memory_info reports some memory, and no more free than total", plausible},
      {"memory.accounted", "less memory is free after an allocation", accounted},
      {"memory.exhausted", "an allocation beyond the device's memory is refused as PLIANT_RESOURCE_EXHAUSTED",
       exhausted},
      {"memory.filled", "a device without free memory refuses allocations until memory is freed", filled},
      {"memory.recovers", "the device works after a refused allocation", recovers},
      {"memory.reused", "memory allocated after a free belongs to one owner only", reused},
      {"memory.freed_twice", "freeing memory twice, or a foreign pointer, does no harm", freed_twice},
      {"memory.returned", "freed memory is available again", returned},
  };
}

}  // namespace pliant::testkit
