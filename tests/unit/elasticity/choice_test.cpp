// The search of `exact` where brute force is too slow: its two ways to sieve, its two widths, its window.
#include <doctest/doctest.h>

#include <algorithm>

#include "../plugins/elasticity/exact/choice.hpp"
#include "../plugins/elasticity/exact/idle_time.hpp"
#include "plan_cases.hpp"

using namespace pliant::elasticity;

namespace {

/// In granules; to be compared with what is searched in larger units.
std::vector<WeightedPeriod> periods_of(const WasteSearch& search) {
  std::vector<WeightedPeriod> periods;
  for (int64_t size = search.low; size <= search.high; size += search.step) {
    periods.push_back({size * search.granules_at_once, 1});
  }
  return periods;
}

std::vector<WeightedSize> listed(const WasteSearch& search, int64_t weight) {
  std::vector<WeightedSize> sizes;
  for (int64_t size = search.low; size <= search.high; size += search.step) sizes.push_back({size, weight});
  return sizes;
}

WasteSearch any_search(cases::Random& random, int64_t most) {
  WasteSearch search;
  search.most_granules = random.in(1, most);
  search.step = random.in(1, std::min<int64_t>(search.most_granules, 8));
  search.low = search.step * random.in(1, std::min<int64_t>(search.most_granules / search.step, 40));
  search.high = search.low + search.step * random.in(0, 600);
  search.high = std::min(search.high, search.most_granules / search.step * search.step);
  search.granules_at_once = random.one_in(2) ? 1 : random.in(1, 30);
  search.fewest_granules = random.in(search.low, search.most_granules);
  return search;
}

}  // namespace

TEST_CASE("a range of sizes is searched as a list of them is, at any width") {
  cases::Random random(2);
  for (int i = 0; i < 1500; ++i) {
    WasteSearch search = any_search(random, random.one_in(2) ? 400 : 20'000);
    const auto range = least_waste(search);
    search.weighted = listed(search, 1);
    const auto list = least_waste(search);
    search.weighted = listed(search, int64_t{1} << 50);  // past 64 bits
    const auto wide = least_waste(search);
    REQUIRE(range->granules == list->granules);
    REQUIRE((range->idle == list->idle));
    REQUIRE(range->granules == wide->granules);
    REQUIRE((wide->idle >> 50U == list->idle));
  }
}

TEST_CASE("half of the batches and the multiples of the common divisor are enough") {
  cases::Random random(3);
  for (int i = 0; i < 300; ++i) {
    WasteSearch search = any_search(random, 900);
    const std::vector<WeightedPeriod> periods = periods_of(search);
    Waste best;
    for (int64_t g = search.fewest_granules; g <= search.most_granules; ++g) {
      const Waste here{g, idle_at(g, periods)};
      if (best.granules == 0 || compare(here, best) <= 0) best = here;
    }
    REQUIRE(least_waste(search)->granules == best.granules);
  }
}

TEST_CASE("idle time by the values of a quotient is idle time by every period") {
  cases::Random random(4);
  for (int i = 0; i < 3000; ++i) {
    const int64_t first = random.in(1, 200);
    const PeriodRange range{first, first + random.in(0, 500)};
    std::vector<WeightedPeriod> list;
    for (int64_t n = range.first; n <= range.last; ++n) list.push_back({n, 1});
    const int64_t g = random.in(1, int64_t{1} << random.in(0, 40));
    REQUIRE((idle_at(g, range) == idle_at(g, list)));
  }
}

TEST_CASE("beyond the window the best of the largest batches is taken") {
  cases::Random random(5);
  for (const int64_t most : {int64_t{1'000'000'007}, int64_t{1} << 40, (int64_t{1} << 62) - 1}) {
    WasteSearch search;
    search.most_granules = most;
    search.high = 3000;
    search.fewest_granules = 3000;
    const auto found = least_waste(search);
    CHECK(found->granules > most - kMostBatches);
    for (int i = 0; i < 300; ++i) {
      const int64_t g = most - random.in(0, kMostBatches - 1);
      REQUIRE(compare(*found, {g, idle_at(g, PeriodRange{1, 3000})}) <= 0);
    }
  }
}

TEST_CASE("where more would have to be tried than is affordable the largest batch is taken") {
  WasteSearch search;
  search.most_granules = int64_t{1} << 62;
  search.high = int64_t{1} << 31;
  CHECK(least_waste(search)->granules == search.most_granules);
}

TEST_CASE("a batch past 63 bits of periods is refused") {
  WasteSearch search;
  search.most_granules = INT64_MAX;
  search.high = int64_t{1} << 32;
  search.granules_at_once = int64_t{1} << 31;
  CHECK_FALSE(least_waste(search).has_value());
}
