// LearningRate: the configured rule, applied to the size of each batch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "pliant/batches.hpp"
#include "pliant/config.hpp"

namespace pliant {

class LearningRate {
 public:
  /// `config` was opened with needs.lr. `mean_batch`: what base_batch = 0 stands for, in the configured unit's field.
  LearningRate(const Config& config, const BatchSize& mean_batch);
  ~LearningRate();
  LearningRate(LearningRate&&) noexcept;
  LearningRate& operator=(LearningRate&&) noexcept;

  /// Rate of optimizer update `step` (0-based) over a batch of `size`. `base_lr` replaces [lr] base_lr when > 0, so
  /// that a schedule can run underneath. Throws when the rule refuses or its answer is not finite (exit 3).
  [[nodiscard]] double at(int64_t step, const BatchSize& size, double base_lr = 0);

  /// State of the rule, for snapshots.
  [[nodiscard]] std::string save() const;
  void load(const std::string& saved);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pliant
