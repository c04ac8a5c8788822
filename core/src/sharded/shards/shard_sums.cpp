#include "sharded/shards/shard_sums.hpp"

#include <algorithm>

namespace pliant::sharded {

ShardSums::ShardSums(const Accelerator& accelerator, int32_t device, Stream& stream, bool deterministic)
    : SumRounds(deterministic), accelerator_(accelerator), device_(device), work_(accelerator, device, stream) {}

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

void ShardSums::add(const SumRound& round, uint64_t first, uint64_t count, std::span<const float* const> at) {
  for (const SumRound::Operation& operation : round.operations) static_cast<void>(sum(operation.sum));
  if (!is_here()) return add_there(round, first, count, at);
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

void ShardSums::add_there(const SumRound& round, uint64_t first, uint64_t count, std::span<const float* const> at) {
  using Operation = SumRound::Operation;
  for (size_t begin = 0, end = 0; begin < round.operations.size(); begin = end) {
    end = round.run_ends(begin);
    float* const to = sum(round.operations[begin].sum) + first;
    sources_.clear();
    if (round.operations[begin].kind != Operation::kSet) sources_.push_back(to);
    for (size_t i = begin; i < end; ++i) {
      const Operation& one = round.operations[i];
      sources_.push_back(one.kind == Operation::kMerge ? sum(one.from) + first : at[one.from]);
    }
    work_.sum(to, sources_, static_cast<size_t>(count));
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
