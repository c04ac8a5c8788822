// What a job is resumed from when its agent died: the newest snapshot whose state the ranks had agreed on.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <filesystem>
#include <string>

#include "integration/job_runner.hpp"

using namespace pliant::test;
namespace fs = std::filesystem;

namespace {

constexpr const char* kLeftOut = "step-00000008.snapshot: the job ended before the ranks had confirmed its state";

/// A job with snapshots of 4 and 8 steps, whose agent dies when all ranks have voted for step 8 and it is not recorded.
void lose_agent(JobRunner& job, const std::string& run_keys, const std::string& at = "step=8,at=vote") {
  job.config(toy_config("deterministic = true\nsnapshot_every = 4\n" + run_keys));
  const Ended killed = job.run_json({"--inject", "kill:agent," + at});
  INFO(killed.err);
  REQUIRE(killed.exit_code == 128 + SIGKILL);
  job.wait_for_processes();
  REQUIRE(fs::exists(job.latest() / "snapshots/step-00000008.snapshot"));
}

const std::string& unlost_run() {
  static const std::string kSnapshot = [] {
    JobRunner job;
    job.config(toy_config("workers = 2\ndeterministic = true"));
    REQUIRE(job.run_json().exit_code == 0);
    return job.snapshot();
  }();
  return kSnapshot;
}

}  // namespace

TEST_CASE("a snapshot of a state that no vote confirmed is left out on a resume, and the one before it is taken") {
  for (const char* every : {"1", "5"}) {  // whoever writes a snapshot has its state compared, however seldom others are
    INFO("digest_every = " << std::string(every));
    JobRunner job;
    lose_agent(job, fmt::format("workers = 2\ndigest_every = {}", every));
    CHECK(job.ledger("snapshot").back()["unconfirmed"] == true);
    const Ended resumed = job.run_json({"--resume"});
    INFO(resumed.err);
    REQUIRE(resumed.exit_code == 0);
    CHECK(resumed.summary["resumed_from"] == 4);
    CHECK(has(resumed.err, kLeftOut));
    CHECK(has(resumed.err, "in the vote on step 8; going back to the previous one"));
    CHECK(resumed.summary["samples_used_once"] == 203);
    CHECK(resumed.summary["samples_repeated"] == 0);
    CHECK(job.snapshot() == unlost_run());
  }
}

TEST_CASE(
    "a snapshot counts once a vote confirmed it, where nobody compares, and where there is nobody to compare with") {
  struct Kind {
    const char* run_keys;
    const char* at;
  };
  for (const Kind kind :
       {Kind{"workers = 2", "step=8,at=commit"}, Kind{"workers = 2\ndigest_every = 5", "step=8,at=commit"},
        Kind{"workers = 2\ndigest_every = 0", "step=8,at=vote"}, Kind{"workers = 1", "step=8,at=vote"}}) {
    INFO(std::string(kind.run_keys) << ", " << std::string(kind.at));
    JobRunner job;
    lose_agent(job, kind.run_keys, kind.at);
    const Ended resumed = job.run_json({"--resume"});
    INFO(resumed.err);
    REQUIRE(resumed.exit_code == 0);
    CHECK(resumed.summary["resumed_from"] == 8);
    CHECK_FALSE(has(resumed.err, "skipping the snapshot"));
    CHECK(job.snapshot() == unlost_run());
  }
}

TEST_CASE("where the only snapshot is not confirmed the job begins anew, and says why") {
  JobRunner job;
  job.config(toy_config("workers = 2\ndeterministic = true\nsnapshot_every = 8"));
  REQUIRE(job.run_json({"--inject", "kill:agent,step=8,at=vote"}).exit_code == 128 + SIGKILL);
  job.wait_for_processes();
  const Ended resumed = job.run_json({"--resume"});
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(resumed.summary["resumed_from"] == 0);
  CHECK(has(resumed.err, kLeftOut));
  CHECK(resumed.summary["samples_used_once"] == 203);
  CHECK(job.snapshot() == unlost_run());
}

TEST_CASE("a wrong state that its rank wrote and was lost with is no snapshot of the job") {
  JobRunner job;
  job.config(toy_config("workers = 4\ndeterministic = true\nsnapshot_every = 8\nkeep_snapshots = 9",
                        misbehaving("flip_bit", 0, 7)));
  const Ended ended = job.run_json({"--inject", "kill:rank=0,step=8,at=forward"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(has(ended.err, "the snapshot of step 8 is dropped: its writer was lost before its state was compared"));
  CHECK_FALSE(fs::exists(job.latest() / "snapshots/step-00000008.snapshot"));
  CHECK(fs::exists(job.latest() / "snapshots/step-00000009.snapshot"));  // by one of those that agreed
  CHECK(job.snapshot() == unlost_run());
}

TEST_CASE(
    "a snapshot whose state all holders took with them is dropped before it was confirmed: the one before it counts") {
  JobRunner job;
  job.config(toy_config("workers = 2\ndeterministic = true\nsnapshot_every = 4"));
  const pid_t agent = job.start({"run", "pliant.toml", "--json", "--inject", "stop:rank=1,step=8"});
  REQUIRE(job.wait_for_records(agent, "snapshot", 2));
  REQUIRE(job.wait_for_words(agent, "injected stop of rank 1"));  // nobody votes on step 8
  for (const int64_t rank : {0, 1}) ::kill(job.worker(rank), SIGKILL);
  const Ended ended = job.wait(agent);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(job.snapshot() == unlost_run());
  CHECK(ended.summary["samples_used_once"] == 203);
  REQUIRE_FALSE(job.ledger("restart").empty());
  CHECK(job.ledger("restart").back()["step"] == 4);
  CHECK(
      has(ended.err, "the snapshot of step 8 is dropped: all workers with its state were lost before it was compared"));
  CHECK(has(ended.err, "no worker holds step 8: going back to the snapshot of step 4"));
}

TEST_CASE("a job that is stopped by what is not finite keeps its last step, compared by whatever digest_every says") {
  for (const char* every : {"1", "5"}) {
    INFO("digest_every = " << std::string(every));
    JobRunner job;
    job.config(toy_config(fmt::format("workers = 2\ndigest_every = {}", every),
                          misbehaving("nan_loss", 1, 7) + "misbehave_always = true"));
    const Ended ended = job.run_json();
    INFO(ended.err);
    CHECK(ended.exit_code == 1);
    const auto snapshots = job.ledger("snapshot");
    REQUIRE(snapshots.size() == 1);
    CHECK(snapshots.back()["step"] == 7);
    CHECK(snapshots.back().contains("state"));
    const Ended again = job.run_json({"--resume"});
    CHECK(again.summary["resumed_from"] == 7);
    CHECK(has(again.summary["reason"], "as when the job ended at this step before"));
  }
  JobRunner wrong;  // of three states that are compared then, one is another
  wrong.config(toy_config("workers = 4\ndigest_every = 5",
                          misbehaving("nan_loss", 1, 7) + "misbehave_always = true\nflip_on = 0\nflip_at = 6"));
  const Ended ended = wrong.run_json();
  INFO(ended.err);
  CHECK(ended.exit_code == 1);
  CHECK(has(ended.err, "rank 0 (worker 0) ended with another state than the other ranks ("));
  CHECK(wrong.ledger("snapshot").back()["step"] == 7);
}
