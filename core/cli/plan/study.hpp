// Study: one policy looked at over world sizes; what the table, the JSON and the figure of `pliant plan` show.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pliant/config.hpp"
#include "pliant/plan.hpp"

namespace pliant::cli {

/// World sizes that JSON lists one by one, and how many where there are more.
inline constexpr int64_t kMostListed = 1000;
inline constexpr int64_t kSomeListed = 100;
/// Those of a table for people.
inline constexpr int64_t kMostRows = 12;

/// How one world size shares out the batch.
struct SizeReport {
  int64_t world_size = 0;          ///< data-parallel ranks
  int64_t devices = 0;             ///< world_size times model_parallel_size
  std::optional<int64_t> nodes;    ///< when the policy knows of nodes and the devices fill whole ones
  int64_t micro_batch = 0;         ///< rows
  int64_t accumulation_steps = 0;  ///< micro-batches of the slowest rank, which is rank 0
  int64_t largest_share = 0;       ///< its rows
  double efficiency = 0;           ///< part of the device time that computes rows, 0 to 1
  std::optional<double> learning_rate;
};

class Study {
 public:
  /// `config` was opened with the need "elasticity", and "lr" when it has [lr]. Plans at `world_size`, or, when that is
  /// 0, at a size worth showing: what [run] workers starts, else the largest valid one.
  Study(const Config& config, int64_t world_size);

  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] const Planner& planner() const { return planner_; }
  /// The size that plan() was made at.
  [[nodiscard]] const SizeReport& shown() const { return shown_; }
  [[nodiscard]] bool knows_nodes() const { return plan_.devices_per_node > 1; }

  /// At most `most` valid sizes of the plan's batch: all of them, or some, further and further apart, with the first,
  /// the last and the shown one.
  [[nodiscard]] std::vector<SizeReport> reports(int64_t most) const;
  /// The sizes between the first and the last valid one that are not valid; at most `most` ranges.
  [[nodiscard]] std::vector<WorldRange> unusable(size_t most) const;
  [[nodiscard]] int64_t unusable_count() const;
  /// Part of the time of `devices` ranks' devices that computes rows when the largest valid size that fits is started.
  [[nodiscard]] double efficiency_of(int64_t ranks) const;
  /// Mean of efficiency_of from `first` to `last`; of an even sample where there are more than a million.
  [[nodiscard]] double mean_efficiency(int64_t first, int64_t last) const;
  /// From the first valid size to the largest that the policy counted when it chose the batch: its own claim.
  [[nodiscard]] double mean_efficiency() const;
  [[nodiscard]] int64_t largest_counted() const { return plan_.largest_counted; }
  [[nodiscard]] int64_t first_size() const { return plan_.world_sizes.front().first; }
  [[nodiscard]] int64_t last_size() const { return plan_.world_sizes.back().last; }
  /// What the policy has to say of the plan, and that [run] workers has no place in it.
  [[nodiscard]] std::vector<std::string> warnings() const;
  /// How the learning rate follows the batch, in words; "" without [lr].
  [[nodiscard]] std::string learning_rate_text() const;

 private:
  [[nodiscard]] SizeReport report(const Plan& plan, int64_t world_size) const;
  [[nodiscard]] std::vector<int64_t> sizes_to_list(int64_t most) const;

  Config config_;
  Planner planner_;
  Plan plan_;
  SizeReport shown_;
  std::optional<int64_t> not_valid_;  ///< workers of a run, in whose place shown() is
};

/// The workers that a run starts, where the config says what to run or with how many.
std::optional<int64_t> workers_of_run(const Config& config);

/// A plan at no world size in particular. A policy may need to know how many devices there are: it is then asked at
/// sizes from 1 on until its answer has more than that one. Throws what the policy has against its options.
Plan any_plan(const Planner& planner);

/// `nodes` whole nodes in data-parallel ranks. Throws (exit 2) when the policy knows of no nodes or they hold no whole
/// number of ranks.
int64_t ranks_of_nodes(const Config& config, int64_t nodes);

}  // namespace pliant::cli
