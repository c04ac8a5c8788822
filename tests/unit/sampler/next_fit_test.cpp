// Next fit over many stretches at once against the loop over sequences, on sets where guesses do and do not come true.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "../plugins/sampler/common/counted_rows.hpp"
#include "../plugins/sampler/common/next_fit.hpp"
#include "packing_oracle.hpp"

using namespace pliant;
using namespace pliant::test;

namespace {

constexpr int64_t kHuge = int64_t{1} << 62U;

std::vector<uint64_t> offsets_of(const Packs& packs) {
  std::vector<uint64_t> offsets{0};
  for (const auto& pack : packs) offsets.push_back(offsets.back() + pack.size());
  return offsets;
}

void check_next_fit(const std::vector<int32_t>& sizes, int64_t budget, size_t most) {
  CAPTURE(sizes.size());
  CAPTURE(budget);
  CAPTURE(most);
  const std::vector<uint64_t> expected = offsets_of(next_fit_by_loop(sizes, budget, most));
  for (const size_t threads : {1U, 2U, 3U, 8U}) {
    sampler::CountedRows rows;
    rows.threads = threads;
    sampler::next_fit(sizes, budget, most, threads, rows.bits);
    REQUIRE(rows.row_count() == expected.size() - 1);
    std::vector<uint64_t> offsets(expected.size());
    std::vector<int64_t> ids(sizes.size());
    rows.write(0, rows.row_count(), offsets.data(), ids.data());
    REQUIRE(offsets == expected);
    std::vector<int64_t> all(sizes.size());
    std::iota(all.begin(), all.end(), int64_t{0});
    REQUIRE(ids == all);
  }
}

std::vector<int32_t> drawn(size_t n, int32_t most, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<int32_t> sizes(n);
  for (int32_t& size : sizes) size = 1 + static_cast<int32_t>(engine() % static_cast<uint32_t>(most));
  return sizes;
}

}  // namespace

TEST_CASE("next fit ends packs where the loop does, around the sizes of its words, stretches and threads") {
  for (const size_t n : {0U, 1U, 2U, 63U, 64U, 65U, 4095U, 4096U, 4097U, 16383U, 16384U, 16385U, 16449U, 65535U, 65536U,
                         131071U, 262144U, 262145U}) {
    for (const size_t most : {0U, 1U, 3U}) check_next_fit(drawn(n, 30, 1), 40, most);
  }
}

TEST_CASE("next fit ends packs where the loop does for budgets from 1 to 2 to the power of 62") {
  constexpr int32_t kLongest = std::numeric_limits<int32_t>::max();
  check_next_fit(std::vector<int32_t>(300000, 1), 1, 0);
  for (const int64_t budget : {int64_t{2}, int64_t{1000}, int64_t{100000}, int64_t{1} << 30U, int64_t{kLongest},
                               int64_t{kLongest} + 1, int64_t{1} << 40U, kHuge}) {
    for (const size_t most : {size_t{0}, size_t{7}, size_t{1} << 40U}) {
      check_next_fit(drawn(300000, static_cast<int32_t>(std::min<int64_t>(budget, 3)), 2), budget, most);
      check_next_fit(drawn(300000, static_cast<int32_t>(std::min<int64_t>(budget, kLongest)), 3), budget, most);
    }
  }
}

TEST_CASE("next fit ends packs where the loop does when no guess ever comes true") {
  // Equal sizes: packs that begin at another sequence never meet the true ones.
  for (const int32_t size : {1, 3, 7}) check_next_fit(std::vector<int32_t>(262144 + 5, size), 50, 0);
  // Packs of 3, 5 and 7 sequences by turns of a size that keeps every phase apart.
  std::vector<int32_t> turns;
  while (turns.size() < 270000) turns.insert(turns.end(), {4, 4, 5, 4, 4, 5, 4});
  for (const int64_t budget : {13, 17, 100}) check_next_fit(turns, budget, 0);
  // A pack that is longer than a stretch, and guesses that come true at its very end.
  std::vector<int32_t> late(262144, 1);
  late.back() = 100000;
  check_next_fit(late, 100000, 0);
  check_next_fit(std::vector<int32_t>(262144, 1), 262144, 0);
  check_next_fit(std::vector<int32_t>(262144, 1), 1000, 999);
}

TEST_CASE("rows of a plan are the same in portions of any size, back and forth") {
  const std::vector<int32_t> sizes = drawn(50000, 30, 4);
  const std::vector<uint64_t> expected = offsets_of(next_fit_by_loop(sizes, 90, 0));
  sampler::CountedRows rows;
  sampler::next_fit(sizes, 90, 0, 1, rows.bits);
  std::mt19937 engine(5);
  for (int round = 0; round < 2000; ++round) {
    const uint64_t first = engine() % (rows.row_count() + 1);
    const uint64_t count = std::min<uint64_t>(engine() % (round % 10 == 0 ? 5000 : 40), rows.row_count() - first);
    std::vector<uint64_t> offsets(count + 1);
    std::vector<int64_t> ids(expected[first + count] - expected[first] + 1, -1);
    rows.write(first, count, offsets.data(), nullptr);
    REQUIRE(offsets.back() == ids.size() - 1);
    rows.write(first, count, offsets.data(), ids.data());
    std::vector<uint64_t> part(expected.begin() + static_cast<std::ptrdiff_t>(first),
                               expected.begin() + static_cast<std::ptrdiff_t>(first + count + 1));
    for (uint64_t& offset : part) offset -= expected[first];
    REQUIRE(offsets == part);
    std::vector<int64_t> all(ids.size());
    std::iota(all.begin(), all.end(), static_cast<int64_t>(expected[first]));
    all.back() = -1;
    REQUIRE(ids == all);
  }
}
