// audit_run(), compare_runs(): what a run committed, checked against its plan and against another run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "pliant/error.hpp"

namespace pliant {

/// A field of a step in the ledger that is not what the plan and the config give.
struct AuditDifference {
  int64_t step = 0;
  std::string field;     ///< "learning rate", "rows of rank 1", "batch", "world size", "generation", "skipped"
  std::string recorded;  ///< by the ledger
  std::string planned;
};

/// What a run's ledger says, replayed against the plan that its config, its data and its seed give.
struct RunAudit {
  std::string run_id;
  std::filesystem::path directory;
  int64_t steps = 0;             ///< committed, on the lineage that survives
  int64_t total_steps = 0;       ///< of the job; exact once it is finished
  int64_t samples_expected = 0;  ///< uses that the plan holds for the committed steps
  int64_t samples_used_once = 0;
  int64_t samples_repeated = 0;
  int64_t samples_missing = 0;
  std::map<std::string, int64_t> samples_dropped;  ///< by reason
  int64_t states = 0;          ///< steps that all ranks began with the same state, seen by its digest
  int64_t steps_skipped = 0;   ///< without an update
  int64_t learning_rates = 0;  ///< steps whose learning rate was derived again, from the config that made the step
  int64_t assignments = 0;     ///< steps of which it was derived again which rank computes which rows
  std::vector<AuditDifference> differences;  ///< in the order of steps; the first 20
  int64_t differences_found = 0;             ///< of all
  std::vector<std::string> not_checked;      ///< what could not be derived again, of which steps, and why
  [[nodiscard]] bool is_whole() const {
    return samples_repeated == 0 && samples_missing == 0 && differences_found == 0;
  }
};

/// Reads the run and changes nothing in it; a job may be at work there. Throws kNotFound where there is no run,
/// kDataLoss where its ledger is damaged or a step of it has other samples, or another number of them, than the plan.
RunAudit audit_run(const std::filesystem::path& run);

/// How two runs differ first.
struct RunComparison {
  int64_t steps = 0;               ///< that were compared: those that both have
  int64_t states = 0;              ///< of these, with a digest of the state in both
  int64_t differs = -1;            ///< the first step that differs; -1: none
  std::string how;                 ///< in words; empty: the runs are equal
  std::vector<std::string> parts;  ///< where the states differ: names of the arrays; "(rest)", "(lr)"; none: not kept
  int64_t parts_step = -1;         ///< steps in the states that `parts` are of; -1: none were compared by parts
  [[nodiscard]] bool is_equal() const { return how.empty(); }
};

/// Compares samples, states, learning rates and losses step by step; both runs whole, also in their number of steps.
/// Where a step differs in its rate or its loss, the arrays are those that differ at the next digest that both have.
/// Runs without a step are not equal: nothing was compared. Throws as audit_run.
RunComparison compare_runs(const std::filesystem::path& run, const std::filesystem::path& other);

}  // namespace pliant
