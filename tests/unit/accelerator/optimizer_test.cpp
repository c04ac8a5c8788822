// What optimizers compute on the processors: the same bits with every instruction set, in every division into shards.
#include "pliant/optimizer.hpp"

#include <doctest/doctest.h>

#include <bit>

#include "optimizer_fused.hpp"
#include "optimizer_work.hpp"
#include "pliant/error.hpp"
#include "pliant/sdk/optimizer_arithmetic.hpp"
#include "wrapper.hpp"

using pliant::AdamWUpdate;
using pliant::kNormChunk;
using pliant::NormTree;
using pliant::sdk::Instructions;
using pliant::test::Arrays;
using pliant::test::error_of;
using pliant::test::expected_adamw;
using pliant::test::expected_node;
using pliant::test::expected_norms;
using pliant::test::same_bits;
using pliant::test::some_arrays;
using pliant::test::some_update;

namespace {

constexpr Instructions kAll[] = {Instructions::kEveryMachine, Instructions::kAvx2, Instructions::kAvx512};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

pliant_adamw_update as_abi(const AdamWUpdate& u) {
  return {sizeof(pliant_adamw_update), u.gradient_scale, u.beta1, u.beta2, u.rate, u.correction, u.epsilon, u.decay};
}

pliant::sdk::AdamWArrays as_sdk(const pliant::AdamWArrays& a) {
  return {a.weights, a.gradient, a.first_moment, a.second_moment, a.count};
}

uint32_t bits_of(float value) {
  return std::bit_cast<uint32_t>(value);
}

int levels_of(size_t chunks) {
  int levels = 0;
  while ((size_t{1} << levels) < chunks) ++levels;
  return levels;
}

}  // namespace

TEST_CASE("AdamW gives the bits of its formula with every instruction set that this processor has") {
  for (const size_t count : {0U, 1U, 7U, 8U, 31U, 100U, 1024U, 4099U}) {
    const Arrays given = some_arrays(count, 3);
    Arrays expected = given;
    for (int step = 0; step < 3; ++step) expected_adamw(some_update(), expected.whole());
    for (const Instructions instructions : kAll) {
      if (!pliant::sdk::has(instructions)) continue;
      CAPTURE(count);
      CAPTURE(static_cast<int>(instructions));
      Arrays updated = given;
      for (int step = 0; step < 3; ++step)
        pliant::sdk::adamw_with(instructions, as_abi(some_update()), as_sdk(updated.whole()));
      CHECK(same_bits(updated, expected));
    }
  }
}

#ifdef __x86_64__
TEST_CASE("AdamW fuses no operations where the file that includes it may") {
  if (__builtin_cpu_supports("avx2") == 0 || __builtin_cpu_supports("fma") == 0) return;
  for (const bool avx2 : {false, true}) {
    Arrays updated = some_arrays(1000, 21);
    Arrays expected = updated;
    expected_adamw(some_update(), expected.whole());
    float* const arrays[] = {updated.all[0].data(), updated.all[1].data(), updated.all[2].data(),
                             updated.all[3].data()};
    pliant::test::adamw_where_fused(avx2, as_abi(some_update()), arrays, updated.size());
    CHECK(same_bits(updated, expected));
  }
}
#endif

TEST_CASE("an AdamW update in shards gives the bits of the whole, wherever the shards begin") {
  const Arrays given = some_arrays(1000, 5);
  Arrays whole = given;
  adamw(some_update(), whole.whole());
  for (const size_t shard : {1U, 3U, 13U, 64U, 333U, 999U}) {
    CAPTURE(shard);
    Arrays cut = given;
    for (size_t first = 0; first < cut.size(); first += shard)
      adamw(some_update(), cut.part(first, std::min(shard, cut.size() - first)));
    CHECK(same_bits(cut, whole));
  }
}

TEST_CASE("an AdamW update leaves alone what lies beside its arrays") {
  Arrays all = some_arrays(100, 7);
  const Arrays before = all;
  adamw(some_update(), all.part(33, 18));
  for (size_t array = 0; array < 4; ++array) {
    for (size_t i = 0; i < all.size(); ++i) {
      const bool updated = array != 1 && i >= 33 && i < 51;
      if (!updated) CHECK(bits_of(all.all[array][i]) == bits_of(before.all[array][i]));
    }
  }
}

TEST_CASE("a NaN or an infinity of the gradient stays in its element") {
  Arrays all = some_arrays(64, 9);
  Arrays clean = all;
  all.all[1][5] = kNan;
  all.all[1][40] = kInfinity;
  adamw(some_update(), all.whole());
  adamw(some_update(), clean.whole());
  CHECK(std::isnan(all.all[0][5]));
  CHECK(std::isnan(all.all[0][40]));  // infinity / infinity
  for (const size_t i : {size_t{5}, size_t{40}}) {
    for (size_t array = 0; array < 4; ++array) all.all[array][i] = clean.all[array][i];
  }
  CHECK(same_bits(all, clean));
}

TEST_CASE("squared norms of chunks have one order with every instruction set, and any tail") {
  for (const size_t count : {0U, 1U, 31U, 32U, 33U, 1023U, 1024U, 1025U, 2048U, 5000U}) {
    const std::vector<float> values = some_arrays(count, 11).all[1];
    const std::vector<double> expected = expected_norms(values);
    for (const Instructions instructions : kAll) {
      if (!pliant::sdk::has(instructions)) continue;
      CAPTURE(count);
      std::vector<double> made(expected.size() + 1, -1);
      pliant::sdk::squared_norms_with(instructions, made.data(), values.data(), count);
      CHECK(made.back() == -1);
      made.pop_back();
      CHECK(made == expected);
    }
  }
}

TEST_CASE("the squared norm of a chunk is finite exactly where all its elements are") {
  for (const float bad : {kInfinity, -kInfinity, kNan}) {
    for (const size_t at : {0U, 1000U, 1023U, 1024U, 2047U, 2100U}) {
      std::vector<float> values(2101, std::numeric_limits<float>::max());
      values[at] = bad;
      std::vector<double> made(3);
      pliant::squared_norms(made.data(), values.data(), values.size());
      for (size_t chunk = 0; chunk < made.size(); ++chunk) CHECK(std::isfinite(made[chunk]) == (chunk != at / 1024));
    }
  }
}

TEST_CASE("chunks are added along the tree over all of them, whoever collected them") {
  for (size_t count = 0; count <= 40; ++count) {
    CAPTURE(count);
    const std::vector<double> chunks = expected_norms(some_arrays(count * kNormChunk, 13).all[0]);
    REQUIRE(chunks.size() == count);
    const double expected = count == 0 ? 0 : expected_node(chunks, levels_of(count), 0);
    for (const size_t ranks : {1U, 2U, 3U, 7U}) {
      NormTree tree;
      for (size_t rank = 0; rank < ranks; ++rank) {
        const size_t first = count * rank / ranks;
        tree.add(std::span(chunks).subspan(first, count * (rank + 1) / ranks - first));
      }
      CHECK(tree.sum() == expected);
    }
  }
}

TEST_CASE("the squared norm of an array is that of its chunks along the tree") {
  const std::vector<float> values = some_arrays(200'003, 17).all[0];
  const std::vector<double> chunks = expected_norms(values);
  CHECK(pliant::squared_norm(values) == expected_node(chunks, levels_of(chunks.size()), 0));
  double plain = 0;
  for (const float value : values) plain += double{value} * double{value};
  CHECK(pliant::squared_norm(values) == doctest::Approx(plain).epsilon(1e-12));
  CHECK(pliant::squared_norm({}) == 0);
}

TEST_CASE("the chunks of several parameters begin with each of them") {
  const std::vector<float> values = some_arrays(5000, 19).all[0];
  const std::vector<uint64_t> parts{10, 0, 2000, 1024, 1966};
  std::vector<double> chunks;
  size_t first = 0;
  for (const uint64_t part : parts) {
    const std::vector<double> of_part = expected_norms(std::span(values).subspan(first, part));
    chunks.insert(chunks.end(), of_part.begin(), of_part.end());
    first += part;
  }
  CHECK(chunks.size() == 6);
  CHECK(pliant::squared_norm(values, parts) == expected_node(chunks, levels_of(chunks.size()), 0));
}

TEST_CASE("parts that are not the array are refused") {
  const std::vector<float> values(10);
  const auto refusal = [&](std::vector<uint64_t> parts) {
    const auto error = error_of([&] { static_cast<void>(pliant::squared_norm(values, parts)); });
    REQUIRE(error);
    CHECK(error->status() == pliant::Status::kInvalidArgument);
    return error->message();
  };
  CHECK(refusal({4, 7}) == "part 1 of an array has 7 elements, but 6 of its 10 are left");
  CHECK(refusal({~uint64_t{0}}) == "part 0 of an array has 18446744073709551615 elements, but 10 of its 10 are left");
  CHECK(refusal({4, 5}) == "the parts of an array of 10 elements do not cover the last 1");
  CHECK(refusal({}) == "the parts of an array of 10 elements do not cover the last 10");
}
