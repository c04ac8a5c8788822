// The random order of best_fit's packs and sequences: every outcome about as often, whatever the number of threads.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <span>

#include "../plugins/sampler/common/best_fit_rows.hpp"
#include "packing_oracle.hpp"

using namespace pliant;

namespace {

void plan(sampler::BestFitRows& rows, const std::vector<int32_t>& sizes, int64_t budget, size_t most, size_t threads) {
  rows.threads = threads;
  sampler::group_by_value(sizes, budget, threads, rows.sorted);
  std::vector<uint64_t> counts;
  for (size_t g = 0; g < rows.sorted.groups(); ++g) counts.push_back(rows.sorted.count(g));
  rows.plan = sampler::best_fit_decreasing(rows.sorted.values, counts, budget, most);
}

enum class Order { kEach, kBlocks, kPlanned };

struct Written {
  std::vector<uint64_t> offsets;
  std::vector<int64_t> ids;
  bool operator==(const Written&) const = default;
};
Written written(sampler::BestFitRows& rows, uint64_t first, uint64_t count) {
  Written got;
  got.offsets.resize(count + 1);
  rows.write(first, count, got.offsets.data(), nullptr);
  got.ids.resize(got.offsets.back());
  std::vector<uint64_t> again(count + 1);
  rows.write(first, count, again.data(), got.ids.data());
  CHECK(again == got.offsets);
  return got;
}
Written written(sampler::BestFitRows& rows) {
  return written(rows, 0, rows.row_count());
}

std::vector<int32_t> drawn(size_t n, uint32_t most) {
  std::mt19937 engine(9);
  std::vector<int32_t> sizes(n);
  for (int32_t& size : sizes) size = 1 + static_cast<int32_t>(engine() % most);
  return sizes;
}

/// Chi-squared of the counts less its mean, in standard deviations.
double excess(const std::map<std::vector<int64_t>, int>& seen, size_t outcomes, double draws) {
  const double each = draws / static_cast<double>(outcomes);
  double sum = static_cast<double>(outcomes - seen.size()) * each;
  for (const auto& [outcome, count] : seen) sum += (count - each) * (count - each) / each;
  const double freedom = static_cast<double>(outcomes) - 1;
  return (sum - freedom) / std::sqrt(2 * freedom);
}

}  // namespace

TEST_CASE("every order of packs and every choice among sequences of one size is about equally likely") {
  // Two packs 5 + 3 and one of 4: 3! orders of packs, 2! * 2! choices, less the 2! by which the like packs are the
  // same.
  const std::vector<int32_t> sizes{5, 5, 3, 3, 4};
  std::map<std::vector<int64_t>, int> seen;
  constexpr int kDraws = 24000;
  for (int draw = 0; draw < kDraws; ++draw) {
    sampler::BestFitRows rows;
    plan(rows, sizes, 8, 0, 1);
    rows.order_at_random({static_cast<uint64_t>(draw), 3}, sampler::Shuffled::kBlocks);
    ++seen[written(rows).ids];
  }
  CHECK(seen.size() == 12);
  CHECK(std::abs(excess(seen, 12, kDraws)) < 5);
}

TEST_CASE("every order of four items is about equally likely, and so is every place in a large shuffle") {
  std::map<std::vector<int64_t>, int> seen;
  for (uint64_t seed = 0; seed < 24000; ++seed) {
    std::vector<uint32_t> items{0, 1, 2, 3};
    sampler::KeyedRandom random(seed, 0, 1);
    sampler::fast_shuffle(items, random);
    ++seen[std::vector<int64_t>(items.begin(), items.end())];
  }
  CHECK(seen.size() == 24);
  CHECK(std::abs(excess(seen, 24, 24000)) < 5);
  for (const size_t n : {size_t{4096}, size_t{300000}}) {
    constexpr size_t kCells = 16;
    std::map<std::vector<int64_t>, int> cells;
    std::vector<uint32_t> items(n);
    for (uint64_t seed = 0; seed < 3; ++seed) {
      std::iota(items.begin(), items.end(), 0U);
      sampler::KeyedRandom random(seed, 1, 1);
      sampler::fast_shuffle(items, random);
      for (size_t i = 0; i < n; ++i) {
        ++cells[{static_cast<int64_t>(i * kCells / n), static_cast<int64_t>(items[i] * kCells / n)}];
      }
    }
    CHECK(std::abs(excess(cells, kCells * kCells, 3.0 * static_cast<double>(n))) < 6);
  }
}

TEST_CASE("a shuffle of blocks keeps neighbours together and has every order of blocks about equally often") {
  constexpr uint32_t kBlock = sampler::kShuffledBlock;
  std::map<std::vector<int64_t>, int> seen;
  std::vector<uint32_t> items(4 * kBlock);
  for (uint64_t seed = 0; seed < 24000; ++seed) {
    std::iota(items.begin(), items.end(), 0U);
    sampler::KeyedRandom random(seed, 0, 1);
    sampler::fast_shuffle_blocks(items, random);
    std::vector<int64_t> order;
    for (size_t at = 0; at < items.size(); at += kBlock) {
      order.push_back(items[at] / kBlock);
      bool together = items[at] % kBlock == 0;
      for (uint32_t i = 1; i < kBlock; ++i) together &= items[at + i] == items[at] + i;
      REQUIRE(together);
    }
    ++seen[order];
  }
  CHECK(seen.size() == 24);
  CHECK(std::abs(excess(seen, 24, 24000)) < 5);
}

TEST_CASE("a shuffle of blocks moves each item, and the last that make no block, to every place about equally often") {
  for (const size_t n : {size_t{3 * sampler::kShuffledBlock + 5}, size_t{64}, size_t{7}}) {
    std::map<std::vector<int64_t>, int> places;
    std::vector<uint32_t> items(n);
    constexpr int kDraws = 40000;
    for (uint64_t seed = 0; seed < kDraws; ++seed) {
      std::iota(items.begin(), items.end(), 0U);
      sampler::KeyedRandom random(seed, 2, 1);
      sampler::fast_shuffle_blocks(items, random);
      // The last item: any place, or without a rest its own place in any block.
      ++places[{std::find(items.begin(), items.end(), n - 1) - items.begin()}];
      std::vector<uint32_t> sorted = items;
      std::sort(sorted.begin(), sorted.end());
      for (uint32_t i = 0; i < n; ++i) REQUIRE(sorted[i] == i);
    }
    const size_t whole = n / sampler::kShuffledBlock;
    CHECK(places.size() == (n % sampler::kShuffledBlock == 0 ? whole : n));
    CHECK(std::abs(excess(places, places.size(), kDraws)) < 5);
  }
}

TEST_CASE("random numbers and places are the same with AVX2 and without") {
  if (!sampler::detail::has_avx2()) return;
  constexpr size_t kDraws = sampler::detail::kDraws;
  sampler::detail::GeneratorWords one{};
  std::mt19937 engine(12);
  for (auto& word : one) std::generate(word.begin(), word.end(), std::ref(engine));
  auto other = one;
  std::array<uint32_t, kDraws> draws{};
  std::array<uint32_t, kDraws> again{};
  std::array<uint32_t, kDraws> places{};
  std::array<uint32_t, kDraws> same_places{};
  size_t unsure = 0;
  for (int round = 0; round < 2000; ++round) {
    sampler::detail::draw_words(one, draws.data());
    sampler::detail::draw_words_avx2(other, again.data());
    REQUIRE(draws == again);
    REQUIRE(one == other);
    const size_t count = 1 + engine() % kDraws;
    const auto left = static_cast<uint32_t>(std::max<size_t>(count + 1, engine() >> engine() % 32U));
    const std::span some = std::span<const uint32_t>(draws).last(count);
    const bool is_sure = sampler::detail::find_places(some, left, places.data());
    REQUIRE(is_sure == sampler::detail::find_places_avx2(some, left, same_places.data()));
    REQUIRE(places == same_places);
    unsure += is_sure ? 0 : 1;
  }
  CHECK(unsure > 0);
  CHECK(unsure < 2000);
}

TEST_CASE("the number of heads among many coins is binomial, and no coin is counted twice") {
  sampler::KeyedRandom random(5, 0, 1);
  CHECK(random.heads(0) == 0);
  for (const uint64_t coins : {uint64_t{1}, uint64_t{31}, uint64_t{32}, uint64_t{33}, uint64_t{100000}}) {
    CAPTURE(coins);
    constexpr int kRounds = 4000;
    double sum = 0;
    double squares = 0;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t heads = random.heads(coins);
      REQUIRE(heads <= coins);
      const double off = static_cast<double>(heads) - static_cast<double>(coins) / 2;
      sum += off;
      squares += off * off;
    }
    const double variance = static_cast<double>(coins) / 4;
    CHECK(std::abs(sum / kRounds) < 5 * std::sqrt(variance / kRounds));
    // A sum of squares of nearly normal numbers has twice the square of their variance for its own.
    CHECK(std::abs(squares / kRounds - variance) < 5 * variance * std::sqrt(2.0 / kRounds));
  }
}

TEST_CASE("ones are counted the same with POPCNT and without") {
  if (!sampler::detail::has_avx2()) return;
  std::mt19937 engine(3);
  std::vector<uint32_t> words(300);
  for (uint32_t& word : words) word = static_cast<uint32_t>(engine());
  for (size_t count = 0; count <= words.size(); ++count) {
    const std::span<const uint32_t> some(words.data(), count);
    REQUIRE(sampler::detail::count_ones(some) == sampler::detail::count_ones_popcnt(some));
  }
}

TEST_CASE("packs of a group are spread over buckets and places evenly") {
  sampler::BestFitRows rows;
  constexpr size_t kPacks = 400000;
  std::vector<int32_t> sizes(kPacks, 10);
  std::fill(sizes.begin(), sizes.begin() + kPacks / 2, 9);
  plan(rows, sizes, 10, 0, 1);
  rows.order_at_random({1, 2}, sampler::Shuffled::kEach);
  const Written got = written(rows);
  constexpr size_t kCells = 64;
  std::map<std::vector<int64_t>, int> cells;
  for (size_t i = 0; i < got.ids.size(); ++i) {
    const auto kind = static_cast<int64_t>(got.ids[i] < static_cast<int64_t>(kPacks / 2) ? 0 : 1);
    ++cells[{static_cast<int64_t>(i * kCells / got.ids.size()), kind}];
  }
  CHECK(std::abs(excess(cells, 2 * kCells, static_cast<double>(got.ids.size()))) < 6);
}

TEST_CASE("the rows of best_fit are the same for every number of threads, in portions, and back and forth") {
  struct Set {
    std::vector<int32_t> sizes;
    int64_t budget;
    size_t most;
  };
  std::vector<int32_t> two_kinds(150000, 1);
  two_kinds.resize(300000, 700);
  std::vector<int32_t> wide = drawn(70000, 60000);
  for (const Set& set : {Set{drawn(300000, 500), 512, 0}, Set{drawn(300000, 500), 8192, 3}, Set{drawn(131073, 2), 7, 0},
                         Set{two_kinds, 100000, 0}, Set{two_kinds, int64_t{1} << 62U, 0}, Set{wide, 60000, 0},
                         Set{drawn(600000, 3), 60000, 0}, Set{{5}, 5, 0}, Set{{}, 5, 0}}) {
    CAPTURE(set.sizes.size());
    CAPTURE(set.budget);
    for (const auto order : {Order::kEach, Order::kBlocks, Order::kPlanned}) {
      sampler::BestFitRows rows;
      const auto make = [&](size_t threads) {
        plan(rows, set.sizes, set.budget, set.most, threads);
        if (order == Order::kPlanned) {
          rows.order_as_planned();
        } else {
          rows.order_at_random({7, 8}, order == Order::kEach ? sampler::Shuffled::kEach : sampler::Shuffled::kBlocks);
        }
        return written(rows);
      };
      const Written all = make(1);
      std::vector<int64_t> once = all.ids;
      std::sort(once.begin(), once.end());
      std::vector<int64_t> every(set.sizes.size());
      std::iota(every.begin(), every.end(), int64_t{0});
      REQUIRE(once == every);
      for (size_t row = 0; row + 1 < all.offsets.size(); ++row) {
        int64_t sum = 0;
        for (uint64_t i = all.offsets[row]; i < all.offsets[row + 1]; ++i) {
          sum += set.sizes[static_cast<size_t>(all.ids[i])];
        }
        const bool fits = sum <= set.budget && (set.most == 0 || all.offsets[row + 1] - all.offsets[row] <= set.most);
        if (!fits) FAIL_CHECK("row ", row, " is above its limits");
      }
      for (const size_t threads : {2U, 3U, 5U, 8U}) CHECK(make(threads) == all);
      std::mt19937 engine(11);
      for (int round = 0; round < 60; ++round) {
        const uint64_t first = engine() % (rows.row_count() + 1);
        const uint64_t count = std::min<uint64_t>(engine() % 60000, rows.row_count() - first);
        const Written some = written(rows, first, count);
        REQUIRE(std::equal(some.ids.begin(), some.ids.end(),
                           all.ids.begin() + static_cast<std::ptrdiff_t>(all.offsets[first])));
        bool same = true;
        for (uint64_t i = 0; i <= count; ++i) same &= some.offsets[i] == all.offsets[first + i] - all.offsets[first];
        REQUIRE(same);
      }
    }
  }
}
