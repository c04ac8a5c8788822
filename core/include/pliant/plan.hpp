// Plan: the global batch of a job, the world sizes that may share it out, and who gets which rows. Planner makes it,
// alone: no agent, no accelerator, no log line.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pliant/config.hpp"
#include "pliant/error.hpp"

namespace pliant {

/// World sizes first, first + step, ..., last.
struct WorldRange {
  int64_t first = 0;
  int64_t last = 0;
  int64_t step = 1;  ///< >= 1, divides last - first
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
  int64_t devices_per_node = 0;         ///< 0 = the policy knows of no nodes
  int64_t min_resize_interval_s = 0;    ///< seconds between two resizes that nothing forces
  int64_t largest_counted = 0;  ///< the largest cluster, in ranks, that the choice of the batch counted; at least the
                                ///< last valid size
  std::vector<std::string> warnings;  ///< what the policy says against its own answer, one line each

  [[nodiscard]] bool valid(int64_t world_size) const;
  /// The largest valid size <= at_most, or 0.
  [[nodiscard]] int64_t largest_valid(int64_t at_most) const;
  /// The smallest valid size >= at_least, or 0.
  [[nodiscard]] int64_t smallest_valid(int64_t at_least) const;
  /// Number of valid sizes.
  [[nodiscard]] int64_t count() const;
  /// `world size 13 is not valid for global batch 1680; nearest valid: 12, 14`
  [[nodiscard]] std::string explain_invalid(int64_t world_size) const;
};

/// An elasticity policy with its options, ready to be asked. Cheap to copy. Every function may be called from several
/// threads at once. Nothing is read from the environment and nothing is logged: same config, same answers, on every
/// machine.
class Planner {
 public:
  /// `config` was opened with the need "elasticity". Throws what the policy has against its options.
  explicit Planner(const Config& config);

  /// The plan, with the micro-batch at `world_size` data-parallel ranks; 0: at none in particular. `world_size_text` is
  /// what policies that read WORLD_SIZE take it to be. Throws kIncompatibleWorldSize (kInput, names the nearest) when
  /// world_size is not valid; kPlugin when the plugin breaks its contract. The policy's own time plus O(ranges).
  [[nodiscard]] Plan plan(int64_t world_size = 0, const std::optional<std::string>& world_size_text = {}) const;

  /// The policy's own answer, for programs that must answer as its rule does: nothing is held against it, so the batch
  /// may be 0, the sizes none, the micro-batch more than the batch. `want_micro_batch`: the policy fails rather than
  /// name no micro-batch. Throws the policy's refusal in its own words, without a place in the config.
  [[nodiscard]] Plan unchecked(int64_t world_size, bool want_micro_batch,
                               const std::optional<std::string>& world_size_text = {}) const;

  /// What `use` says: "exact".
  [[nodiscard]] const std::string& policy() const;
  /// The policy, its version and every option, defaults included, as one line of JSON: keys sorted, no spaces.
  [[nodiscard]] const std::string& block() const;
  /// 64-bit FNV-1a of block() as 16 hex digits. Equal digests, equal plans.
  [[nodiscard]] const std::string& digest() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

/// Throws (kFailedPrecondition, kInput, names the key) when a scheduler left an elasticity block in
/// PLIANT_ELASTICITY_CONFIG or DEEPSPEED_ELASTICITY_CONFIG that is not that of `config` (opened with the need
/// "elasticity").
void check_scheduler(const Config& config);

/// A Planner asked once, as `pliant plan` and `pliant run` ask: after check_scheduler; WORLD_SIZE of the environment is
/// handed to the policy, its warnings go to the log.
Plan make_plan(const Config& config, int64_t world_size = 0);

/// A change of a config, as for Config::with, and the plan that it gives.
struct PlanChange {
  std::vector<std::string> sets;
  Plan plan;
};

/// What a job that has begun keeps.
struct PinnedBatch {
  int64_t global_batch = 0;
  int64_t granule = 1;
};

/// Changes that each make `world_size` valid, the least first: limits, micro-batch sizes, a larger cap, policy "exact".
/// Each was planned. `pinned`: of the job that is to go on; only changes that keep it. Empty when none helps.
/// Milliseconds.
std::vector<PlanChange> changes_for(const Config& config, int64_t world_size,
                                    const std::optional<PinnedBatch>& pinned = {});

/// `refusal` of `world_size` with a line of help for each of changes_for.
Error with_changes(const Config& config, const Error& refusal, int64_t world_size,
                   const std::optional<PinnedBatch>& pinned = {});

/// Rows of rank `rank` when `world_size` ranks share `rows` rows: contiguous, in rank order, whole granules except at
/// the very end, sizes differ by at most one granule; the first ranks get the larger shares. A rank may own no rows.
RowRange share_of(int64_t rows, int64_t granule, int64_t world_size, int64_t rank);

/// `share` cut into micro-batches of `micro_batch` rows, the last one possibly smaller.
std::vector<RowRange> micro_batches(RowRange share, int64_t micro_batch);

}  // namespace pliant
