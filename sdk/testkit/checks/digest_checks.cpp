// Digests of blocks, against the definition in the ABI.
#include <array>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/checks/work_checks.hpp"
#include "testkit/gate.hpp"
#include "testkit/values.hpp"

namespace pliant::testkit {

namespace {

using Slots = pliant_accelerator;

constexpr uint64_t kBlock = 1024;

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

uint64_t wanted_digest(const unsigned char* block) {
  uint64_t sum = 0;
  std::array<uint32_t, 2> pair{};
  for (uint64_t i = 0; i < kBlock / 4; i += 2) {
    std::memcpy(pair.data(), block + i * 4, sizeof(pair));
    for (uint64_t j = 0; j < 2; ++j) pair[j] += static_cast<uint32_t>(mix(i + j + 1) >> 32U);
    sum += uint64_t{pair[0]} * pair[1];
  }
  return sum;
}

Bytes wanted_digests(const Bytes& blocks) {
  Bytes made(blocks.size() / kBlock * 8);
  for (uint64_t i = 0; i < blocks.size() / kBlock; ++i) {
    const uint64_t value = wanted_digest(blocks.data() + i * kBlock);
    std::memcpy(made.data() + i * 8, &value, sizeof(value));
  }
  return made;
}

/// Skips the check where the device takes no digests.
void enqueue(const Accelerator& accelerator, void* to, const void* from, uint64_t blocks, const Stream& stream) {
  if (accelerator.slots().digest_blocks_async == nullptr) skip("it lacks the optional digest_blocks_async");
  const Outcome outcome =
      accelerator.call(&Slots::digest_blocks_async, static_cast<uint64_t*>(to), from, blocks, stream);
  if (outcome.status == PLIANT_UNIMPLEMENTED) skip(outcome.message);
  must("digest_blocks_async", outcome);
}

void exact_digests(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  for (const uint64_t blocks : std::initializer_list<uint64_t>{0, 1, 2, 7, 256, 4099}) {
    for (const uint64_t shift : std::initializer_list<uint64_t>{0, 4, 20}) {
      const std::string what = "the digests of " + std::to_string(blocks) + " blocks, " + std::to_string(shift) +
                               " bytes past the alignment";
      const Bytes contents = drawn_bytes(subject.seed, blocks + shift, blocks * kBlock);
      const Guarded from(accelerator, contents.size(), shift);
      from.set(contents);
      const Guarded to(accelerator, blocks * 8, 8);
      const Memory pinned(accelerator, blocks * 8, PLIANT_MEMORY_PINNED);
      enqueue(accelerator, to.at(), from.at(), blocks, stream);
      enqueue(accelerator, pinned.at(), from.at(), blocks, stream);
      stream.wait();
      const Bytes wanted = wanted_digests(contents);
      expect(to.get(what) == wanted, what + " are wrong in device memory");
      expect(Bytes(pinned.at(), pinned.at() + wanted.size()) == wanted, what + " are wrong in pinned memory");
      expect(from.get(what) == contents, what + " changed the blocks");
    }
  }
}

/// Returns while its stream stands, and then sees what was filled before it.
void in_order(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream held(accelerator);
  constexpr uint64_t kBlocks = 5;
  const Guarded from(accelerator, kBlocks * kBlock);
  from.set(Bytes(kBlocks * kBlock, 1));
  const Guarded to(accelerator, kBlocks * 8);
  {
    Gate gate;
    gate.hold(accelerator, held);
    must("fill_async", accelerator.call(&Slots::fill_async, static_cast<void*>(from.at()), 42, kBlocks * kBlock, held));
    returns_soon("digest_blocks_async on a blocked stream",
                 [&] { enqueue(accelerator, to.at(), from.at(), kBlocks, held); });
    expect(!held.done(), "stream_query reports a stream as done while a host function on it waits");
  }
  held.wait();
  expect(to.get("digest_blocks_async") == wanted_digests(Bytes(kBlocks * kBlock, 42)),
         "digests do not see an earlier fill on their stream");
}

}  // namespace

std::vector<Check> digest_checks() {
  return {
      {"digest.exact", "digests of blocks have the bits that the ABI defines, and no other memory changes",
       exact_digests},
      {"digest.order", "a digest returns at once and waits for earlier work on its stream", in_order},
  };
}

}  // namespace pliant::testkit
