// Trainee: model and optimizer as the state that Pliant copies to joining workers and keeps in snapshots.
#pragma once

#include <pliant/session.hpp>
#include <span>
#include <vector>

#include "adamw.hpp"
#include "model.hpp"
#include "settings.hpp"

namespace tinylm {

class Trainee final : public pliant::TrainingState {
 public:
  Trainee(const Settings& settings, uint64_t seed);

  [[nodiscard]] Model& model() { return model_; }
  /// One update with the mean gradient of a step. The rate rises linearly to `learning_rate` over the first
  /// warmup_steps.
  void apply(std::span<const float> gradient, double learning_rate);
  /// The same with what else the rule of [lr] asks of the optimizer.
  void apply(std::span<const float> gradient, const pliant::Scaling& scaling);
  [[nodiscard]] int64_t steps() const { return adamw_.steps(); }

  [[nodiscard]] uint64_t gradient_size() const override { return model_.parameters().size(); }
  [[nodiscard]] std::vector<uint64_t> gradient_parts() const override;
  /// Weights and both moments, where they lie.
  [[nodiscard]] std::vector<pliant::StateArray> arrays() override;
  void save(std::ostream& out) const override;
  void load(std::istream& in) override;

 private:
  Model model_;
  AdamW adamw_;
  int64_t warmup_steps_;
};

}  // namespace tinylm
