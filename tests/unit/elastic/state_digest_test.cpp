// Digests of states: what they see, and that blocks may be taken in any grouping.
#include "elastic/state_digest.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <ostream>

#include "rank_group.hpp"

namespace pliant::elastic {
namespace {

constexpr size_t kBlock = DigestOfBytes::kBlockBytes;

uint64_t digest_of(const std::vector<uint8_t>& bytes) {
  DigestOfBytes digest;
  digest.add(bytes.data(), bytes.size());
  return digest.finish();
}

std::vector<uint8_t> some_bytes(size_t size) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 131 + i / 251);
  return bytes;
}

struct TwoArrays final : TrainingState {
  std::vector<float> first = std::vector<float>(3000, 1.5F);
  std::vector<float> second = std::vector<float>(3000, 1.5F);
  std::string rest = "rest";
  bool swapped = false;
  [[nodiscard]] uint64_t gradient_size() const override { return 0; }
  [[nodiscard]] std::vector<StateArray> arrays() override {
    return {{"first", DType::kF32, {3000}, (swapped ? second : first).data()},
            {"second", DType::kF32, {3000}, (swapped ? first : second).data()}};
  }
  void save(std::ostream& out) const override { out << rest; }
  void load(std::istream&) override {}
};

TEST_CASE("the digest of bytes does not depend on how they come, and shares of whole blocks add up to it") {
  CHECK(rc::check([] {
    const std::vector<uint8_t> bytes = some_bytes(*rc::gen::inRange<size_t>(0, 5 * kBlock));
    DigestOfBytes pieces;
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = std::min(bytes.size() - at, *rc::gen::inRange<size_t>(1, 2 * kBlock));
      pieces.add(bytes.data() + at, n);
      at += n;
    }
    RC_ASSERT(pieces.finish() == digest_of(bytes));
    const size_t cut = std::min(bytes.size(), *rc::gen::inRange<size_t>(0, 5) * kBlock);
    DigestOfBytes left;
    left.add(bytes.data(), cut);
    DigestOfBytes right(cut / kBlock);
    right.add(bytes.data() + cut, bytes.size() - cut);
    RC_ASSERT((cut % kBlock != 0 || left.finish() + right.finish() == digest_of(bytes)));
  }));
}

TEST_CASE("every flipped bit of a few blocks changes the digest, and so do blocks that change places") {
  std::vector<uint8_t> bytes = some_bytes(2 * kBlock + 100);
  const uint64_t whole = digest_of(bytes);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ (1U << (bit % 8)));
    REQUIRE(digest_of(bytes) != whole);
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ (1U << (bit % 8)));
  }
  CHECK(digest_of(bytes) == whole);
  std::swap_ranges(bytes.begin(), bytes.begin() + kBlock, bytes.begin() + kBlock);
  CHECK(digest_of(bytes) != whole);
}

TEST_CASE("the digest of a state names its parts and sees arrays that change places, the rest, and the rates") {
  const Accelerator accelerator = test::open_host();
  Stream stream(accelerator, 0);
  TwoArrays program;
  const StateArrays arrays(program);
  const auto now = [&](bool host_visible = true, const std::string& lr = "lr") {
    data::ArrayDigests digests(accelerator, 0, stream, host_visible);
    const StateDigest made = digest_of_state(arrays, program, lr, digests);
    // Of each array the device takes whole blocks, and the rest is copied.
    CHECK(digests.copied_bytes() == (host_visible ? 0 : 2 * (3000 * sizeof(float) % kBlock)));
    return made;
  };
  const StateDigest before = now();
  REQUIRE(before.parts.size() == 4);
  CHECK(before.parts[0].first == "first");
  CHECK(before.parts[2].first == "(rest)");
  CHECK(before.parts[3].first == "(lr)");
  CHECK(now(false).root == before.root);
  CHECK(before.parts[0].second != before.parts[1].second);  // equal bytes under two names
  program.second[7] = 2.5F;
  const StateDigest changed = now();
  CHECK(changed.root != before.root);
  CHECK(changed.parts[0] == before.parts[0]);
  CHECK(changed.parts[1] != before.parts[1]);
  program.swapped = true;
  CHECK(now().root != changed.root);
  program.swapped = false;
  program.rest = "rest\n";
  CHECK(now().parts[2] != changed.parts[2]);
  CHECK(now(true, "other").parts[3] != changed.parts[3]);
}

TEST_CASE("of an array in plain memory the CPU takes the digest, whatever the device is") {
  const Accelerator accelerator = test::open_host();
  Stream stream(accelerator, 0);
  TwoArrays program;
  const StateArrays arrays(program, MemoryCheck(accelerator, 0));
  data::ArrayDigests here(accelerator, 0, stream, true);
  data::ArrayDigests there(accelerator, 0, stream, false);
  CHECK(digest_of_state(arrays, program, "", there).root == digest_of_state(arrays, program, "", here).root);
  CHECK(there.copied_bytes() == 0);  // a device takes whole blocks, and the rest is copied
}

}  // namespace
}  // namespace pliant::elastic
