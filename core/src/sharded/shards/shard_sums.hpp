// ShardSums: the gradients that a rank owns, added up over the ranks and rounds of a step as SumRounds says.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "accelerator/device_sums.hpp"
#include "pliant/accelerator.hpp"
#include "sharded/shards/sum_rounds.hpp"

namespace pliant::sharded {

/// With memory for them.
class ShardSums : private SumRounds {
 public:
  /// `stream` outlives this.
  ShardSums(const Accelerator& accelerator, int32_t device, Stream& stream, bool deterministic);

  /// Of `elements` of the flat space; whatever was there is zero.
  void resize(uint64_t elements);
  using SumRounds::begin_round;
  using SumRounds::begin_step;
  using SumRounds::rounds;

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
  /// On the device, as few calls as there are runs.
  void add_there(const SumRound& round, uint64_t first, uint64_t count, std::span<const float* const> at);

  Accelerator accelerator_;
  int32_t device_;
  uint64_t elements_ = 0;
  std::vector<Buffer> sums_;
  std::vector<const void*> sources_;  ///< in add_there()
  detail::DeviceSums work_;
};

}  // namespace pliant::sharded
