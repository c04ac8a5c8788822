// What v0.1 and v0.2 share: DeepSpeed's option names, its search for the best batch, its choice of a micro-batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "min_time.hpp"
#include "pliant/sdk/elasticity_policy.hpp"

namespace pliant::elasticity {

/// Options under DeepSpeed's names. `cap` below is max_train_batch_size.
struct DeepSpeedOptions {
  int64_t max_train_batch_size = 0;
  std::vector<int64_t> micro_batch_sizes;
  int64_t min_gpus = 1;
  int64_t max_gpus = 10000;
  bool prefer_larger_batch = true;
  int64_t model_parallel_size = 1;
  int64_t num_gpus_per_node = 1;
  int64_t min_time = 0;
  bool lcm_may_exceed_max = false;
  bool strict = false;
};

/// The rows that mean the same in both tables; model_parallel_size and num_gpus_per_node are the policy's own.
template <class Policy>
void add_deepspeed_options(sdk::Options<Policy>& table) {
  const auto of = [](auto DeepSpeedOptions::*member) {
    return static_cast<std::remove_reference_t<decltype(std::declval<DeepSpeedOptions&>().*member)> Policy::*>(member);
  };
  table
      .add("max_train_batch_size", of(&DeepSpeedOptions::max_train_batch_size),
           "The largest global batch; the policy chooses the batch at or below it that most world sizes divide.")
      .required()
      .at_least(1)
      .unit("rows");
  table
      .add("micro_batch_sizes", of(&DeepSpeedOptions::micro_batch_sizes),
           "Numbers of rows that a rank can compute at once; each at most max_train_batch_size.")
      .required()
      .at_least(1)
      .elements(1, 0)
      .unit("rows");
  table.add("min_gpus", of(&DeepSpeedOptions::min_gpus), "The smallest number of devices for the job.")
      .at_least(1)
      .unit("devices");
  table.add("max_gpus", of(&DeepSpeedOptions::max_gpus), "The largest number of devices for the job.")
      .at_least(1)
      .unit("devices");
  table.add("prefer_larger_batch", of(&DeepSpeedOptions::prefer_larger_batch),
            "Of batches that the same number of world sizes divide, take the larger one (false = the smaller one).");
  add_min_time_option(table, of(&DeepSpeedOptions::min_time));
  table.add("lcm_may_exceed_max", of(&DeepSpeedOptions::lcm_may_exceed_max),
            "Allow the least common multiple of the micro-batch sizes as the global batch even above "
            "max_train_batch_size, as DeepSpeed did up to August 2026.");
}

/// The row of `strict`, whose meaning is the policy's own.
template <class Policy>
void add_strict_option(sdk::Options<Policy>& table, const char* doc) {
  table.add("strict", static_cast<bool Policy::*>(&DeepSpeedOptions::strict), doc);
}

/// One run of DeepSpeed's v0.1 search. Units: whatever `low` and `high` count (devices, or nodes).
struct Search {
  const std::vector<int64_t>& micro_batches;  ///< each >= 1, not empty
  int64_t cap = 0;                            ///< largest batch
  int64_t low = 1;                            ///< smallest size counted
  int64_t high = 0;                           ///< largest size counted
  bool prefer_larger = true;
  bool lcm_may_exceed_cap = false;
  bool strict = false;  ///< scale by every highly composite number, not only by those up to 720720
};

struct Found {
  int64_t batch = 0;
  std::vector<int64_t> sizes;  ///< ascending; empty when no size in [low, high] can share the batch
  /// No candidate beat the start value, the smallest micro-batch: DeepSpeed has no list at all then.
  bool undecided = false;
  /// The batch would be larger if DeepSpeed's table of highly composite numbers went beyond 720720.
  bool table_ended = false;
};

/// Throws Failure(PLIANT_OUT_OF_RANGE) when a micro-batch exceeds the cap or the least common multiple 63 bits.
/// O(micro-batches^2 + candidates that can win * their divisors up to `high`); neither cap nor range counts otherwise.
Found best_batch(const Search& search);

/// Throws Failure(PLIANT_OUT_OF_RANGE) when no size can share the batch.
void require_sizes(const Found& found, const DeepSpeedOptions& options);

/// What to tell somebody whose batch DeepSpeed's table keeps small.
std::string table_end_warning(int64_t batch);

/// The largest micro-batch that divides a rank's share floor(batch / world_size), or 0.
int64_t largest_micro_batch(const std::vector<int64_t>& micro_batches, int64_t batch, int64_t world_size);

/// gcd of the micro-batch sizes, reduced until it divides the batch. Always >= 1.
int64_t granule(const std::vector<int64_t>& micro_batches, int64_t batch);

/// Ascending sizes as ranges.
std::vector<sdk::WorldRange> as_ranges(const std::vector<int64_t>& sizes);

/// Refuses min_gpus > max_gpus.
void check_limits(const DeepSpeedOptions& options);

/// Refuses a negative world size.
void check_world_size(int64_t world_size);

/// `world size 13 is not valid for global batch 1680; nearest valid: 12, 14`.
std::string not_valid(int64_t world_size, int64_t batch, const std::vector<int64_t>& sizes);

/// Throws IncompatibleWorldSize unless world_size is in `sizes` and some micro-batch fits; returns that micro-batch.
int64_t micro_batch_at(const DeepSpeedOptions& options, int64_t world_size, int64_t batch,
                       const std::vector<int64_t>& sizes);

}  // namespace pliant::elasticity
