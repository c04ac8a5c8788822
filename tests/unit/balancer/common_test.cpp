// What every balancer keeps to: each block has a rank, counts are equal where they must be, the order of the input does
// not decide.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <string>

#include "common/dealing.hpp"
#include "common/differencing.hpp"
#include "common/longest_first.hpp"

namespace pliant::balancer {
namespace {

/// All balancers by name. The first ones give equal counts.
struct Named {
  std::string name;
  Ranks ranks;
};
std::vector<Named> all_of(Costs costs, int64_t world_size) {
  return {{"runs", deal_runs(costs.size(), world_size)},
          {"in turn", deal_in_turn(costs.size(), world_size)},
          {"sorted", deal_sorted(costs, world_size, 0)},
          {"sorted in windows", deal_sorted(costs, world_size, 3)},
          {"longest first, equal counts", longest_first(costs, world_size, true)},
          {"differencing, equal counts", largest_differencing(costs, world_size, true)},
          {"longest first", longest_first(costs, world_size, false)},
          {"differencing", largest_differencing(costs, world_size, false)}};
}
constexpr size_t kWithEqualCounts = 6;

std::vector<int64_t> counts_of(const Ranks& ranks, int64_t world_size) {
  std::vector<int64_t> counts(static_cast<size_t>(world_size));
  for (const int32_t rank : ranks) ++counts[static_cast<size_t>(rank)];
  return counts;
}

std::vector<int64_t> any_costs(size_t most) {
  const auto count = *rc::gen::inRange<size_t>(0, most);
  const auto highest = *rc::gen::element<int64_t>(1, 3, 100, 1000000, int64_t{1} << 40);
  return *rc::gen::container<std::vector<int64_t>>(count, rc::gen::inRange<int64_t>(0, highest));
}

TEST_CASE("every block goes to one of the ranks, and counts differ by at most one where they are to be equal") {
  const bool held = rc::check([] {
    const std::vector<int64_t> costs = any_costs(200);
    const auto world_size = *rc::gen::inRange<int64_t>(1, 40);
    const auto all = all_of(costs, world_size);
    for (size_t i = 0; i < all.size(); ++i) {
      RC_TAG(all[i].name);
      RC_ASSERT(all[i].ranks.size() == costs.size());
      for (const int32_t rank : all[i].ranks) RC_ASSERT((rank >= 0 && rank < world_size));
      if (i >= kWithEqualCounts) continue;
      const auto counts = counts_of(all[i].ranks, world_size);
      const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
      RC_ASSERT(*most - *least <= 1);
    }
  });
  CHECK(held);
}

TEST_CASE("no blocks and more ranks than blocks are shared out, too") {
  for (const Named& one : all_of({}, 3)) {
    CAPTURE(one.name);
    CHECK(one.ranks.empty());
  }
  const std::vector<int64_t> costs{7, 7, 9};
  for (const Named& one : all_of(costs, 50)) {
    CAPTURE(one.name);
    for (const int64_t count : counts_of(one.ranks, 50)) CHECK(count <= 1);
  }
}

TEST_CASE("runs follow each other and the first ranks have the larger ones") {
  CHECK(deal_runs(7, 3) == Ranks{0, 0, 0, 1, 1, 2, 2});
  CHECK(deal_in_turn(7, 3) == Ranks{0, 1, 2, 0, 1, 2, 0});
}

TEST_CASE("sorted dealing gives each rank one of each group of like blocks, the costliest to the idlest") {
  const std::vector<int64_t> costs{1, 10, 2, 9, 3, 8};
  const Ranks ranks = deal_sorted(costs, 2, 0);
  CHECK(ranks[1] == 0);  // 10 and 9: the first two
  CHECK(ranks[3] == 1);
  CHECK(ranks[5] == 1);  // 8 to the rank that has 9
  CHECK(ranks[4] == 0);
  CHECK(ranks[2] == 0);  // 17 against 13: 2 to the latter
  CHECK(ranks[0] == 1);
}

TEST_CASE("a window is shared out evenly by itself") {
  const bool held = rc::check([] {
    const std::vector<int64_t> costs = any_costs(150);
    const auto world_size = *rc::gen::inRange<int64_t>(1, 9);
    const auto window = *rc::gen::inRange<int64_t>(1, 6);
    const Ranks ranks = deal_sorted(costs, world_size, window);
    const auto width = static_cast<size_t>(world_size * window);
    for (size_t first = 0; first + width <= ranks.size(); first += width) {
      const Ranks own(ranks.begin() + static_cast<std::ptrdiff_t>(first),
                      ranks.begin() + static_cast<std::ptrdiff_t>(first + width));
      for (const int64_t count : counts_of(own, world_size)) RC_ASSERT(count == window);
    }
  });
  CHECK(held);
}

TEST_CASE("a window as long as the batch, and longer, is the whole batch") {
  const std::vector<int64_t> costs{5, 1, 4, 2, 3, 9, 9};
  CHECK(deal_sorted(costs, 2, 4) == deal_sorted(costs, 2, 0));
  CHECK(deal_sorted(costs, 2, int64_t{1} << 20) == deal_sorted(costs, 2, 0));
}

TEST_CASE("equal costs are dealt in the order of the batch, the same every time") {
  const std::vector<int64_t> costs(10, 4);
  CHECK(longest_first(costs, 3, true) == Ranks{0, 1, 2, 0, 1, 2, 0, 1, 2, 0});
  CHECK(deal_sorted(costs, 3, 0) == Ranks{0, 1, 2, 0, 1, 2, 0, 1, 2, 0});
  CHECK(largest_differencing(costs, 3, true) == largest_differencing(costs, 3, true));
}

TEST_CASE("the known example of differencing comes out as in the literature") {
  // 8, 7, 6, 5, 4 in two: differencing leaves a difference of 2, longest first one of 4.
  const std::vector<int64_t> costs{8, 7, 6, 5, 4};
  auto differencing = loads(costs, largest_differencing(costs, 2, false), 2);
  std::sort(differencing.begin(), differencing.end());
  CHECK(differencing == std::vector<int64_t>{14, 16});
  auto longest = loads(costs, longest_first(costs, 2, false), 2);
  std::sort(longest.begin(), longest.end());
  CHECK(longest == std::vector<int64_t>{13, 17});
}

TEST_CASE("costs as large as their sum may be do not overflow") {
  const std::vector<int64_t> costs{INT64_MAX / 4, INT64_MAX / 4, INT64_MAX / 4, INT64_MAX / 4};
  for (const Named& one : all_of(costs, 2)) {
    CAPTURE(one.name);
    const auto sums = loads(costs, one.ranks, 2);
    CHECK(sums[0] == sums[1]);
  }
}

}  // namespace
}  // namespace pliant::balancer
