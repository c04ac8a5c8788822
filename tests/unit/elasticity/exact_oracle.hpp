// Brute force for the policy `exact`: every batch, every micro-batch size, every world size. For small numbers only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace oracle {

struct ExactConfig {
  int64_t cap = 0;
  std::vector<int64_t> micro_batches;
  int64_t min_devices = 1;
  int64_t max_devices = 10000;
  int64_t model_parallel = 1;
  int64_t devices_per_node = 1;
  bool whole_nodes = false;
  int64_t granule = 0;
  bool calls = false;
  std::vector<int64_t> weighted_sizes;  ///< ranks
  std::vector<int64_t> weights;
};

struct ExactPlan {
  int64_t batch = 0;
  int64_t micro_batch = 0;
  int64_t granule = 1;
  std::vector<int64_t> sizes;    ///< that share the batch
  std::vector<int64_t> counted;  ///< whose idle time decided
};

/// Rows that no cap can spare: gcd of the micro-batch sizes unless configured.
int64_t granule_of(const ExactConfig& config);

/// Weighted sum over `sizes` of the rows that idle ranks could have computed in one step.
__extension__ typedef __int128 Rows;
Rows idle_rows(const ExactConfig& config, const std::vector<int64_t>& sizes, int64_t batch, int64_t micro_batch);

/// nullopt where no plan can be.
std::optional<ExactPlan> exact(const ExactConfig& config);

}  // namespace oracle
