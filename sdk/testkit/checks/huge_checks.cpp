// More than 4 GiB: only the last bytes are looked at, for a plain reference of all would take minutes.
#include "testkit/checks/huge_checks.hpp"

#include <algorithm>
#include <fstream>

#include "testkit/checks/work_checks.hpp"

namespace pliant::testkit {

namespace {

using Slots = pliant_accelerator;
using Collectives = pliant_collectives;

constexpr uint64_t kTail = 4096;
constexpr uint64_t kHalf = (uint64_t{2} << 30U) + kTail;
constexpr uint64_t kBytes = 2 * kHalf;
/// Memory is filled first, for pages that nothing touched take longer than the work.
constexpr uint64_t kPieces = 8;
/// In this order; the check hears of the end of each, for all together take longer than a rank may be silent.
constexpr const char* kCalls[] = {"all_gather", "all_gather_v", "reduce_scatter", "all_reduce", "broadcast", "message"};

uint64_t available_memory() {
  std::ifstream in("/proc/meminfo");
  for (std::string key; in >> key;) {
    uint64_t kib = 0;
    if (key == "MemAvailable:" && in >> kib) return kib * 1024;
  }
  return 0;
}

/// Skips unless so many bytes are free, with something to spare.
void need_memory(const Accelerator& accelerator, uint64_t bytes) {
  const auto need = [&](const char* whose, uint64_t free) {
    const uint64_t wanted = bytes + (uint64_t{1} << 30U);
    if (free >= wanted) return;
    skip("it needs " + std::to_string(wanted >> 30U) + " GiB of free " + whose + "; there are " +
         std::to_string(free >> 30U) + " GiB");
  };
  uint64_t info[2] = {0, 0};
  must("memory_info", accelerator.call(&Slots::memory_info, 0, &info[0], &info[1]));
  need("device memory", info[0]);
  if (accelerator.has(PLIANT_CAP_HOST_VISIBLE)) need("memory", available_memory());
}

void fill(const Accelerator& accelerator, const Stream& stream, unsigned char* to, int32_t value, uint64_t bytes) {
  must("fill_async", accelerator.call(&Slots::fill_async, static_cast<void*>(to), value, bytes, stream));
}

/// The kTail bytes at `from` are the word again and again.
void expect_tail(const Accelerator& accelerator, const unsigned char* from, uint16_t word, const std::string& what) {
  std::vector<uint16_t> got(kTail / sizeof(word));
  accelerator.read(got.data(), from, kTail);
  const auto wrong = std::find_if(got.begin(), got.end(), [&](uint16_t one) { return one != word; });
  if (wrong != got.end()) fail(what + " is wrong: " + std::to_string(*wrong) + ", not " + std::to_string(word));
}

/// What a call reads, of which it fills the tail, and what it writes.
struct Pair {
  Pair(const Subject& subject, uint64_t from_bytes, int32_t value)
      : accelerator(subject),
        stream(enough(accelerator, from_bytes + kBytes)),
        from(accelerator, from_bytes),
        to(accelerator, kBytes) {
    fill(accelerator, stream, from.at(from_bytes - kTail), value, kTail);
  }
  /// Waits, then looks at the end of what was written.
  void expect_end(uint16_t word, const std::string& what) const {
    stream.wait();
    expect_tail(accelerator, to.at(kBytes - kTail), word, "the end of " + what);
  }
  static const Accelerator& enough(const Accelerator& accelerator, uint64_t bytes) {
    need_memory(accelerator, bytes);
    return accelerator;
  }

  const Accelerator accelerator;
  const Stream stream;
  const Memory from;
  const Memory to;
};

/// Of two bytes of that value.
constexpr uint16_t twice(int value) {
  return static_cast<uint16_t>(value * 0x101);
}

/// The collectives of two ranks, u8, by turns. What a rank has in the tail of its buffer tells it from the other.
void run_huge(const Rank& rank) {
  const Accelerator& accelerator = rank.accelerator;
  const int32_t device = rank.rank % accelerator.devices();
  const Memory whole(accelerator, kBytes, PLIANT_MEMORY_DEVICE, device);
  const Memory half(accelerator, kHalf, PLIANT_MEMORY_DEVICE, device);
  const Comm comm(rank, rank.id());
  comm.join();
  const Stream stream(accelerator, device);
  for (uint64_t piece = 0; piece < kPieces; ++piece) {
    fill(accelerator, stream, whole.at(piece * (kBytes / kPieces)), 0, kBytes / kPieces);
    fill(accelerator, stream, half.at(piece * (kHalf / kPieces)), 0, kHalf / kPieces);
    stream.wait();
    rank.tell("goes on");
  }
  const void* const from_whole = whole.at();
  const void* const from_half = half.at();
  void* const to_whole = whole.at();
  void* const to_half = half.at();
  const auto own = static_cast<unsigned char>(rank.rank);
  const auto tail = [&](const Memory& memory, uint64_t size) { return memory.at(size - kTail); };
  const auto put = [&](unsigned char* at, int32_t value) { fill(accelerator, stream, at, value, kTail); };
  const auto run = [&](const char* what, const Outcome& enqueued) {
    must(what, enqueued);
    const Outcome ended = stream.synchronize();
    expect(ended.ok(), std::string(what) + " ended with " + ended.text());
  };
  const auto holds = [&](unsigned char* at, int value, const char* what) {
    expect_tail(accelerator, at, twice(value), std::string("the end of ") + what);
    rank.tell("goes on");
  };

  put(tail(half, kHalf), 0x10 + own);
  run("all_gather", accelerator.call(&Collectives::all_gather, comm, from_half, to_whole, kHalf, PLIANT_U8, stream));
  holds(tail(whole, kBytes), 0x11, "an all_gather of more than 4 GiB");

  put(tail(whole, kBytes), 0x20 + own);
  const uint64_t counts[] = {kHalf, kHalf};
  put(tail(half, kHalf), 0x28 + own);
  run("all_gather_v",
      accelerator.call(&Collectives::all_gather_v, comm, from_half, to_whole, &counts[0], PLIANT_U8, stream));
  holds(tail(whole, kBytes), 0x29, "an all_gather_v of more than 4 GiB");

  put(tail(whole, kHalf), 1 + own);
  put(tail(whole, kBytes), 3 + own);
  run("reduce_scatter",
      accelerator.call(&Collectives::reduce_scatter, comm, from_whole, to_half, kHalf, PLIANT_U8, PLIANT_SUM, stream));
  holds(tail(half, kHalf), rank.rank == 0 ? 3 : 7, "a reduce_scatter of more than 4 GiB");

  put(tail(whole, kBytes), 5 + own);
  run("all_reduce",
      accelerator.call(&Collectives::all_reduce, comm, from_whole, to_whole, kBytes, PLIANT_U8, PLIANT_SUM, stream));
  holds(tail(whole, kBytes), 11, "an all_reduce of more than 4 GiB");

  put(tail(whole, kBytes), 0x30 + own);
  run("broadcast", accelerator.call(&Collectives::broadcast, comm, to_whole, kBytes, PLIANT_U8, 1, stream));
  holds(tail(whole, kBytes), 0x31, "a broadcast of more than 4 GiB");

  put(tail(whole, kBytes), 0x40 + own);
  run("a message", rank.rank == 0 ? accelerator.call(&Collectives::send, comm, from_whole, kBytes, PLIANT_U8, 1, stream)
                                  : accelerator.call(&Collectives::recv, comm, to_whole, kBytes, PLIANT_U8, 0, stream));
  holds(tail(whole, kBytes), 0x40, "a message of more than 4 GiB");
}

}  // namespace

void huge_copy(const Subject& subject) {
  const Pair pair(subject, kBytes, 0x5A);
  must("copy_async", pair.accelerator.call(&Slots::copy_async, static_cast<void*>(pair.to.at()),
                                           static_cast<const void*>(pair.from.at()), kBytes, pair.stream));
  pair.expect_end(twice(0x5A), "a copy of more than 4 GiB");
}

void huge_reduction(const Subject& subject) {
  const Pair pair(subject, kBytes, 0x15);
  const void* const sources[] = {pair.from.at(), pair.from.at()};
  must("reduce_async", pair.accelerator.call(&Slots::reduce_async, static_cast<void*>(pair.to.at()), &sources[0], 2,
                                             kBytes, PLIANT_U8, PLIANT_SUM, 1.0, pair.stream));
  pair.expect_end(twice(0x2A), "a sum of more than 2^32 elements");
}

void huge_cast(const Subject& subject) {
  const Pair pair(subject, kHalf, 1);
  must("cast_async", pair.accelerator.call(&Slots::cast_async, static_cast<void*>(pair.to.at()), PLIANT_BF16,
                                           static_cast<const void*>(pair.from.at()), PLIANT_U8, kHalf, pair.stream));
  constexpr uint16_t kOne = 0x3F80;
  pair.expect_end(kOne, "a cast to more than 4 GiB");
}

void huge_collectives(const Subject& subject) {
  need_collectives(subject);
  {
    const Accelerator accelerator(subject);
    need_memory(accelerator, 2 * (kBytes + kHalf));
  }
  Ranks ranks(subject, "huge", 2);
  ranks.carry_id();
  for (uint64_t piece = 0; piece < kPieces; ++piece) ranks.hear_all("end of a fill of 768 MiB");
  for (const char* call : kCalls) ranks.hear_all(std::string("end of ") + call + " of more than 4 GiB");
  ranks.finish();
}

Script huge_script() {
  return {"huge", run_huge};
}

}  // namespace pliant::testkit
