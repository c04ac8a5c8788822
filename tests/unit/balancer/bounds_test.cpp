// How far from the best partition the balancers may end, with the best one found by trying all.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <limits>

#include "common/dealing.hpp"
#include "common/differencing.hpp"
#include "common/longest_first.hpp"

namespace pliant::balancer {
namespace {

/// The least possible largest load, by trying every partition; `most_blocks` on one rank.
class BestPartition {
 public:
  BestPartition(Costs costs, size_t ranks, size_t most_blocks)
      : costs_(costs), most_blocks_(most_blocks), load_(ranks), count_(ranks) {
    place(0, 0);
  }
  [[nodiscard]] int64_t largest() const { return best_; }

 private:
  void place(size_t block, int64_t largest) {
    if (largest >= best_) return;
    if (block == costs_.size()) {
      best_ = largest;
      return;
    }
    for (size_t rank = 0; rank < load_.size(); ++rank) {
      if (count_[rank] == most_blocks_) continue;
      load_[rank] += costs_[block];
      ++count_[rank];
      place(block + 1, std::max(largest, load_[rank]));
      load_[rank] -= costs_[block];
      --count_[rank];
      if (count_[rank] == 0) break;  // all empty ranks are alike
    }
  }

  Costs costs_;
  size_t most_blocks_;
  std::vector<int64_t> load_;
  std::vector<size_t> count_;
  int64_t best_ = std::numeric_limits<int64_t>::max();
};

int64_t largest_load(Costs costs, const Ranks& ranks, int64_t world_size) {
  const auto sums = loads(costs, ranks, world_size);
  return *std::max_element(sums.begin(), sums.end());
}

struct Case {
  std::vector<int64_t> costs;
  int64_t world_size = 1;
};

Case any_case() {
  const auto count = *rc::gen::inRange<size_t>(1, 11);
  const auto highest = *rc::gen::element<int64_t>(4, 12, 50, 10000);
  return {*rc::gen::container<std::vector<int64_t>>(count, rc::gen::inRange<int64_t>(0, highest)),
          *rc::gen::inRange<int64_t>(1, 6)};
}

TEST_CASE("longest first and differencing keep within 4/3 - 1/(3m) of the best partition, differencing in two 7/6") {
  const bool held = rc::check([] {
    const Case c = any_case();
    const int64_t m = c.world_size;
    const int64_t best = BestPartition(c.costs, static_cast<size_t>(m), c.costs.size()).largest();
    const int64_t longest = largest_load(c.costs, longest_first(c.costs, m, false), m);
    const int64_t differencing = largest_load(c.costs, largest_differencing(c.costs, m, false), m);
    RC_ASSERT(longest >= best);
    RC_ASSERT(differencing >= best);
    RC_ASSERT(3 * m * longest <= (4 * m - 1) * best);
    RC_ASSERT(3 * m * differencing <= (4 * m - 1) * best);
    if (m == 2) RC_ASSERT(6 * differencing <= 7 * best);
  });
  CHECK(held);
}

TEST_CASE("the bound of longest first is reached by its known worst case") {
  for (const int64_t m : {2, 3, 4}) {
    // 2m - 1, 2m - 1, 2m - 2, 2m - 2, ..., m + 1, m + 1, m, m, m: the best is 3m, longest first needs 4m - 1.
    std::vector<int64_t> costs;
    for (int64_t cost = 2 * m - 1; cost > m; --cost) costs.insert(costs.end(), 2, cost);
    costs.insert(costs.end(), 3, m);
    CHECK(BestPartition(costs, static_cast<size_t>(m), costs.size()).largest() == 3 * m);
    CHECK(largest_load(costs, longest_first(costs, m, false), m) == 4 * m - 1);
  }
}

TEST_CASE("with equal counts the work of the busiest rank stays below 5/3 of the best such partition") {
  const bool held = rc::check([] {
    const Case c = any_case();
    const int64_t m = c.world_size;
    const auto most = (c.costs.size() + static_cast<size_t>(m) - 1) / static_cast<size_t>(m);
    const int64_t best = BestPartition(c.costs, static_cast<size_t>(m), most).largest();
    for (const Ranks& ranks :
         {longest_first(c.costs, m, true), largest_differencing(c.costs, m, true), deal_sorted(c.costs, m, 0)}) {
      const int64_t largest = largest_load(c.costs, ranks, m);
      RC_ASSERT(largest >= BestPartition(c.costs, static_cast<size_t>(m), c.costs.size()).largest());
      RC_ASSERT(3 * largest <= 5 * best);
    }
  });
  CHECK(held);
}

TEST_CASE("many blocks of like cost come out almost even") {
  std::vector<int64_t> costs;
  for (int64_t i = 0; i < 4096; ++i) costs.push_back(1000 + (i * 7919) % 997);
  const int64_t mean = loads(costs, Ranks(costs.size(), 0), 1)[0] / 64;
  CHECK(largest_load(costs, largest_differencing(costs, 64, true), 64) <= mean + 2);
  CHECK(largest_load(costs, largest_differencing(costs, 64, false), 64) <= mean + 2);
  CHECK(largest_load(costs, longest_first(costs, 64, true), 64) <= mean + 40);
  CHECK(largest_load(costs, deal_sorted(costs, 64, 0), 64) <= mean + 40);
}

}  // namespace
}  // namespace pliant::balancer
