#include "sharded/shards/sum_rounds.hpp"

#include <algorithm>
#include <utility>

namespace pliant::sharded {

namespace {

/// With the sum itself not more than pliant_accelerator::reduce_async adds up in one call.
constexpr size_t kMostAtOnce = 1000;

}  // namespace

size_t SumRound::run_ends(size_t begin) const {
  size_t end = begin + 1;
  while (end < operations.size() && end - begin < kMostAtOnce && operations[end].kind != Operation::kSet &&
         operations[end].sum == operations[begin].sum) {
    ++end;
  }
  return end;
}

void SumRounds::begin_step(int64_t rows, int64_t granule, const Assignment& assignment) {
  granule_ = granule;
  assignment_ = assignment;
  rounds_ = 0;
  for (int64_t rank = 0; rank < assignment.world_size(); ++rank) {
    rounds_ = std::max(rounds_, assignment.of(rank).size());
  }
  sums_needed_ = 1;
  round_ = 0;
  tree_ = TreeStack(rows / granule + (rows % granule != 0 ? 1 : 0));
  is_begun_ = false;
  of_step_.clear();
  of_step_.reserve(rounds_);  // rounds stay where they are
}

const SumRound& SumRounds::begin_round() {
  SumRound made;
  const size_t place = round_++;
  struct Addend {
    int64_t granule;
    size_t rank;
  };
  std::vector<Addend> addends;
  for (int64_t rank = 0; rank < assignment_.world_size(); ++rank) {
    const auto blocks = assignment_.of(rank);
    made.adds.push_back(place < blocks.size());
    if (place < blocks.size()) addends.push_back({blocks[place].first / granule_, static_cast<size_t>(rank)});
  }
  // A balancer may have changed who computes which of the round's granules; the tree takes them in their order.
  if (deterministic_) {
    std::sort(addends.begin(), addends.end(),
              [](const Addend& left, const Addend& right) { return left.granule < right.granule; });
  }
  for (const auto& [granule, addend] : addends) {
    using Operation = SumRound::Operation;
    if (!deterministic_) {
      made.operations.push_back({std::exchange(is_begun_, true) ? Operation::kAdd : Operation::kSet, 0, addend});
      continue;
    }
    const TreeNode leaf{0, granule};
    size_t depth = tree_.nodes().size();
    bool is_added = tree_.merges(leaf);
    made.operations.push_back(is_added ? Operation{Operation::kAdd, depth - 1, addend}
                                       : Operation{Operation::kSet, depth, addend});
    if (!is_added) ++depth;
    tree_.push(leaf, [&] {
      if (std::exchange(is_added, false)) return;
      --depth;
      made.operations.push_back({Operation::kMerge, depth - 1, depth});
    });
  }
  for (const SumRound::Operation& one : made.operations) sums_needed_ = std::max(sums_needed_, one.sum + 1);
  of_step_.push_back(std::move(made));
  return of_step_.back();
}

}  // namespace pliant::sharded
