// The order of additions: a property of the number of granules alone.
#include "plan/reduction_tree.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <rapidcheck.h>

#include <numeric>
#include <string>

#include "pliant/plan.hpp"

namespace pliant {
namespace {

/// The sum over node (level, index) of `granules` as a formula, straight from the definition.
std::string formula(int64_t granules, int64_t level, int64_t index) {
  if (level == 0) return std::to_string(index);
  const std::string left = formula(granules, level - 1, 2 * index);
  if (((2 * index + 1) << (level - 1)) >= granules) return left;
  return "(" + left + "+" + formula(granules, level - 1, 2 * index + 1) + ")";
}

std::string whole_formula(int64_t granules) {
  int64_t top = 0;
  while ((int64_t{1} << top) < granules) ++top;
  return formula(granules, top, 0);
}

std::vector<int64_t> run_of(int64_t first, int64_t count) {
  std::vector<int64_t> granules(static_cast<size_t>(count));
  std::iota(granules.begin(), granules.end(), first);
  return granules;
}

/// The formula that ranks and fold come to when rank r has the granules owned[r].
std::string shared_formula(int64_t granules, const std::vector<std::vector<int64_t>>& owned) {
  const size_t world_size = owned.size();
  std::vector<std::vector<TreeNode>> roots;
  for (const std::vector<int64_t>& own : owned) roots.push_back(subtree_roots(granules, own));
  const FoldPlan plan = tree_fold(granules, roots);
  std::vector<std::string> slots(world_size * static_cast<size_t>(plan.roots_per_rank));
  for (size_t rank = 0; rank < roots.size(); ++rank) {
    for (size_t k = 0; k < roots[rank].size(); ++k) {
      const TreeNode& node = roots[rank][k];
      slots[rank * static_cast<size_t>(plan.roots_per_rank) + k] = formula(granules, node.level, node.index);
    }
  }
  for (const SlotAddition& addition : plan.additions) {
    slots[addition.to] = "(" + slots[addition.to] + "+" + slots[addition.from] + ")";
  }
  return slots[plan.result];
}

/// The same when `world_size` ranks share `granules` in runs.
std::string shared_formula(int64_t granules, int64_t world_size) {
  std::vector<std::vector<int64_t>> owned;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    const RowRange share = share_of(granules, 1, world_size, rank);
    owned.push_back(run_of(share.first, share.count));
  }
  return shared_formula(granules, owned);
}

TEST_CASE("five granules are added as the definition says") {
  CHECK(whole_formula(5) == "(((0+1)+(2+3))+4)");
}

TEST_CASE("every world size comes to the same formula") {
  for (int64_t granules = 1; granules <= 40; ++granules) {
    for (int64_t world_size = 1; world_size <= granules + 2; ++world_size) {
      CAPTURE(granules);
      CAPTURE(world_size);
      CHECK(shared_formula(granules, world_size) == whole_formula(granules));
    }
  }
}

TEST_CASE("every world size comes to the same formula for many granules") {
  const bool held = rc::check([] {
    const auto granules = *rc::gen::inRange<int64_t>(1, 3000);
    RC_ASSERT(shared_formula(granules, *rc::gen::inRange<int64_t>(1, 130)) == whole_formula(granules));
  });
  CHECK(held);
}

TEST_CASE("every assignment comes to the same formula, at every world size") {
  const bool held = rc::check([] {
    const auto granules = *rc::gen::inRange<int64_t>(1, 400);
    const auto world_size = *rc::gen::inRange<size_t>(1, 40);
    std::vector<std::vector<int64_t>> owned(world_size);
    for (int64_t granule = 0; granule < granules; ++granule) {
      owned[*rc::gen::inRange<size_t>(0, world_size)].push_back(granule);
    }
    RC_ASSERT(shared_formula(granules, owned) == whole_formula(granules));
  });
  CHECK(held);
}

TEST_CASE("granules of which no two make a subtree are roots of their own") {
  CHECK(subtree_roots(8, std::vector<int64_t>{0, 2, 5, 7}).size() == 4);
  const auto roots = subtree_roots(8, std::vector<int64_t>{1, 2, 4, 5, 6, 7});
  REQUIRE(roots.size() == 3);
  CHECK(roots[2] == TreeNode{2, 1});
}

TEST_CASE("a rank keeps few subtrees, and no two of them could have been added") {
  const bool held = rc::check([] {
    const auto granules = *rc::gen::inRange<int64_t>(1, 5000);
    const auto first = *rc::gen::inRange<int64_t>(0, granules);
    const auto count = *rc::gen::inRange<int64_t>(0, granules - first + 1);
    const auto roots = subtree_roots(granules, run_of(first, count));
    RC_ASSERT(roots.size() <= 26);  // 2 * log2(5000), rounded up
    for (size_t k = 0; k + 1 < roots.size(); ++k) {
      const bool siblings =
          roots[k].level == roots[k + 1].level && roots[k].index % 2 == 0 && roots[k].index + 1 == roots[k + 1].index;
      RC_ASSERT_FALSE(siblings);
    }
    if (first + count == granules && first == 0) RC_ASSERT(roots.size() == 1);
  });
  CHECK(held);
}

TEST_CASE("no granules have no subtrees") {
  CHECK(subtree_roots(0, {}).empty());
  const FoldPlan plan = tree_fold(0, {{}, {}});
  CHECK(plan.roots_per_rank == 0);
  CHECK(plan.additions.empty());
}

TEST_CASE("without a tree the ranks are added in their order") {
  const FoldPlan plan = rank_order_fold(3);
  CHECK(plan.roots_per_rank == 1);
  REQUIRE(plan.additions.size() == 2);
  CHECK(plan.additions[0].from == 1);
  CHECK(plan.additions[1].from == 2);
  CHECK(plan.result == 0);
}

}  // namespace
}  // namespace pliant
