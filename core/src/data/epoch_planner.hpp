// EpochPlanner: an instance of a sampler, and the one epoch that it holds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.hpp"
#include "data/epoch_plan.hpp"
#include "data/row_source.hpp"
#include "plugin/plugin.hpp"

namespace pliant::data {

class EpochPlanner {
 public:
  /// `streams`: rows are streamed where the sampler can. Fails where its extension is broken.
  static Result<std::unique_ptr<EpochPlanner>> make(plugin::Instance instance, bool streams);
  EpochPlanner(const EpochPlanner&) = delete;
  EpochPlanner& operator=(const EpochPlanner&) = delete;

  [[nodiscard]] const plugin::Instance& instance() const { return instance_; }
  [[nodiscard]] const Sampler& sampler() const { return sampler_; }
  [[nodiscard]] bool holds(int64_t epoch) const { return plan_ && plan_->epoch() == epoch; }
  /// The epoch that was planned last; there is one.
  [[nodiscard]] EpochPlan& plan() { return *plan_; }
  /// Plans an epoch in place of the one that is held; where that fails none is.
  Result<> plan(EpochInputs inputs);
  void forget() { plan_.reset(); }

 private:
  explicit EpochPlanner(plugin::Instance instance);
  plugin::Instance instance_;
  Sampler sampler_;
  std::optional<EpochPlan> plan_;  // views sampler_
};

}  // namespace pliant::data
