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
  std::vector<int64_t> counted;  ///< whose efficiency decided
};

/// Rows that no cap can spare: gcd of the micro-batch sizes unless configured.
int64_t granule_of(const ExactConfig& config);

/// Weighted sum over `sizes` of 1 - efficiency, in units of 2^-96, each term rounded down. An efficiency is the rows of
/// the batch over those that all ranks could compute while the slowest one computes its own.
__extension__ typedef unsigned __int128 Loss;
Loss loss_of(const ExactConfig& config, const std::vector<int64_t>& sizes, int64_t batch, int64_t micro_batch);

/// Whether `a` is less than `b` by more than their rounding.
bool clearly_less(Loss a, Loss b);

/// nullopt where no plan can be.
std::optional<ExactPlan> exact(const ExactConfig& config);

}  // namespace oracle
