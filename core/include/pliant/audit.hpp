// audit_run(), compare_runs(): what a run committed, checked against its plan and against another run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "pliant/error.hpp"

namespace pliant {

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
  int64_t states = 0;         ///< steps that all ranks began with the same state, seen by its digest
  int64_t steps_skipped = 0;  ///< without an update
  [[nodiscard]] bool is_whole() const { return samples_repeated == 0 && samples_missing == 0; }
};

/// Reads the run and changes nothing in it; a job may be at work there. Throws kNotFound where there is no run,
/// kDataLoss where its ledger is damaged or a step of it is not what the plan says.
RunAudit audit_run(const std::filesystem::path& run);

/// How two runs differ first.
struct RunComparison {
  int64_t steps = 0;               ///< that were compared: those that both have
  int64_t states = 0;              ///< of these, with a digest of the state in both
  int64_t differs = -1;            ///< the first step that differs; -1: none
  std::string how;                 ///< in words; empty: the runs are equal
  std::vector<std::string> parts;  ///< where the states differ: names of the arrays; "(rest)", "(lr)"; none: not kept
  [[nodiscard]] bool is_equal() const { return how.empty(); }
};

/// Compares samples, states, learning rates and losses step by step; both runs whole, also in their number of steps.
/// Throws as audit_run.
RunComparison compare_runs(const std::filesystem::path& run, const std::filesystem::path& other);

}  // namespace pliant
