// Jobs of several epochs: a worker that joins, or resumes, in one of them plans that one and none of those before.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "integration/sharded_jobs.hpp"

namespace fs = std::filesystem;
using namespace pliant::test;

namespace {

constexpr int64_t kStepsOfEpoch = 26;  // 203 sequences, 8 a batch

/// `more` of [run]; the sampler says each epoch that it plans.
std::string counting_config(const std::string& more, const std::string& app_keys = "") {
  std::string toml = toy_config("deterministic = true\nepochs = 6\nsnapshot_every = 10\n" + more, app_keys);
  const std::string fixed = "use = \"fixed\"\n[sampler.fixed]\norder = \"random\"\n";
  REQUIRE(toml.find(fixed) != std::string::npos);
  toml.replace(toml.find(fixed), fixed.size(), "use = \"counting\"\n");
  return toml + fmt::format("[plugins]\ndirs = [\"{}\"]\n", PLIANT_TEST_COUNTING_DIR);
}

/// Epochs that this log tells were planned, as "3 4 ".
std::string planned_in(const std::string& text) {
  const std::regex words("plans epoch ([0-9]+)");
  std::string epochs;
  for (std::sregex_iterator at(text.begin(), text.end(), words), end; at != end; ++at) epochs += (*at)[1].str() + " ";
  return epochs;
}

/// Epochs that the worker of this log planned.
std::string planned_by(const JobRunner& job, const std::string& log) {
  return planned_in(read_all(job.latest() / "logs" / log));
}

/// What the job ends with that nothing disturbs.
const std::string& undisturbed_run() {
  static const std::string one = [] {
    JobRunner job;
    job.config(counting_config("workers = 1"));
    const Ended ended = job.run_json();
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    return job.snapshot();
  }();
  return one;
}

}  // namespace

TEST_CASE("a worker that joins in the fifth epoch plans it and those after it, and none of those before") {
  const Environment says(std::map<std::string, std::string>{{"PLIANT_LOG", "info"}});
  JobRunner job;
  std::string toml = counting_config("workers = 2");
  toml.replace(toml.find("[sampler]"), 0, "min_gpus = 2\n");  // the other rank waits for it
  job.config(toml);
  const int64_t step = 4 * kStepsOfEpoch + 5;
  const Ended ended = job.run_json({"--inject", fmt::format("kill:rank=1,step={}", step)});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["restarts"] == 1);
  CHECK(planned_by(job, "rank-0.log") == "0 1 2 3 4 5 ");
  CHECK(planned_by(job, "rank-1.restart-1.log") == "4 5 ");
  CHECK(job.snapshot() == undisturbed_run());
}

TEST_CASE("workers that resume in the fourth epoch plan it and those after it, at another number of workers, too") {
  const Environment says(std::map<std::string, std::string>{{"PLIANT_LOG", "info"}});
  JobRunner job;
  job.config(counting_config("workers = 2"));
  const int64_t step = 4 * kStepsOfEpoch + 2;  // the newest snapshot is of the epoch before
  const Ended killed = job.run({"run", "pliant.toml", "--inject", fmt::format("kill:agent,step={},at=vote", step)});
  CHECK(killed.exit_code == 128 + SIGKILL);
  job.wait_for_processes();
  for (const auto& log : fs::directory_iterator(job.latest() / "logs")) fs::remove(log);
  const Ended resumed = job.run_json({"--resume", "--workers", "4"});
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(resumed.summary["resumed_from"] == 100);
  for (const char* const log : {"rank-0.log", "rank-3.log"}) CHECK(planned_by(job, log) == "3 4 5 ");
  // The agent as well, and the next one for whether more steps than are committed are left. Its summary counts all.
  CHECK(planned_in(resumed.err) == "3 4 3 4 5 0 1 2 3 4 5 ");
  CHECK(job.snapshot() == undisturbed_run());
}

TEST_CASE("an agent that resumes in the epoch of its snapshot plans that one, and none of those before") {
  const Environment says(std::map<std::string, std::string>{{"PLIANT_LOG", "info"}});
  JobRunner job;
  job.config(counting_config("workers = 2"));
  const int64_t step = 4 * kStepsOfEpoch + 12;
  const Ended killed = job.run({"run", "pliant.toml", "--inject", fmt::format("kill:agent,step={},at=vote", step)});
  CHECK(killed.exit_code == 128 + SIGKILL);
  job.wait_for_processes();
  const Ended resumed = job.run_json({"--resume"});
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(resumed.summary["resumed_from"] == 110);
  CHECK(planned_in(resumed.err) == "4 5 0 1 2 3 4 5 ");  // all once more for its summary
  CHECK(job.snapshot() == undisturbed_run());
}

TEST_CASE(
    "a worker whose sampler gives other rows than the job's is named and replaced, and no generation ends for it") {
  const Environment replaced(std::map<std::string, std::string>{{"TEST_TURN_ROWS_OF_RESTART", "1"}});
  JobRunner job;
  job.config(counting_config("workers = 2"));
  const int64_t step = 4 * kStepsOfEpoch + 5;
  const Ended ended = job.run_json({"--inject", fmt::format("kill:rank=1,step={}", step)});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(has(ended.err, "sampler 'counting' gives other rows for epoch 4 than when the position was saved"));
  const auto generations = job.ledger("generation");
  REQUIRE(generations.size() >= 2);
  CHECK(generations.size() <= 3);
  CHECK(generations[1].at("world_size") == 1);
  CHECK(job.snapshot() == undisturbed_run());
}

TEST_CASE(
    "a worker whose sampler gives other rows in later epochs only is named and replaced as the first one begins") {
  const Environment replaced(std::map<std::string, std::string>{{"TEST_TURN_ROWS_OF_RESTART", "1"}});
  JobRunner job;
  std::string toml = counting_config("workers = 2");
  toml.replace(toml.find("[sampler]"), 0, "min_gpus = 2\n");
  job.config(toml);
  // Its replacement is rank 1, and then rank 0, which tells in epochs.jsonl where epochs begin.
  const Ended ended = job.run_json({"--inject", "kill:rank=0,step=5", "--inject", "kill:rank=0,step=12"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["restarts"] == 3);
  CHECK(has(ended.err, "rank 0 (worker 2) got other rows"));
  CHECK(has(ended.err,
            fmt::format("other rows of step {} from its sampler than the agent and was killed", kStepsOfEpoch)));
  CHECK(ended.summary["samples_repeated"] == 0);
  CHECK(job.snapshot() == undisturbed_run());
}

TEST_CASE("a job that waits for a worker whose sampler gives other rows than the job's goes on with the next one") {
  const Environment replaced(std::map<std::string, std::string>{{"TEST_TURN_ROWS_OF_RESTART", "1"}});
  JobRunner job;
  std::string toml = counting_config("workers = 2");
  toml.replace(toml.find("[sampler]"), 0, "min_gpus = 2\n");
  job.config(toml);
  const int64_t step = 4 * kStepsOfEpoch + 5;
  const Ended ended = job.run_json({"--inject", fmt::format("kill:rank=1,step={}", step)});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["restarts"] == 2);
  CHECK(job.ledger("generation").size() == 2);
  CHECK(job.snapshot() == undisturbed_run());
}

TEST_CASE("a worker that joins a job in shards in its third epoch plans that one alone") {
  const Environment says(std::map<std::string, std::string>{{"PLIANT_LOG", "info"}});
  JobRunner job;
  const std::vector<std::string> sets{fmt::format("run.command=[\"{}/sharded_worker\"]", PLIANT_TEST_BIN_DIR),
                                      fmt::format("plugins.dirs=[\"{}\"]", PLIANT_TEST_COUNTING_DIR),
                                      "sampler.use=\"counting\"", "run.max_steps=100", "app.width=100"};
  // 1000 sequences, 24 a batch: 42 steps in an epoch.
  const Ended ended = job.run(disturbed(sharded_job(2, sets), {"kill:rank=1,step=90"}));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary.at("restarts") == 1);
  CHECK(planned_by(job, "rank-0.log") == "0 1 2 ");
  CHECK(planned_by(job, "rank-1.restart-1.log") == "2 ");
}

TEST_CASE("a resume is refused where the sampler gives other rows than it did, though the list of epochs is there") {
  JobRunner job;
  job.config(counting_config("workers = 2"));
  const Ended killed = job.run({"run", "pliant.toml", "--inject", "kill:agent,step=60,at=vote"});
  CHECK(killed.exit_code == 128 + SIGKILL);
  job.wait_for_processes();
  REQUIRE(fs::exists(job.latest() / "epochs.jsonl"));
  {
    const Environment turned(std::map<std::string, std::string>{{"TEST_TURN_ROWS", "1"}});
    const Ended refused = job.run({"run", "pliant.toml", "--resume"});
    INFO(refused.err);
    CHECK(refused.exit_code == 2);
    CHECK(has(refused.err, "sampler 'counting' gives other rows for epoch 1 than when the position was saved"));
  }
  CHECK(job.run({"run", "pliant.toml", "--resume"}).exit_code == 0);
}

TEST_CASE("a list of epochs that is damaged, or cannot be written, costs plans and changes nothing else") {
  const Environment says(std::map<std::string, std::string>{{"PLIANT_LOG", "info"}});
  JobRunner job;
  job.config(counting_config("workers = 2"));
  const Ended killed = job.run({"run", "pliant.toml", "--inject", fmt::format("kill:agent,step=60,at=vote")});
  CHECK(killed.exit_code == 128 + SIGKILL);
  job.wait_for_processes();
  const fs::path list = job.latest() / "epochs.jsonl";
  REQUIRE(fs::exists(list));
  fs::remove(list);
  fs::create_directory(list);
  for (const auto& log : fs::directory_iterator(job.latest() / "logs")) fs::remove(log);
  const Ended resumed = job.run_json({"--resume"});
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(planned_by(job, "rank-0.log") == "0 1 2 3 4 5 ");
  CHECK(has(read_all(job.latest() / "logs/rank-0.log"), "epochs.jsonl"));
  CHECK(job.snapshot() == undisturbed_run());
}

TEST_CASE("a job whose run directory is removed takes its list of epochs along: a resume plans none of those before") {
  const Environment says(std::map<std::string, std::string>{{"PLIANT_LOG", "info"}});
  JobRunner job;
  job.config(counting_config("workers = 2", "step_ms = 20"));
  const pid_t pid = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(pid, 3 * kStepsOfEpoch + 5));
  const fs::path run = job.latest();
  fs::rename(run, job.folder() / "moved away");
  const Ended ended = job.wait(pid);
  INFO(ended.err);
  CHECK(ended.exit_code == 1);
  const fs::path rescued = run.string() + "-rescued";
  REQUIRE(ended.summary["directory"] == rescued.string());
  const Ended resumed =
      job.run({"run", "pliant.toml", "--json", "--resume", rescued.string(), "--set", "app.step_ms=0"});
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(planned_in(read_all(rescued / "logs" / "rank-0.log")) == "3 4 5 ");
  CHECK(resumed.summary["samples_used_once"] == 6 * 203);
}
