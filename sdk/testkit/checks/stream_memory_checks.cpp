// Memory in stream order, where the plugin offers pliant.stream_memory/0.
#include <algorithm>
#include <initializer_list>
#include <memory>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/checks/order_work.hpp"
#include "testkit/gate.hpp"

namespace pliant::testkit {

namespace {

using Slots = pliant_accelerator;
using Table = pliant_stream_memory;

constexpr uint64_t kBytes = 65536;

void need_stream_memory(const Accelerator& accelerator) {
  if (accelerator.stream_memory() == nullptr) skip("it does not offer the extension " PLIANT_STREAM_MEMORY);
}

unsigned char* take(const Accelerator& accelerator, uint64_t bytes, const Stream& stream) {
  void* pointer = nullptr;
  must("alloc_async", accelerator.call(&Table::alloc_async, 0, bytes, stream, &pointer));
  return static_cast<unsigned char*>(pointer);
}

void give_back(const Accelerator& accelerator, void* pointer, const Stream& stream) {
  must("free_async", accelerator.call(&Table::free_async, 0, pointer, stream));
}

void fill(const Accelerator& accelerator, void* to, int32_t value, uint64_t bytes, const Stream& stream) {
  must("fill_async", accelerator.call(&Slots::fill_async, to, value, bytes, stream));
}

void copy(const Accelerator& accelerator, void* to, const void* from, uint64_t bytes, const Stream& stream) {
  must("copy_async", accelerator.call(&Slots::copy_async, to, from, bytes, stream));
}

bool holds(const Accelerator& accelerator, const Memory& memory, uint64_t bytes, unsigned char value) {
  Bytes got(bytes);
  accelerator.read(got.data(), memory.at(), bytes);
  return std::all_of(got.begin(), got.end(), [&](unsigned char byte) { return byte == value; });
}

/// Two of each size, each filled with its own number behind the call, copied out and given back, without a wait.
void usable(const Subject& subject) {
  const Accelerator accelerator(subject);
  need_stream_memory(accelerator);
  const Stream stream(accelerator);
  struct Piece {
    uint64_t bytes;
    unsigned char* at;
    std::unique_ptr<Memory> copied;
  };
  std::vector<Piece> pieces;
  for (const uint64_t bytes : std::initializer_list<uint64_t>{0, 1, 100, 4096, 1000003}) {
    for (int i = 0; i < 2; ++i) pieces.push_back({bytes, nullptr, std::make_unique<Memory>(accelerator, bytes)});
  }
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < pieces.size(); ++i) {
      Piece& piece = pieces[i];
      piece.at = take(accelerator, piece.bytes, stream);
      const auto address = reinterpret_cast<uintptr_t>(piece.at);
      expect(piece.bytes == 0 || (address != 0 && address % 64 == 0),
             "alloc_async of " + std::to_string(piece.bytes) + " bytes gave an address that is not a multiple of 64");
      fill(accelerator, piece.at, static_cast<int32_t>(i) + 1, piece.bytes, stream);
    }
    for (const Piece& piece : pieces) {
      copy(accelerator, piece.copied->at(), piece.at, piece.bytes, stream);
      give_back(accelerator, piece.at, stream);
    }
    give_back(accelerator, nullptr, stream);
    stream.wait();
    for (size_t i = 0; i < pieces.size(); ++i) {
      expect(holds(accelerator, *pieces[i].copied, pieces[i].bytes, static_cast<unsigned char>(i + 1)),
             std::to_string(pieces[i].bytes) + " bytes of alloc_async do not keep what was filled in");
    }
  }
}

void at_once(const Subject& subject) {
  const Accelerator accelerator(subject);
  need_stream_memory(accelerator);
  const Stream held(accelerator);
  unsigned char* const before = take(accelerator, kBytes, held);
  Gate gate;
  gate.hold(accelerator, held);
  returns_soon("free_async on a blocked stream", [&] { give_back(accelerator, before, held); });
  unsigned char* made = nullptr;
  returns_soon("alloc_async on a blocked stream", [&] { made = take(accelerator, kBytes, held); });
  gate.open();
  give_back(accelerator, made, held);
  held.wait();
}

/// A copy out of memory that is given back behind it, on a stream that stands; meanwhile another stream takes memory.
void in_order(const Subject& subject) {
  const Accelerator accelerator(subject);
  need_stream_memory(accelerator);
  const Memory kept(accelerator, kBytes);
  const Stream first(accelerator);
  const Stream second(accelerator);
  unsigned char* const memory = take(accelerator, kBytes, first);
  fill(accelerator, memory, 1, kBytes, first);
  first.wait();
  std::vector<unsigned char*> taken;
  {
    Gate gate;
    gate.hold(accelerator, first);
    copy(accelerator, kept.at(), memory, kBytes, first);
    give_back(accelerator, memory, first);
    for (int i = 0; i < 4; ++i) {
      taken.push_back(take(accelerator, kBytes, second));
      fill(accelerator, taken.back(), 2, kBytes, second);
    }
    // Where memory of the first stream may not be had yet, the second may have to wait for it.
    constexpr int kRounds = 20;
    for (int i = 0; i < kRounds && !second.done(); ++i) let_run(accelerator);
  }
  first.wait();
  for (unsigned char* const one : taken) give_back(accelerator, one, second);
  second.wait();
  expect(holds(accelerator, kept, kBytes, 1),
         "memory was another stream's before work that was enqueued in front of its free_async had run");
}

void exhausted(const Subject& subject) {
  const Accelerator accelerator(subject);
  need_stream_memory(accelerator);
  const Stream stream(accelerator);
  for (const uint64_t bytes : {uint64_t{1} << 62U, ~uint64_t{0}}) {
    void* pointer = nullptr;
    const Outcome refused = accelerator.call(&Table::alloc_async, 0, bytes, stream, &pointer);
    const std::string what = "alloc_async of " + std::to_string(bytes) + " bytes returned " + refused.text();
    expect(refused.status == PLIANT_RESOURCE_EXHAUSTED, what + " in place of PLIANT_RESOURCE_EXHAUSTED");
    expect(!refused.message.empty(), what + " without a message");
    expect(pointer == nullptr, what + " and left a pointer");
  }
  const Memory copied(accelerator, kBytes);
  unsigned char* const memory = take(accelerator, kBytes, stream);
  fill(accelerator, memory, 7, kBytes, stream);
  copy(accelerator, copied.at(), memory, kBytes, stream);
  give_back(accelerator, memory, stream);
  stream.wait();
  expect(holds(accelerator, copied, kBytes, 7), "memory allocated after a refusal does not keep what was filled in");
}

uint64_t free_bytes(const Accelerator& accelerator) {
  uint64_t free = 0;
  uint64_t total = 0;
  must("memory_info", accelerator.call(&Slots::memory_info, 0, &free, &total));
  return free;
}

/// Other programs may use the same device, so some of it may be missing.
void trimmed(const Subject& subject) {
  const Accelerator accelerator(subject);
  need_stream_memory(accelerator);
  constexpr uint64_t kPiece = uint64_t{1} << 20U;
  constexpr int kPieces = 64;
  const Stream stream(accelerator);
  const auto take_and_give_back = [&](int pieces) {
    std::vector<unsigned char*> all;
    for (int i = 0; i < pieces; ++i) all.push_back(take(accelerator, kPiece, stream));
    for (unsigned char* const one : all) give_back(accelerator, one, stream);
    stream.wait();
    must("trim", accelerator.call(&Table::trim, 0, 0));
  };
  if (free_bytes(accelerator) < 2 * kPieces * kPiece) skip("less than 128 MiB of device memory are free");
  take_and_give_back(1);  // what the first use keeps it has by now
  const uint64_t before = free_bytes(accelerator);
  take_and_give_back(kPieces);
  const uint64_t after = free_bytes(accelerator);
  const uint64_t lost = before > after ? before - after : 0;
  expect(lost < kPieces / 2 * kPiece, "after 64 MiB were freed and trimmed, " + std::to_string(lost) +
                                          " fewer bytes are free than before they were allocated");
}

}  // namespace

std::vector<Check> stream_memory_checks() {
  return {
      {"stream_memory.usable",
       "memory allocated for a stream overlaps no other, and the stream's work can use it at once", usable},
      {"stream_memory.at_once", "alloc_async and free_async return while a host function blocks the stream", at_once},
      {"stream_memory.order", "freed memory is not reused before the work in front of the free has run", in_order},
      {"stream_memory.exhausted", "an allocation beyond the device's memory is refused as PLIANT_RESOURCE_EXHAUSTED",
       exhausted},
      {"stream_memory.trimmed", "trim to 0 returns kept memory to the device", trimmed},
  };
}

}  // namespace pliant::testkit
