// PackStudy: one epoch of one sampler looked at; what the table, the JSON and the figure of `pliant pack` show.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pliant/batches.hpp"
#include "pliant/config.hpp"
#include "pliant/plan.hpp"
#include "progress.hpp"

namespace pliant::cli {

struct PackQuestion {
  int64_t epoch = 0;
  int64_t global_batch = 0;          ///< rows; 0: what the plan says, or 1 without one
  std::vector<int64_t> world_sizes;  ///< to predict waiting at; empty: some valid ones of the plan
};

/// Which rows make a batch, and how ranks may share it out.
struct PackBatch {
  Plan plan;
  bool planned = false;  ///< by [elasticity]; else `plan` holds no more than the batch
  std::optional<Planner> planner;
};
/// `config` was opened with the need "elasticity" where it has [elasticity]. Throws (exit 2) for world sizes that the
/// plan does not admit, and for a global batch beside [elasticity].
PackBatch batch_for(const Config& config, const PackQuestion& question);
/// The world sizes of the question, or up to four of the plan.
std::vector<int64_t> sizes_for(const PackBatch& batch, const PackQuestion& question);

/// Learning rate over the steps of the epoch.
struct RateCurve {
  double least = 0;
  double most = 0;
  int64_t first_step = 0;                               ///< of the epoch
  std::vector<std::pair<double, double>> points;        ///< step and rate of whole batches; at most 1024, evenly spread
  std::optional<std::pair<double, double>> short_last;  ///< of the last batch where rows of it are empty
};

/// What ranks lose by waiting for the slowest of them, 0 to 1.
struct RankTime {
  std::string balancer;
  int64_t world_size = 0;
  double lost_per_step = 0;
  double lost_per_micro_batch = 0;
};

struct Waits {
  int64_t longest = 0;  ///< places of the data set by which a sequence is behind the furthest one that is out
  double mean = 0;
};

struct PackStudy {
  std::string sampler;
  std::string source;
  int64_t sequences = 0;  ///< of the data set
  int64_t tokens = 0;
  int64_t longest_sequence = 0;
  int64_t epoch = 0;
  int64_t global_batch = 0;
  bool planned = false;
  EpochSummary summary;
  Packing packing;
  int64_t entries = 0;
  int64_t longest_entry = 0;
  double seconds = 0;      ///< planning the epoch and checking every row
  double cpu_seconds = 0;  ///< the same, CPU time of all threads
  Waits waits;
  int64_t length_step = 1;             ///< lengths that one of length_counts counts
  std::vector<int64_t> length_counts;  ///< of the data set: lengths 1 to length_step, and so on; at most 64
  std::vector<int64_t> fill_counts;    ///< rows by the part of their room that is used, in equal steps up to 1
  std::optional<RateCurve> learning_rate;
  std::string learning_rate_rule;  ///< empty without [lr]
  std::vector<RankTime> rank_times;
  int64_t batches_sampled = 0;  ///< for rank_times
  int64_t cost_per_token = 0;   ///< likewise; as the next one 0 where the sequences have costs of their own
  int64_t cost_per_square = 0;

  /// Rows with sequences.
  [[nodiscard]] int64_t packs() const { return summary.rows - summary.padding_rows; }
};

/// Packs `dataset` as `config` (opened with the needs "sampler", "balancer", and "lr" when it has [lr]) says.
/// `batches`, when given, gets the object that made the rows.
PackStudy study_pack(const Config& config, const Dataset& dataset, const PackBatch& batch, const PackQuestion& question,
                     ProgressLine& progress, std::optional<Batches>* batches = nullptr);

}  // namespace pliant::cli
