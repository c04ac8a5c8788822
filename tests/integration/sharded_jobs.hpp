// Jobs of samples/sharded_trainer, small and deterministic, and what they end with.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "integration/job_runner.hpp"

namespace pliant::test {

constexpr int64_t kShardedSteps = 14;

/// Of [coordinator], for the sample: planned, with room for what a layer takes and not for all of them, so that
/// parameters are gathered again in a step.
inline const std::vector<std::string> kTightSample{"coordinator.use=\"planned\"", "coordinator.budget=65536"};

inline std::vector<std::string> joined(std::vector<std::string> sets, const std::vector<std::string>& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

/// `pliant run` of the sample, with a snapshot every four steps; `sets` are more of --set.
inline std::vector<std::string> sharded_job(int64_t workers, const std::vector<std::string>& sets = {}) {
  const std::string config = std::string(PLIANT_SOURCE_DIR) + "/samples/sharded_trainer/pliant.toml";
  std::vector<std::string> made{"run", config, "--json"};
  std::vector<std::string> all{fmt::format("run.workers={}", workers),
                               "run.name=toy",
                               "run.deterministic=true",
                               "app.layers=3",
                               "app.width=3000",
                               "run.snapshot_every=4",
                               fmt::format("run.max_steps={}", kShardedSteps)};
  for (const std::string& set : joined(std::move(all), sets)) made.insert(made.end(), {"--set", set});
  return made;
}

/// With which a step has five micro-batches: of two or three workers the last has one fewer than the others.
inline const std::vector<std::string> kFiveGranules{
    "elasticity.use=\"exact\"", "elasticity.exact.max_train_batch_size=10", "elasticity.exact.micro_batch_sizes=[2]",
    "elasticity.exact.weighted_sizes=[3]", "elasticity.exact.max_gpus=5"};

/// Of each commit how many passes ranks repeated, as workers with [app] repeats give it; 0 where none.
inline std::vector<double> repeated_passes(const JobRunner& job) {
  std::vector<double> made;
  for (const nlohmann::json& commit : job.ledger("commit")) {
    const nlohmann::json metrics = commit.value("metrics", nlohmann::json::object());
    made.push_back(metrics.value("repeated", 0.0));
  }
  return made;
}

/// The same with injections: "kill:rank=2,step=6".
inline std::vector<std::string> disturbed(std::vector<std::string> job, const std::vector<std::string>& injections) {
  for (const std::string& one : injections) job.insert(job.end(), {"--inject", one});
  return job;
}

inline std::string last_line(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::string last;
  while (std::getline(in, line)) last = line;
  return last;
}

/// The state that the last step left, as the ranks' digests have it.
inline std::string last_state(const JobRunner& job) {
  return last_line(job.latest() / "digests.jsonl");
}

inline std::string state_after(JobRunner& job, const std::vector<std::string>& command) {
  const Ended ended = job.run(command);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  return last_state(job);
}

/// What every undisturbed job commits and ends with, whoever computes it.
struct Undisturbed {
  std::string state;
  std::vector<elastic::CommitRecord> commits;
};
inline const Undisturbed& undisturbed_job() {
  static const Undisturbed kJob = [] {
    JobRunner job;
    std::string state = state_after(job, sharded_job(1, {"coordinator.use=\"eager\""}));
    return Undisturbed{std::move(state), commits_of(job)};
  }();
  return kJob;
}
inline const std::string& undisturbed() {
  return undisturbed_job().state;
}

}  // namespace pliant::test
