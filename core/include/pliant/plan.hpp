// Plan: the global batch of a job, the world sizes that may share it out, and who gets which rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pliant/config.hpp"

namespace pliant {

/// World sizes first..last, both included.
struct WorldRange {
  int64_t first = 0;
  int64_t last = 0;
  bool operator==(const WorldRange&) const = default;
};

/// Consecutive rows of a global batch.
struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
  bool operator==(const RowRange&) const = default;
};

struct Plan {
  int64_t global_batch = 0;             ///< rows of one step
  int64_t micro_batch = 0;              ///< rows computed at once at the world size asked for; 0 = none was
  int64_t granule = 1;                  ///< rows that are never split; divides global_batch and micro_batch
  int64_t model_parallel_size = 1;      ///< devices behind one data-parallel rank
  std::vector<WorldRange> world_sizes;  ///< valid data-parallel world sizes: ascending, disjoint

  [[nodiscard]] bool valid(int64_t world_size) const;
  /// The largest valid size <= at_most, or 0.
  [[nodiscard]] int64_t largest_valid(int64_t at_most) const;
  /// Number of valid sizes.
  [[nodiscard]] int64_t count() const;
  /// `world size 13 is not valid for global batch 1680; nearest valid: 12, 14`
  [[nodiscard]] std::string explain_invalid(int64_t world_size) const;
};

/// Asks the elasticity plugin of `config` (opened with needs.elasticity). world_size 0: none in particular. Throws
/// kIncompatibleWorldSize (exit 2, names the nearest) when world_size is not valid; exit 3 when the plugin breaks its
/// contract.
Plan make_plan(const Config& config, int64_t world_size = 0);

/// Rows of rank `rank` when `world_size` ranks share `rows` rows: contiguous, in rank order, whole granules except at
/// the very end, sizes differ by at most one granule; the first ranks get the larger shares. A rank may own no rows.
RowRange share_of(int64_t rows, int64_t granule, int64_t world_size, int64_t rank);

/// `share` cut into micro-batches of `micro_batch` rows, the last one possibly smaller.
std::vector<RowRange> micro_batches(RowRange share, int64_t micro_batch);

}  // namespace pliant
