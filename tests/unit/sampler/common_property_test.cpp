// What samplers share for packing against loops over sequences and brute force, on random sizes.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "../plugins/sampler/common/best_fit.hpp"
#include "../plugins/sampler/common/fast_shuffle.hpp"
#include "../plugins/sampler/common/length_sort.hpp"
#include "../plugins/sampler/common/lower_bound.hpp"
#include "packing_oracle.hpp"

namespace common_property_test {

using namespace pliant;
using namespace pliant::test;

namespace {

struct Sizes {
  int64_t budget = 0;
  size_t most = 0;
  std::vector<int32_t> sizes;
};

Sizes random_sizes(size_t count, int64_t highest_budget) {
  Sizes made;
  made.budget = *rc::gen::inRange<int64_t>(1, highest_budget);
  made.most = *rc::gen::inRange<int>(0, 2) == 0 ? 0 : *rc::gen::inRange<size_t>(1, 6);
  const auto n = *rc::gen::inRange<size_t>(0, count);
  made.sizes =
      *rc::gen::container<std::vector<int32_t>>(n, rc::gen::inRange<int32_t>(1, static_cast<int32_t>(made.budget) + 1));
  return made;
}

/// The sizes in each pack of a plan, in descending order.
Packs packs_of(const sampler::PackPlan& plan, const std::vector<int64_t>& values) {
  Packs packs;
  for (const auto& group : plan.groups) {
    std::vector<int64_t> pack;
    for (uint32_t p = group.begin; p < group.end; ++p) {
      pack.insert(pack.end(), plan.parts[p].times, values[plan.parts[p].group]);
    }
    packs.insert(packs.end(), group.count, pack);
  }
  return packs;
}

/// Rooms left, sorted: what two best fits with other choices among equally full packs have in common.
std::vector<int64_t> rooms_of(const Packs& packs, int64_t budget) {
  std::vector<int64_t> rooms;
  for (const auto& pack : packs) rooms.push_back(budget - std::accumulate(pack.begin(), pack.end(), int64_t{0}));
  std::sort(rooms.begin(), rooms.end());
  return rooms;
}

template <class Index>
void check_best_fit(const Sizes& asked) {
  const sampler::ByValue sorted = sampler::group_by_value(asked.sizes);
  std::vector<uint64_t> counts;
  for (size_t g = 0; g < sorted.groups(); ++g) counts.push_back(sorted.count(g));
  const auto plan = sampler::detail::best_fit_decreasing<Index>(sorted.values, counts, asked.budget, asked.most);
  const Packs packs = packs_of(plan, sorted.values);
  RC_ASSERT(packs.size() == plan.packs);
  std::vector<int64_t> used;
  for (const auto& pack : packs) {
    RC_ASSERT(std::accumulate(pack.begin(), pack.end(), int64_t{0}) <= asked.budget);
    RC_ASSERT(asked.most == 0 || pack.size() <= asked.most);
    used.insert(used.end(), pack.begin(), pack.end());
  }
  std::sort(used.begin(), used.end());
  std::vector<int64_t> given(asked.sizes.begin(), asked.sizes.end());
  std::sort(given.begin(), given.end());
  RC_ASSERT(used == given);
  RC_ASSERT(plan.packs >= sampler::fewest_packs(sorted.values, counts, asked.budget, asked.most));
  if (asked.most != 0) return;  // which of two equally full packs is taken then matters for what follows
  RC_ASSERT(rooms_of(packs, asked.budget) ==
            rooms_of(best_fit_by_loop(asked.sizes, asked.budget, asked.most), asked.budget));
}

}  // namespace

TEST_CASE("best fit by counting leaves the rooms that best-fit-decreasing sequence by sequence leaves") {
  CHECK(rc::check([] { check_best_fit<sampler::BitmapIndex>(random_sizes(200, 60)); }));
  CHECK(rc::check([] { check_best_fit<sampler::BitmapIndex>(random_sizes(60, 5000)); }));
  CHECK(rc::check([] { check_best_fit<sampler::MapIndex>(random_sizes(200, 60)); }));
}

TEST_CASE("the lower bound is never above the fewest packs that there can be") {
  CHECK(rc::check([] {
    const Sizes asked = random_sizes(9, 40);
    const sampler::ByValue sorted = sampler::group_by_value(asked.sizes);
    std::vector<uint64_t> counts;
    for (size_t g = 0; g < sorted.groups(); ++g) counts.push_back(sorted.count(g));
    const uint64_t bound = sampler::fewest_packs(sorted.values, counts, asked.budget, asked.most);
    const size_t fewest = fewest_by_trying(asked.sizes, asked.budget, asked.most);
    RC_TAG(bound == fewest);
    RC_ASSERT(bound <= fewest);
    const auto total = std::accumulate(asked.sizes.begin(), asked.sizes.end(), int64_t{0});
    RC_ASSERT(static_cast<int64_t>(bound) >= (total + asked.budget - 1) / asked.budget);
  }));
}

TEST_CASE("the lower bound sees that two sequences of each length leave no room for a third, whatever else is there") {
  const std::vector<int64_t> values{1, 11};
  const std::vector<uint64_t> counts{1, 9};
  CHECK(sampler::fewest_packs(values, counts, 30, 0) == 5);
  CHECK(sampler::fewest_packs(values, counts, 30, 1) == 10);
}

TEST_CASE("values are grouped in ascending order, positions stay in order, in each of the ways to sort them") {
  using Sort = std::function<void(std::span<const int32_t>, sampler::ByValue&)>;
  const auto most = [](std::span<const int32_t> values) {
    return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
  };
  const Sort counted = [&](auto values, auto& sorted) { sampler::detail::count_sort(values, most(values), 1, sorted); };
  const Sort by_digits = [&](auto values, auto& sorted) { sampler::detail::radix_sort(values, most(values), sorted); };
  const Sort compared = [](auto values, auto& sorted) { sampler::detail::compare_sort(values, sorted); };
  sampler::ByValue sorted;
  CHECK(rc::check([&](const std::vector<uint32_t>& drawn, bool wide) {
    std::vector<int32_t> values;
    for (const uint32_t one : drawn) values.push_back(static_cast<int32_t>(wide ? one >> 1U : one % 50));
    std::vector<uint32_t> expected(values.size());
    std::iota(expected.begin(), expected.end(), 0U);
    std::stable_sort(expected.begin(), expected.end(), [&](uint32_t a, uint32_t b) { return values[a] < values[b]; });
    for (const Sort& sort : wide ? std::vector{by_digits, compared} : std::vector{counted, by_digits, compared}) {
      sorted.restart(values.size());
      sort(values, sorted);
      RC_ASSERT(std::equal(expected.begin(), expected.end(), sorted.positions.get()));
      RC_ASSERT(sorted.begins.back() == values.size());
      for (size_t g = 0; g < sorted.groups(); ++g) {
        RC_ASSERT(sorted.count(g) > 0);
        for (uint64_t i = sorted.begins[g]; i < sorted.begins[g + 1]; ++i) {
          RC_ASSERT(values[sorted.positions[i]] == sorted.values[g]);
        }
      }
    }
  }));
}

TEST_CASE("the fast shuffle permutes, the same for one key and another way for another") {
  for (const size_t n : {size_t{0}, size_t{1}, size_t{2}, size_t{1000}, size_t{200000}}) {
    CAPTURE(n);
    const auto shuffled = [&](uint64_t seed, uint64_t epoch) {
      std::vector<uint32_t> items(n);
      std::iota(items.begin(), items.end(), 0U);
      sampler::KeyedRandom random(seed, epoch, 1);
      sampler::fast_shuffle(items, random);
      return items;
    };
    const auto items = shuffled(7, 0);
    CHECK(shuffled(7, 0) == items);
    if (n > 2) {
      CHECK(shuffled(8, 0) != items);
      CHECK(shuffled(7, 1) != items);
    }
    auto sorted = items;
    std::sort(sorted.begin(), sorted.end());
    std::vector<uint32_t> all(n);
    std::iota(all.begin(), all.end(), 0U);
    CHECK(sorted == all);
  }
}

}  // namespace common_property_test
