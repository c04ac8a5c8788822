// Sharded jobs whose ranks misbehave, and what is to be true of them all the same.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "integration/sharded_jobs.hpp"

namespace pliant::test {

/// Of [coordinator], for jobs of job_that: planned, with room for what a layer takes and not for all of them, so that
/// parameters are gathered again in a step; planned without a budget; and zero3.
inline const std::vector<std::string> kTight{"coordinator.use=\"planned\"", "coordinator.budget=49152"};
inline const std::vector<std::string> kRoomy{"coordinator.use=\"planned\"", "coordinator.budget=0"};
inline const std::vector<std::string> kZero3{"coordinator.use=\"zero3\"", "coordinator.budget=0"};
/// Of zero3: as with a model far above its limits, what was used is released at once, and nothing is gathered ahead.
inline const std::vector<std::string> kFarAboveLimits{"coordinator.zero3.param_persistence_threshold=-1",
                                                      "coordinator.zero3.max_reuse_distance=0",
                                                      "coordinator.zero3.prefetch_bucket_size=0"};

/// The job of a program that can misbehave: `how` at `place` of step 6 on one rank. It is kTight unless `more` says
/// otherwise.
inline std::vector<std::string> job_that(const char* how, const char* place, int64_t workers,
                                         const std::vector<std::string>& more = {}) {
  std::vector<std::string> sets{fmt::format("run.command=[\"{}/sharded_worker\"]", PLIANT_TEST_BIN_DIR),
                                fmt::format("app.misbehave=\"{}\"", how), fmt::format("app.misbehave_at=\"{}\"", place),
                                fmt::format("app.misbehave_rank={}", workers > 1 ? 1 : 0), "app.misbehave_step=6"};
  return sharded_job(workers, joined(joined(sets, kTight), more));
}

inline const std::string& well_behaved() {
  static const std::string kState = [] {
    JobRunner job;
    return state_after(job, job_that("", "", 1, {"coordinator.use=\"eager\"", "coordinator.budget=0"}));
  }();
  return kState;
}

/// Rank 2 of 4 does in step 3 what no other does.
struct Parted {
  std::string how;
  std::string own;       ///< in words
  std::string others{};  ///< likewise
};
inline std::vector<Parted> ways_to_part() {
  return {{"other_order", "rank 2 entered layer.2 (forward) as visit 1", "entered layer.0 (forward) as visit 1"},
          {"fewer_visits", "rank 2 left model (forward) after 3 visits", "entered layer.2 (forward) as visit 3"},
          {"leave_root_first", "rank 2 left model (backward) after 8 visits", "left layer.0 (backward) after 8 visits"},
          {"evaluate_alone", "rank 2 began an evaluation", "reached Step::commit after "},
          {"read_alone", "rank 2 moved layer.2.weights by hand", "reached Step::commit after "},
          {"set_parameters_alone", "rank 2 began a pass with modules changed by set_parameters", "began pass 1"}};
}
/// Seconds from a worker's misdeed, which it notes in `file`, to now.
inline double seconds_since_misdeed(const std::filesystem::path& file) {
  const std::chrono::steady_clock::time_point at{std::chrono::nanoseconds(std::stoll(read_all(file)))};
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - at).count();
}

/// It is named, long before anybody is taken for hung, and nothing it did is committed. How long that took is printed.
inline void check_parted(const Parted& parted, const std::vector<std::string>& sets) {
  JobRunner job;
  const std::filesystem::path misdeed = job.folder() / "misdeed";
  const Environment noted(std::map<std::string, std::string>{{"TEST_MISDEED_AT", misdeed.string()}});
  const Ended ended =
      job.run(job_that(parted.how.c_str(), "", 4,
                       joined(sets, {"app.misbehave_rank=2", "app.misbehave_step=3", "run.hang_timeout_s=100000"})));
  REQUIRE_MESSAGE(std::filesystem::exists(misdeed), ended.err);
  const double seconds = seconds_since_misdeed(misdeed);
  MESSAGE(fmt::format("{}: said, and the job ended, {:.3f} s after the ranks parted", parted.how, seconds));
  INFO(ended.err);
  CHECK(ended.exit_code == 1);
  const std::string reason = ended.summary.at("reason");
  CHECK(has(reason, "step 3 is not committed: "));
  CHECK(has(reason, parted.own));
  CHECK(has(reason, parted.others));
  CHECK(ended.summary.at("steps") == 3);
  CHECK(job.processes_left() == 0);
}

inline bool is_stopped(pid_t process) {
  const std::string stat = read_all(fmt::format("/proc/{}/stat", process));
  const size_t state = stat.rfind(')') + 2;
  return state < stat.size() && stat[state] == 'T';
}

/// Blocks until the injected stop has struck `rank`, and returns its process.
inline pid_t wait_for_stop(const JobRunner& job, pid_t agent, int64_t rank) {
  pid_t stopped = 0;
  REQUIRE(JobRunner::wait_until(agent, [&] {
    if (stopped == 0) stopped = job.worker(rank);
    return stopped != 0 && is_stopped(stopped);
  }));
  return stopped;
}

inline void check_undisturbed(const JobRunner& job, const Ended& ended) {
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(last_state(job) == undisturbed());
  CHECK(ended.summary.at("samples_repeated") == 0);
  CHECK(ended.summary.at("samples_missing") == 0);
  CHECK(job.processes_left() == 0);
  for (const auto& entry : std::filesystem::directory_iterator(job.latest() / "snapshots"))
    CHECK(entry.path().extension() == ".snapshot");
}

/// A job that was killed with its agent after its snapshot of eight steps.
inline void leave_half(JobRunner& job, const std::vector<std::string>& sets = {}) {
  const Ended killed = job.run(disturbed(sharded_job(4, sets), {"kill:agent,step=10"}));
  REQUIRE(killed.exit_code == 128 + SIGKILL);
  job.wait_for_processes();
}

/// Flips one bit of a weight.
inline void damage(const std::filesystem::path& snapshot) {
  std::string bytes = read_all(snapshot);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_all(snapshot, bytes);
}

inline Ended resume(JobRunner& job, const std::vector<std::string>& sets = {}) {
  std::vector<std::string> words = sharded_job(4, sets);
  words.emplace_back("--resume");
  return job.run(words);
}

}  // namespace pliant::test
