// JobPlan: what the agent knows of each step by itself: its batch, and which rank computes which rows of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.hpp"
#include "elastic/agent/group.hpp"
#include "pliant/balancer.hpp"
#include "pliant/batches.hpp"

namespace pliant::elastic {

class JobPlan {
 public:
  /// `config` was opened with the needs "sampler" and "balancer".
  JobPlan(const Config& config, const Plan& plan, Dataset dataset);
  /// The same, opened where `position` is, with no plan of the epochs before. Throws what Batches throws there.
  JobPlan(const Config& config, const Plan& plan, Dataset dataset, std::string_view position);

  [[nodiscard]] Batches& batches() { return batches_; }
  Result<StepFacts> facts_of(int64_t step);
  /// `how`: world size and micro-batch; granule and mode are the job's.
  Result<Assignment> assignment_of(int64_t step, Sharing how, CostRates rates);

 private:
  JobPlan(const Config& config, const Plan& plan, Batches batches);
  const Batch& batch_at(int64_t step);

  Batches batches_;
  Balancer balancer_;
  int64_t granule_;
  bool deterministic_;
  bool sharded_;     ///< granules are dealt in turn
  int64_t at_ = -1;  ///< step of batch_
  Batch batch_;
  uint64_t rows_ = 0;  ///< its digest
};

}  // namespace pliant::elastic
