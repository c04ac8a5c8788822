// JobPlan: the batch of the step in hand, kept, and its assignment.
#include "elastic/agent/job_plan.hpp"

#include <utility>

#include "elastic/assignment_record.hpp"

namespace pliant::elastic {

JobPlan::JobPlan(const Config& config, const Plan& plan, Dataset dataset)
    : JobPlan(config, plan, Batches(config, plan, std::move(dataset))) {}

JobPlan::JobPlan(const Config& config, const Plan& plan, Dataset dataset, std::string_view position)
    : JobPlan(config, plan, Batches(config, plan, std::move(dataset), position)) {}

JobPlan::JobPlan(const Config& config, const Plan& plan, Batches batches)
    : batches_(std::move(batches)),
      balancer_(config),
      granule_(plan.granule),
      deterministic_(config.run().deterministic),
      sharded_(config.has("coordinator")) {}

const Batch& JobPlan::batch_at(int64_t step) {
  if (at_ != step) {
    batch_ = batches_.at_step(step);
    rows_ = digest_of(batch_);
    at_ = step;
  }
  return batch_;
}

Result<StepFacts> JobPlan::facts_of(int64_t step) {
  try {
    const Batch& batch = batch_at(step);
    return StepFacts{batch.epoch, batch.index, batch.size, batch.digest, rows_};
  } catch (const Error& error) {
    return tl::unexpected<Error>(error);
  }
}

Result<Assignment> JobPlan::assignment_of(int64_t step, Sharing how, CostRates rates) {
  try {
    how.granule = granule_;
    how.deterministic = deterministic_;
    how.in_turn = sharded_;
    return balancer_.assign(row_costs(batch_at(step), batches_.dataset(), rates), how);
  } catch (const Error& error) {
    return tl::unexpected<Error>(error);
  }
}

}  // namespace pliant::elastic
