// Jobs whose gradients or losses have a NaN or an infinity: what is not a number is committed only if the user said so.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "integration/job_runner.hpp"

using namespace pliant::test;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kAt = 5;  ///< the step that is not finite
constexpr int64_t kAllSteps = 26;

/// A worker that computes `how` on `rank` at that step, in every incarnation; -1: on every rank.
std::string config_with(const char* how, int rank, const std::string& run_keys) {
  return toy_config(run_keys, misbehaving(how, rank, kAt) + "misbehave_always = true");
}

/// Ended before the step, with the state before it.
void check_stopped(JobRunner& job, const Ended& ended) {
  INFO(ended.err);
  CHECK(ended.exit_code == 1);
  CHECK(ended.summary["outcome"] == "failed");
  CHECK(has(ended.summary["reason"], fmt::format("step {} is not committed: ", kAt)));
  CHECK(ended.summary["steps"] == kAt);
  CHECK(fs::exists(job.latest() / ended.summary["snapshot"].get<std::string>()));
  CHECK(job.ledger("commit").size() == kAt);
  const auto records = job.ledger("not_finite");
  REQUIRE_FALSE(records.empty());
  CHECK(records.back()["step"] == kAt);
  CHECK(has(ended.summary["reason"], records.back()["reason"].get<std::string>()));  // rows and ranks
  CHECK(job.processes_left() == 0);
}

}  // namespace

TEST_CASE("a job whose gradient or loss is not finite ends before it commits that, and names rows and ranks") {
  struct Kind {
    const char* how;
    int rank;
    const char* named;
  };
  for (const char* mode : {"false", "true"}) {
    for (const Kind kind : {Kind{"nan_gradient", 1, "on rank 1"}, Kind{"inf_gradient", 0, "on rank 0"},
                            Kind{"nan_loss", 1, "on rank 1"}, Kind{"nan_gradient", -1, "on rank 0; row"}}) {
      INFO(std::string(kind.how) << " on " << kind.rank << ", deterministic = " << std::string(mode));
      JobRunner job;
      job.config(config_with(kind.how, kind.rank, fmt::format("workers = 2\ndeterministic = {}", mode)));
      const Ended ended = job.run_json();
      check_stopped(job, ended);
      const std::string reason = ended.summary["reason"];
      CHECK(has(reason, "the gradient or the loss of row"));
      CHECK(has(reason, kind.named));
      CHECK(has(reason, "[run] on_nonfinite = \"skip\""));
    }
  }
}

TEST_CASE("a sum that overflows is not committed, although the gradients of the rows are finite") {
  JobRunner job;
  job.config(config_with("overflow", -1, "workers = 2"));
  const Ended ended = job.run_json();
  check_stopped(job, ended);
  CHECK(has(ended.summary["reason"], "the sum of the gradients of all ranks overflows"));
}

TEST_CASE("a rank whose gradients overflow as it adds them up is named") {
  for (const char* mode : {"false", "true"}) {
    CAPTURE(mode);
    JobRunner job;
    job.config(config_with("overflow", 1, fmt::format("workers = 2\ndeterministic = {}", mode)));
    const Ended ended = job.run_json({"--set", "elasticity.\"v0.1\".micro_batch_sizes=[2]"});  // two of each rank
    check_stopped(job, ended);
    const std::string reason = ended.summary["reason"];
    CHECK(has(reason, "the sum of the gradients on rank 1 overflows, although the gradient of each row is finite"));
    CHECK_FALSE(has(reason, "rank 0"));
  }
}

TEST_CASE("a job that was resumed and stops at the same step says so, and not where it stops at another") {
  JobRunner job;
  job.config(config_with("nan_gradient", 1, "workers = 2"));
  const Ended first = job.run_json();
  check_stopped(job, first);
  CHECK_FALSE(has(first.summary["reason"], "when the job ended at this step before"));
  const Ended elsewhere = job.run_json({"--resume", "--set", "app.misbehave_step=9"});  // it passes that step, once
  INFO(elsewhere.err);
  CHECK(elsewhere.exit_code == 1);
  CHECK(has(elsewhere.summary["reason"], "step 9 is not committed: "));
  CHECK_FALSE(has(elsewhere.summary["reason"], "when the job ended at this step before"));
  const Ended at_nine = job.run_json({"--resume", "--set", "app.misbehave_step=9"});
  CHECK(has(at_nine.summary["reason"], "step 9 is not committed: "));
  CHECK(has(at_nine.summary["reason"], "as when the job ended at this step before"));
}

TEST_CASE("a job that was resumed and stops at the same step again goes on where such steps are skipped") {
  JobRunner job;
  job.config(config_with("nan_gradient", 1, "workers = 2"));
  check_stopped(job, job.run_json());
  const Ended again = job.run_json({"--resume"});
  check_stopped(job, again);
  CHECK(has(again.summary["reason"], "as when the job ended at this step before"));
  const Ended skipped = job.run_json({"--resume", "--set", "run.on_nonfinite=skip"});
  INFO(skipped.err);
  REQUIRE(skipped.exit_code == 0);
  CHECK(skipped.summary["steps"] == kAllSteps);
  CHECK(skipped.summary["steps_skipped"] == 1);
  CHECK(skipped.summary["samples_used_once"] == 203);
  CHECK(skipped.summary["samples_missing"] == 0);
  CHECK(skipped.summary["loss_last"].is_number());
  CHECK(has(skipped.err, fmt::format("step {}: ", kAt)));
  CHECK(has(skipped.err, "its update is skipped, its samples count as used"));
  const auto commits = job.ledger("commit");
  REQUIRE(commits.size() == kAllSteps);
  for (size_t step = 0; step < commits.size(); ++step) CHECK(commits[step].contains("skipped") == (step == kAt));
}

TEST_CASE("a step that is skipped changes nothing, at every number of workers") {
  std::string weights;
  for (const int workers : {1, 2, 4}) {
    CAPTURE(workers);
    JobRunner job;
    job.config(config_with("nan_loss", -1,
                           fmt::format("workers = {}\ndeterministic = true\non_nonfinite = \"skip\"", workers)));
    const Ended ended = job.run_json({"--inject", fmt::format("kill:rank=0,step={},at=commit", kAt)});
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(ended.summary["steps_skipped"] == 1);
    if (weights.empty()) weights = job.snapshot();
    CHECK(job.snapshot() == weights);
  }
}

TEST_CASE(
    "steps are skipped, and counted, whether one rank or all have no number, in the gradient or in the loss only") {
  struct Kind {
    const char* how;
    int rank;
  };
  for (const char* mode : {"false", "true"}) {
    for (const Kind kind : {Kind{"nan_gradient", 0}, Kind{"nan_gradient", -1}, Kind{"nan_loss", 1},
                            Kind{"nan_loss", -1}, Kind{"inf_gradient", 1}, Kind{"overflow", -1}}) {
      INFO(std::string(kind.how) << " on " << kind.rank << ", deterministic = " << std::string(mode));
      JobRunner job;
      job.config(config_with(kind.how, kind.rank,
                             fmt::format("workers = 2\ndeterministic = {}\non_nonfinite = \"skip\"", mode)));
      const Ended ended = job.run_json();
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      CHECK(ended.summary["steps"] == kAllSteps);
      CHECK(ended.summary["steps_skipped"] == 1);
      CHECK(ended.summary["samples_used_once"] == 203);
      CHECK(ended.summary["loss_first"].is_number());
      const auto commits = job.ledger("commit");
      REQUIRE(commits.size() == kAllSteps);
      CHECK(commits[kAt]["skipped"] == true);
      const auto before = job.parts_of_state(kAt);
      CHECK(before.size() == 2);
      CHECK(before == job.parts_of_state(kAt + 1));
      CHECK(before != job.parts_of_state(kAt + 2));
      const Ended audited = job.run({"audit", job.latest().string()});
      CHECK(audited.exit_code == 0);
      CHECK(has(audited.out, "steps without update"));
    }
  }
  JobRunner shown;
  shown.config(config_with("nan_loss", 1, "workers = 2\non_nonfinite = \"skip\""));
  CHECK(has(shown.run({"run", "pliant.toml"}).out, "steps without update"));
}

TEST_CASE("with on_nonfinite = ignore nobody looks") {
  JobRunner job;
  job.config(config_with("nan_loss", 0, "workers = 2\non_nonfinite = \"ignore\""));
  const Ended ended = job.run_json();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(ended.summary["steps"] == kAllSteps);
  CHECK(ended.summary["steps_skipped"] == 0);
  CHECK(job.ledger("commit")[kAt]["loss"] == "nan");
  CHECK(job.ledger("not_finite").empty());
}
