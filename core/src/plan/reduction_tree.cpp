// Reduction tree: which subtrees a share holds and how those of all ranks are added.
#include "plan/reduction_tree.hpp"

#include <algorithm>

namespace pliant {

namespace {

/// A subtree, and where its sum arrives.
struct Root {
  TreeNode node;
  size_t slot = 0;
  [[nodiscard]] int64_t first_granule() const { return node.index << node.level; }
};

std::vector<Root> in_granule_order(const std::vector<std::vector<TreeNode>>& roots, int64_t roots_per_rank) {
  std::vector<Root> all;
  for (size_t rank = 0; rank < roots.size(); ++rank) {
    for (size_t k = 0; k < roots[rank].size(); ++k) {
      all.push_back({roots[rank][k], rank * static_cast<size_t>(roots_per_rank) + k});
    }
  }
  std::sort(all.begin(), all.end(), [](const Root& a, const Root& b) { return a.first_granule() < b.first_granule(); });
  return all;
}

}  // namespace

std::vector<TreeNode> subtree_roots(int64_t granules, std::span<const int64_t> owned) {
  TreeStack stack(granules);
  for (const int64_t granule : owned) stack.push({0, granule}, [] {});
  return stack.nodes();
}

FoldPlan tree_fold(int64_t granules, const std::vector<std::vector<TreeNode>>& roots) {
  FoldPlan plan;
  for (const auto& of_rank : roots) {
    plan.roots_per_rank = std::max(plan.roots_per_rank, static_cast<int64_t>(of_rank.size()));
  }
  TreeStack stack(granules);
  std::vector<size_t> slots;
  for (const Root& root : in_granule_order(roots, plan.roots_per_rank)) {
    slots.push_back(root.slot);
    stack.push(root.node, [&plan, &slots] {
      const size_t from = slots.back();
      slots.pop_back();
      plan.additions.push_back({slots.back(), from});
    });
  }
  if (!slots.empty()) plan.result = slots.front();
  return plan;
}

FoldPlan rank_order_fold(int64_t world_size) {
  FoldPlan plan;
  plan.roots_per_rank = 1;
  for (int64_t rank = 1; rank < world_size; ++rank) plan.additions.push_back({0, static_cast<size_t>(rank)});
  return plan;
}

}  // namespace pliant
