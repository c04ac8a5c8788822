// Brute force for the rules 0.1 and 0.2: every candidate, every world size, no factorisation. For small numbers only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace oracle {

struct Config {
  int64_t cap = 0;
  std::vector<int64_t> micro_batches;
  int64_t low = 1;
  int64_t high = 10000;
  bool prefer_larger = true;
  bool lcm_may_exceed_cap = false;
  bool strict = false;
  int64_t devices_per_node = 1;
  int64_t model_parallel = 1;
};

struct Plan {
  int64_t batch = 0;
  std::vector<int64_t> sizes;
  int64_t micro_batch = 0;
};

/// World sizes from low to high that some micro-batch lets share `batch` evenly.
std::vector<int64_t> valid_sizes(int64_t batch, const std::vector<int64_t>& micro_batches, int64_t low, int64_t high);

/// Largest number up to `limit`, at most 2^20, that has more divisors than every smaller one.
int64_t highly_composite(int64_t limit);

/// nullopt where the rule has no answer: a micro-batch above the cap; if strict, also a batch that no size can share.
std::optional<Plan> v01(const Config& config);

/// For `devices` >= 1. nullopt where the rule raises. Not for strict.
std::optional<Plan> v02(const Config& config, int64_t devices);

/// The strict rule, whole nodes inside the limits. nullopt where it refuses. No micro-batch.
std::optional<Plan> v02_strict(const Config& config);

}  // namespace oracle
