// Asks every balancer that comes with Pliant, and the one in use, to share out the same batches.
#include "pack/rank_time.hpp"

#include <algorithm>
#include <string>

#include "pliant/balancer.hpp"

namespace pliant::cli {

namespace {

constexpr int64_t kMostRowsLookedAt = 200000;  // that are looked at

/// Costs of the rows of every batch of the sample.
std::vector<std::vector<int64_t>> sampled_costs(Batches& batches, PackStudy& study, CostRates rates) {
  const int64_t all = study.summary.batches;
  const int64_t wanted = std::clamp<int64_t>(kMostRowsLookedAt / study.global_batch, 1, all);
  std::vector<std::vector<int64_t>> costs;
  for (int64_t i = 0; i < wanted; ++i) {
    const Batch batch = batches.batch(study.epoch, i * all / wanted);
    costs.push_back(row_costs(batch, batches.dataset(), rates));
  }
  study.batches_sampled = wanted;
  return costs;
}

}  // namespace

void predict_rank_times(const Config& config, const PackBatch& batch, const std::vector<int64_t>& world_sizes,
                        Batches& batches, PackStudy& study, ProgressLine& progress) {
  if (world_sizes.empty()) return;
  std::vector<std::string> names{"contiguous", "round_robin", "cost_sort", "lpt", "karmarkar_karp"};
  const std::string& used = config.use("balancer");
  if (std::find(names.begin(), names.end(), used) == names.end()) names.push_back(used);
  const CostRates rates = Balancer(config).rates();
  if (batches.dataset().costs.empty()) {
    study.cost_per_token = rates.per_token;
    study.cost_per_square = rates.per_square;
  }
  const auto costs = sampled_costs(batches, study, rates);
  double done = 0;
  for (const std::string& name : names) {
    const Balancer balancer(with_plugin(config, "balancer", name));
    for (const int64_t size : world_sizes) {
      const auto tasks = static_cast<double>(names.size() * world_sizes.size());
      progress.show("predicting how long ranks wait for each other", done++ / tasks);
      Sharing how{size, 1, 1, config.run().deterministic};
      if (batch.planner) {
        const Plan plan = batch.planner->plan(size);
        how.micro_batch = std::max<int64_t>(1, plan.micro_batch);
        how.granule = plan.granule;
      }
      Waiting sum;
      for (const auto& rows : costs) sum += balancer.predict(rows, how);
      study.rank_times.push_back({name, size, sum.lost_per_step(), sum.lost_per_micro_batch()});
    }
  }
}

}  // namespace pliant::cli
