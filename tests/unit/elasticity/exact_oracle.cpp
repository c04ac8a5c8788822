// Straight from the description of the options.
#include "exact_oracle.hpp"

#include <algorithm>
#include <numeric>

namespace oracle {
namespace {

/// World sizes that the limits allow, up to `most`.
std::vector<int64_t> sizes_within(const ExactConfig& config, int64_t most) {
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= most; ++size) {
    const int64_t devices = size * config.model_parallel;
    if (devices < config.min_devices || devices > config.max_devices) continue;
    if (!config.whole_nodes || devices % config.devices_per_node == 0) sizes.push_back(size);
  }
  return sizes;
}

/// The largest world size that the limits alone allow.
int64_t largest_wanted(const ExactConfig& config) {
  const int64_t group = config.whole_nodes ? config.devices_per_node : config.model_parallel;
  return config.max_devices / group * group / config.model_parallel;
}

}  // namespace

int64_t granule_of(const ExactConfig& config) {
  if (config.granule != 0) return config.granule;
  int64_t common = 0;
  for (const int64_t micro : config.micro_batches) common = std::gcd(common, micro);
  return common;
}

Loss loss_of(const ExactConfig& config, const std::vector<int64_t>& sizes, int64_t batch, int64_t micro_batch) {
  const int64_t granule = granule_of(config);
  const int64_t at_once = config.calls ? micro_batch : granule;
  Loss loss = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t granules = batch / granule;
    const int64_t largest_share = (granules + sizes[i] - 1) / sizes[i] * granule;
    const int64_t rounds = (largest_share + at_once - 1) / at_once;
    const int64_t weight = config.weighted_sizes.empty() || config.weights.empty() ? 1 : config.weights[i];
    const int64_t time = rounds * at_once * sizes[i];
    loss += (static_cast<Loss>(time - batch) << 96U) / static_cast<Loss>(time) * static_cast<Loss>(weight);
  }
  return loss;
}

bool clearly_less(Loss a, Loss b) {
  constexpr Loss kRounding = Loss{1} << 40U;
  return a + kRounding < b;
}

std::optional<ExactPlan> exact(const ExactConfig& config) {
  const int64_t granule = granule_of(config);
  std::vector<int64_t> micro_batches;
  for (const int64_t micro : config.micro_batches) {
    if (micro <= config.cap) micro_batches.push_back(micro);
  }
  if (micro_batches.empty()) return std::nullopt;
  std::sort(micro_batches.begin(), micro_batches.end());
  const int64_t smallest = micro_batches.front();
  const int64_t most = config.cap / granule;
  const std::vector<int64_t> within = sizes_within(config, most);
  if (within.empty()) return std::nullopt;
  const int64_t wanted = largest_wanted(config);
  const int64_t room_for = std::max(within.front(), wanted <= most ? wanted : smallest / granule);
  ExactPlan best;
  best.granule = granule;
  best.counted = config.weighted_sizes.empty() ? within : config.weighted_sizes;
  Loss best_loss = 0;
  for (const int64_t micro : micro_batches) {
    for (int64_t granules = std::max(room_for, micro / granule); granules <= most; ++granules) {
      const int64_t batch = granules * granule;
      const Loss loss = loss_of(config, best.counted, batch, micro);
      if (best.batch != 0 && clearly_less(best_loss, loss)) continue;
      best.batch = batch;
      best.micro_batch = micro;
      best_loss = loss;
    }
  }
  for (const int64_t size : within) {
    if (size <= best.batch / granule) best.sizes.push_back(size);
  }
  return best;
}

}  // namespace oracle
