// AdamW over one flat array of weights, with the gradient clipped to a norm first.
#pragma once

#include <cstdint>
#include <pliant/optimizer.hpp>
#include <span>
#include <vector>

#include "model.hpp"

namespace tinylm {

class AdamW {
 public:
  struct Options {
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.1;
    double clip_norm = 1.0;  ///< largest Euclidean norm of the gradient; 0 = not clipped
  };

  /// What one update does otherwise than Options say. The betas are those of this update.
  struct Update {
    double learning_rate = 0;
    double beta1 = 0;
    double beta2 = 0;
    double epsilon = 0;
    double weight_decay = 0;
  };

  AdamW(const Options& options, size_t parameters);

  [[nodiscard]] const Options& options() const { return options_; }

  /// Counts one more update and says how it goes, with a gradient of this Euclidean norm. Its decay is that of weights
  /// that decay.
  [[nodiscard]] pliant::AdamWUpdate next(const Update& update, double norm);

  /// One update of the weights, which `parts` cuts up. Same input, same bits on every rank.
  void step(std::span<float> weights, std::span<const float> gradient, std::span<const Parameter> parts,
            const Update& update);
  /// The same with everything but the rate as in Options.
  void step(std::span<float> weights, std::span<const float> gradient, std::span<const Parameter> parts,
            double learning_rate);

  [[nodiscard]] int64_t steps() const { return steps_; }

  /// The state, to be saved and restored. Both moments have as many elements as there are weights.
  [[nodiscard]] std::span<float> first_moment() { return first_; }
  [[nodiscard]] std::span<float> second_moment() { return second_; }
  /// The product of all betas so far is beta^plain times the product of those that were not Options'.
  struct BetaProduct {
    int64_t plain = 0;
    double others = 1;
    [[nodiscard]] double of(double beta) const;
    void add(double beta, double plain_beta);
  };
  [[nodiscard]] const BetaProduct& beta1_product() const { return product1_; }
  [[nodiscard]] const BetaProduct& beta2_product() const { return product2_; }
  void restore(int64_t steps, const BetaProduct& beta1, const BetaProduct& beta2);

 private:
  Options options_;
  int64_t steps_ = 0;
  BetaProduct product1_;
  BetaProduct product2_;
  std::vector<float> first_;
  std::vector<float> second_;
};

}  // namespace tinylm
