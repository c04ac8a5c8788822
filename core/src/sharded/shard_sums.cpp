#include "sharded/shard_sums.hpp"

#include <algorithm>
#include <utility>

namespace pliant::sharded {

ShardSums::ShardSums(const Accelerator& accelerator, int32_t device, Stream& stream, bool deterministic)
    : accelerator_(accelerator), device_(device), deterministic_(deterministic), work_(accelerator, device, stream) {}

void ShardSums::resize(uint64_t elements) {
  work_.finish();
  sums_.clear();
  elements_ = elements;
}

float* ShardSums::sum(size_t number) {
  while (sums_.size() <= number) {
    sums_.emplace_back(accelerator_, device_, elements_ * sizeof(float));
    // Nobody adds to what is frozen.
    work_.zero(static_cast<float*>(sums_.back().pointer()), elements_);
  }
  return static_cast<float*>(sums_[number].pointer());
}

void ShardSums::begin_step(int64_t rows, int64_t granule, const Assignment& assignment) {
  granule_ = granule;
  assignment_ = assignment;
  rounds_ = 0;
  for (int64_t rank = 0; rank < assignment.world_size(); ++rank) {
    rounds_ = std::max(rounds_, assignment.of(rank).size());
  }
  round_ = 0;
  tree_ = TreeStack(rows / granule + (rows % granule != 0 ? 1 : 0));
  is_begun_ = false;
  of_step_.clear();
  of_step_.reserve(rounds_);  // rounds stay where they are
}

const SumRound& ShardSums::begin_round() {
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
  of_step_.push_back(std::move(made));
  return of_step_.back();
}

void ShardSums::add(const SumRound& round, uint64_t first, uint64_t count, std::span<const float* const> at) {
  for (const SumRound::Operation& operation : round.operations) static_cast<void>(sum(operation.sum));
  // Block by block, so that sums and addends stay in the cache where the CPU adds.
  const size_t all = static_cast<size_t>(count);
  for (size_t begin = 0, block = work_.block(all); begin < all; begin += block) {
    const size_t several = std::min(block, all - begin);
    for (const SumRound::Operation& operation : round.operations) {
      float* const to = sum(operation.sum) + first + begin;
      switch (operation.kind) {
        case SumRound::Operation::kSet:
          work_.copy(to, at[operation.from] + begin, several * sizeof(float));
          break;
        case SumRound::Operation::kAdd:
          work_.add(to, at[operation.from] + begin, several);
          break;
        case SumRound::Operation::kMerge:
          work_.add(to, sum(operation.from) + first + begin, several);
          break;
      }
    }
  }
}

float* ShardSums::total() {
  return sum(0);
}

uint64_t ShardSums::bytes() const {
  uint64_t bytes = 0;
  for (const Buffer& one : sums_) bytes += one.bytes();
  return bytes;
}

}  // namespace pliant::sharded
