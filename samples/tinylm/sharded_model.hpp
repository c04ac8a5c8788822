// ShardedLm: the same transformer with its weights in shards. A block's weights are whole only while it computes.
#pragma once

#include <cstdint>
#include <memory>
#include <pliant/sharded.hpp>
#include <span>
#include <vector>

#include "model.hpp"

namespace tinylm {

/// Computes on one thread, and has the bits of Model.
class ShardedLm {
 public:
  /// Adds its parameters and modules to `shards`, which outlives this.
  ShardedLm(pliant::ShardedModel& shards, const ModelShape& shape, uint64_t seed);
  ~ShardedLm();

  /// Inside a pass over so many micro-batches: visits every module forward and backward, once for all of them. Of each
  /// what Model::loss_and_gradient returns; of one without sequences nothing is computed.
  std::vector<double> losses_and_gradients(std::span<const std::vector<Sequence>> micro_batches);
  /// Inside a pass without gradients: visits every module forward, once for all sequences. Of each what Model::loss
  /// returns for it alone; there may be none.
  std::vector<double> losses(std::span<const Sequence> sequences);
  [[nodiscard]] bool decays(pliant::ParameterId parameter) const;
  /// How many there are.
  [[nodiscard]] uint64_t weights() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tinylm
