// Reduction tree: which subtrees a share holds and how those of all ranks are added.
#include "elastic/reduction_tree.hpp"

#include <algorithm>

namespace pliant::elastic {

std::vector<TreeNode> subtree_roots(int64_t granules, int64_t first, int64_t count) {
  TreeStack stack(granules);
  for (int64_t granule = first; granule < first + count; ++granule) stack.push({0, granule}, [] {});
  return stack.nodes();
}

FoldPlan tree_fold(int64_t granules, const std::vector<std::vector<TreeNode>>& roots) {
  FoldPlan plan;
  for (const auto& of_rank : roots) {
    plan.roots_per_rank = std::max(plan.roots_per_rank, static_cast<int64_t>(of_rank.size()));
  }
  TreeStack stack(granules);
  std::vector<size_t> slots;
  for (size_t rank = 0; rank < roots.size(); ++rank) {
    for (size_t k = 0; k < roots[rank].size(); ++k) {
      slots.push_back(rank * static_cast<size_t>(plan.roots_per_rank) + k);
      stack.push(roots[rank][k], [&plan, &slots] {
        const size_t from = slots.back();
        slots.pop_back();
        plan.additions.push_back({slots.back(), from});
      });
    }
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

}  // namespace pliant::elastic
