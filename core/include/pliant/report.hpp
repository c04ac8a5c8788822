// report_run(): the course of a run, step by step, from its ledger.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pliant/error.hpp"
#include "pliant/metric.hpp"

namespace pliant {

/// Why a worker group was formed.
enum class GroupCause {
  kUnknown,  ///< the ledger does not say
  kStart,    ///< the job began
  kResume,   ///< another `pliant run` went on with it
  kLoss,     ///< a worker was killed, or ended
  kLeave,    ///< workers had announced that they leave
  kJoin,     ///< a worker was ready to join
  kFault,    ///< all lived, but could not go on together: a failed collective, a worker that is stopped, a wrong copy
};

/// A committed step.
struct StepReport {
  int64_t step = 0;
  int64_t generation = 0;
  int64_t world_size = 0;
  double loss = 0;  ///< mean per loss token; may be infinite or NaN
  double learning_rate = 0;
  int64_t tokens = 0;
  bool skipped = false;      ///< without an update: it was not finite
  bool short_batch = false;  ///< its batch has fewer `rows` than the job's global batch: the last of an epoch
  int64_t rows = 0;          ///< of its batch, without those that are empty
  std::map<std::string, double> metrics;  ///< of the program's own (Step::metric)
};

/// A worker group that began to work.
struct GroupReport {
  int64_t generation = 0;
  int64_t step = 0;  ///< its first
  int64_t world_size = 0;
  int64_t world_size_before = 0;  ///< 0: it is the first
  GroupCause cause = GroupCause::kUnknown;
  std::string reason;           ///< in words
  int64_t steps_discarded = 0;  ///< committed before, and computed again from `step` on
};

struct RunReport {
  std::string run_id;
  std::filesystem::path directory;
  std::vector<StepReport> steps;  ///< of the lineage that survives: steps[i].step == i
  std::vector<GroupReport> groups;
  /// Steps that were committed and given up by a restart, in runs of consecutive ones, the oldest run first.
  std::vector<std::vector<StepReport>> discarded;
  std::optional<int64_t> not_finite_step;  ///< the job last ended at this step, whose update was not finite
  std::string not_finite_reason;
  std::optional<int64_t> ended_early;  ///< after so many steps the program asked for the end
  std::string reason_to_end;
  std::vector<Evaluation> evaluations;  ///< of the lineage that survives, by step

  /// Of all runs in `discarded`.
  [[nodiscard]] int64_t steps_discarded() const;
  [[nodiscard]] int64_t steps_skipped() const;
};

/// Reads the ledger and changes nothing; a job may be at work there, whose steps so far are reported. A last line that
/// is torn does not count. Throws kNotFound (kInput) where there is no ledger, kDataLoss where it is damaged or holds
/// no whole line.
RunReport report_run(const std::filesystem::path& run);

}  // namespace pliant
