// LearningRate: the configured chain of rules, applied to the size of each batch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "pliant/batches.hpp"
#include "pliant/config.hpp"

namespace pliant {

/// What the optimizer is to do at one step. A factor of 1 changes nothing.
struct Scaling {
  double learning_rate = 0;            ///< to use as it is
  double scheduled_learning_rate = 0;  ///< what it would be at the base batch
  double learning_rate_factor = 1;     ///< what the batch made of it
  double one_minus_beta1 = 1;          ///< factor of 1 - beta1, with SGD of 1 - momentum
  double one_minus_beta2 = 1;
  double epsilon = 1;          ///< factor
  double weight_decay = 1;     ///< factor of the coefficient, before it is multiplied with the rate
  double ema_power = 1;        ///< decay of an average of the weights: decay ^ ema_power
  double momentum_buffer = 1;  ///< factor of the first moment, once, before this step
  double second_moment = 1;    ///< factor of the second moment, likewise
  double progress = 0;         ///< what the step adds to progress, in the configured unit

  /// 1 - factor * (1 - beta): what a beta becomes. Exactly `beta` at factor 1.
  [[nodiscard]] static double beta(double beta, double factor) { return factor == 1 ? beta : 1 - factor * (1 - beta); }
};

/// Squared norms of the gradients of one step, for rules that live on them. Norms that are not finite count as none.
struct GradientNorms {
  int64_t parts = 0;      ///< gradients that were added: micro-batches, granules or ranks; at least 2
  double small_norm = 0;  ///< mean over the parts of the squared norm of their mean gradient, weighted with their sizes
  double big_norm = 0;    ///< squared norm of the mean gradient of the whole batch
};

class LearningRate {
 public:
  /// `config` was opened with the need "lr". `mean_batch`: what base_batch = 0 stands for, in the configured unit's
  /// field. Throws kFailedPrecondition (kInput) when a rule is not valid for [lr] optimizer, with the rule's reason.
  LearningRate(const Config& config, const BatchSize& mean_batch);
  ~LearningRate();
  LearningRate(LearningRate&&) noexcept;
  LearningRate& operator=(LearningRate&&) noexcept;

  /// Throws what the constructor throws about the rules themselves, so that it is known before a worker starts. Nothing
  /// when `config` was opened without "lr".
  static void check(const Config& config);

  /// What optimizer update `step` (0-based) over a batch of `size` asks for. `base_lr` replaces [lr] base_lr when > 0,
  /// so that a schedule can run underneath. Changes no state. Throws when a rule refuses or its answer is not finite
  /// (kPlugin). Where no step was ever committed, progress counts as `step` base batches.
  [[nodiscard]] Scaling scaling(int64_t step, const BatchSize& size, double base_lr = 0) const;
  /// Its learning rate alone.
  [[nodiscard]] double at(int64_t step, const BatchSize& size, double base_lr = 0) const;

  /// The step became final: moves progress and the state of the rules. Once for each step, in order; the arguments are
  /// those of scaling(). Not needed where no rule has state or runs on progress. Throws kFailedPrecondition for a step
  /// that was committed before, and what a rule refuses; the object is of no use after that.
  void commit(int64_t step, const BatchSize& size, const std::optional<GradientNorms>& norms = std::nullopt,
              double base_lr = 0);

  /// True when a rule of the chain lives on GradientNorms.
  [[nodiscard]] bool wants_gradient_norms() const;
  /// True when a rule of the chain needs set_job_length() before the first scaling().
  [[nodiscard]] bool wants_job_length() const;
  void set_job_length(const JobLength& length);

  /// State of the chain, for snapshots. load replaces all of it, or throws and changes nothing.
  [[nodiscard]] std::string save() const;
  void load(const std::string& saved);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pliant
