// Trainee: model and optimizer as the state that Pliant copies to joining workers and keeps in snapshots.
#pragma once

#include <pliant/session.hpp>
#include <pliant/sharded.hpp>
#include <span>
#include <vector>

#include "adamw.hpp"
#include "model.hpp"
#include "settings.hpp"
#include "sharded_model.hpp"

namespace tinylm {

/// AdamW, and how its updates follow what [lr] says.
class Schedule {
 public:
  Schedule(const Settings& settings, size_t weights)
      : adamw_(settings.adamw, weights), warmup_steps_(settings.warmup_steps) {}
  [[nodiscard]] AdamW& adamw() { return adamw_; }
  [[nodiscard]] const AdamW& adamw() const { return adamw_; }
  /// The next update. The rate rises linearly over the first warmup_steps.
  [[nodiscard]] AdamW::Update next(const pliant::Scaling& scaling) const;
  /// All but weights and moments, of a model of so many weights.
  void save(std::ostream& out, uint64_t weights) const;
  /// Also what older snapshots have: weights and moments, which go to `arrays`.
  void load(std::istream& in, uint64_t weights, std::span<const std::span<float>> arrays);

 private:
  AdamW adamw_;
  int64_t warmup_steps_;
};

class Trainee final : public pliant::TrainingState {
 public:
  Trainee(const Settings& settings, uint64_t seed);

  [[nodiscard]] Model& model() { return model_; }
  /// One update with the mean gradient of a step. The rate rises linearly to `learning_rate` over the first
  /// warmup_steps.
  void apply(std::span<const float> gradient, double learning_rate);
  /// The same with what else the rule of [lr] asks of the optimizer.
  void apply(std::span<const float> gradient, const pliant::Scaling& scaling);
  [[nodiscard]] int64_t steps() const { return schedule_.adamw().steps(); }

  [[nodiscard]] uint64_t gradient_size() const override { return model_.parameters().size(); }
  /// Weights and both moments, where they lie.
  [[nodiscard]] std::vector<pliant::StateArray> arrays() override;
  void save(std::ostream& out) const override;
  void load(std::istream& in) override;

 private:
  Model model_;
  Schedule schedule_;
};

/// The same where weights and moments are shards.
class ShardedTrainee final : public pliant::TrainingState {
 public:
  ShardedTrainee(pliant::Session& session, const Settings& settings);

  [[nodiscard]] pliant::ShardedModel& shards() { return shards_; }
  [[nodiscard]] ShardedLm& model() { return model_; }
  void apply(const pliant::Scaling& scaling);
  [[nodiscard]] int64_t steps() const { return schedule_.adamw().steps(); }

  [[nodiscard]] uint64_t gradient_size() const override { return 0; }
  void save(std::ostream& out) const override { schedule_.save(out, model_.weights()); }
  void load(std::istream& in) override { schedule_.load(in, model_.weights(), {}); }

 private:
  pliant::ShardedModel shards_;
  ShardedLm model_;
  Schedule schedule_;
};

}  // namespace tinylm
