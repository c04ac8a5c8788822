// SumRounds: in which order a rank adds up the gradients that it owns, on paper.
//
// In round j each rank has computed its j-th block of rows, or none. The gradient of each of them is an addend, in the
// order of ranks. Fast: one sum, addend after addend. Deterministic: the addends are granules, dealt in turn, and their
// sums follow the binary tree of plan/reduction_tree.hpp, so that a shard needs at most log2(granules) + 1 sums, and
// has the bits that a reduction of whole gradients has.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/reduction_tree.hpp"
#include "pliant/balancer.hpp"

namespace pliant::sharded {

/// What a round does with its addends: the same for every part of the shard.
struct SumRound {
  struct Operation {
    enum Kind { kSet, kAdd, kMerge } kind;  ///< sum = addend; sum += addend; sum += sum `from`
    size_t sum;
    size_t from;  ///< rank of the addend, or a sum
  };
  std::vector<Operation> operations;
  std::vector<bool> adds;  ///< by rank: has an addend

  /// Where the operations end that, from `begin` on, one after the other add to one sum: a device does them at once.
  [[nodiscard]] size_t run_ends(size_t begin) const;
};

class SumRounds {
 public:
  explicit SumRounds(bool deterministic) : deterministic_(deterministic) {}

  /// A step whose blocks are shared out so. Deterministic: by granules, dealt in turn.
  void begin_step(int64_t rows, int64_t granule, const Assignment& assignment);
  /// The next round; there is one more while a rank has a block left. It stays where it is until the next step.
  const SumRound& begin_round();
  /// Of the step.
  [[nodiscard]] size_t rounds() const { return rounds_; }
  /// Sums that the step's rounds so far need at once.
  [[nodiscard]] size_t sums_needed() const { return sums_needed_; }

 private:
  bool deterministic_;
  int64_t granule_ = 1;
  Assignment assignment_;
  size_t rounds_ = 0;
  size_t sums_needed_ = 1;
  size_t round_ = 0;
  TreeStack tree_;
  bool is_begun_ = false;  ///< fast: the sum has an addend
  std::vector<SumRound> of_step_;
};

}  // namespace pliant::sharded
