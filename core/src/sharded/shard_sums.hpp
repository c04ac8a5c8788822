// ShardSums: the gradients that a rank owns, added up over the ranks and rounds of a step.
//
// In round j each rank has computed its j-th block of rows, or none. The gradient of each of them is an addend, in the
// order of ranks. Fast: one sum, addend after addend. Deterministic: the addends are granules, dealt in turn, and their
// sums follow the binary tree of plan/reduction_tree.hpp, so that a shard needs at most log2(granules) + 1 sums, and
// has the bits that a reduction of whole gradients has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "accelerator/device_sums.hpp"
#include "plan/reduction_tree.hpp"
#include "pliant/accelerator.hpp"
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
};

class ShardSums {
 public:
  /// `stream` outlives this.
  ShardSums(const Accelerator& accelerator, int32_t device, Stream& stream, bool deterministic);

  /// Of `elements` of the flat space; whatever was there is zero.
  void resize(uint64_t elements);
  /// A step whose blocks are shared out so. Deterministic: by granules, dealt in turn.
  void begin_step(int64_t rows, int64_t granule, const Assignment& assignment);
  /// The next round; there is one more while a rank has a block left.
  const SumRound& begin_round();
  [[nodiscard]] size_t rounds() const { return rounds_; }

  /// Adds the addends of a part of the shard: `at[rank]` is that of the rank, for those that have one.
  void add(const SumRound& round, uint64_t first, uint64_t count, std::span<const float* const> at);
  /// What is done there is done on the calling thread, or enqueued.
  [[nodiscard]] bool is_here() const { return work_.is_here(); }
  [[nodiscard]] bool finite(const float* values, uint64_t count) { return work_.finite(values, count); }
  /// to[i] = from[i], which are of `type`; likewise.
  void cast(float* to, const void* from, DType type, uint64_t count) { work_.cast(to, from, type, count); }

  /// After the last round: the sum over the step, of all elements; zeros where nothing was added, as to what is frozen.
  [[nodiscard]] float* total();
  [[nodiscard]] uint64_t bytes() const;

 private:
  float* sum(size_t number);

  Accelerator accelerator_;
  int32_t device_;
  bool deterministic_;
  uint64_t elements_ = 0;
  std::vector<Buffer> sums_;
  int64_t granule_ = 1;
  Assignment assignment_;
  size_t rounds_ = 0;
  size_t round_ = 0;
  TreeStack tree_;
  bool is_begun_ = false;  ///< fast: the sum has an addend
  std::vector<SumRound> of_step_;
  detail::DeviceSums work_;
};

}  // namespace pliant::sharded
