// Reduction tree: the fixed binary tree over the granules of a global batch, which decides every addition's order.
//
// Node (level l, index i) covers granules [i*2^l, (i+1)*2^l), cut at the number of granules. A node whose right half
// lies wholly behind the end is its left child.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pliant {

struct TreeNode {
  int32_t level = 0;
  int64_t index = 0;
  bool operator==(const TreeNode&) const = default;
};

/// Subtrees in granule order that are waiting for their neighbours.
class TreeStack {
 public:
  /// `granules` >= 0: of the whole batch.
  explicit TreeStack(int64_t granules = 0) : granules_(granules) {}

  /// True when `node` is the right sibling of the last subtree, which is then what it must be added to.
  [[nodiscard]] bool merges(const TreeNode& node) const {
    return !nodes_.empty() && node.index % 2 == 1 && nodes_.back() == TreeNode{node.level, node.index - 1};
  }
  /// Appends a subtree. `add_last` is called for every addition that has become possible: last but one += last, drop
  /// last.
  template <class AddLast>
  void push(const TreeNode& node, AddLast&& add_last) {
    nodes_.push_back(rise(node));
    while (nodes_.size() > 1 && last_two_are_siblings()) {
      add_last();
      nodes_.pop_back();
      nodes_.back() = rise({nodes_.back().level + 1, nodes_.back().index / 2});
    }
  }
  [[nodiscard]] const std::vector<TreeNode>& nodes() const { return nodes_; }

 private:
  /// The topmost node that is the same sum as `node`.
  [[nodiscard]] TreeNode rise(TreeNode node) const {
    while (node.index > 0 && node.index % 2 == 0 && ((node.index + 1) << node.level) >= granules_) {
      node = {node.level + 1, node.index / 2};
    }
    return node;
  }
  [[nodiscard]] bool last_two_are_siblings() const {
    const TreeNode& left = nodes_[nodes_.size() - 2];
    const TreeNode& right = nodes_.back();
    return left.level == right.level && right.index % 2 == 1 && left.index == right.index - 1;
  }

  int64_t granules_;
  std::vector<TreeNode> nodes_;
};

/// The largest subtrees of `granules` whose granules are all in `owned` (ascending), in order. Runs of granules have
/// few; scattered ones have one each.
std::vector<TreeNode> subtree_roots(int64_t granules, std::span<const int64_t> owned);

/// Slot `to` += slot `from`.
struct SlotAddition {
  size_t to = 0;
  size_t from = 0;
};

/// How the subtrees of all ranks become one sum.
struct FoldPlan {
  int64_t roots_per_rank = 0;           ///< the most that any rank has
  std::vector<SlotAddition> additions;  ///< in order; root k of rank r is slot r * roots_per_rank + k
  size_t result = 0;                    ///< the slot that holds the sum in the end
};

/// `roots[r]`: subtree_roots of rank r. Together they cover all granules, each once.
FoldPlan tree_fold(int64_t granules, const std::vector<std::vector<TreeNode>>& roots);
/// One slot a rank, added in rank order.
FoldPlan rank_order_fold(int64_t world_size);

}  // namespace pliant
