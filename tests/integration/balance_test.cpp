// Balancers in whole jobs: they move work, never a bit of the weights.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "integration/job_runner.hpp"

using namespace pliant::test;

namespace {

struct Outcome {
  std::string snapshot;
  std::vector<std::string> batches;
  std::vector<nlohmann::json> shares;
  int generations = 0;
};

Outcome run(int workers, const std::string& balancer, const std::vector<std::string>& more = {}) {
  JobRunner job;
  job.config(toy_config(fmt::format("workers = {}\ndeterministic = true\nmax_restarts = 9", workers)) +
             "[balancer]\ncost_per_square = 1\n" + balancer);
  std::vector<std::string> words{"run", "pliant.toml", "--json"};
  words.insert(words.end(), more.begin(), more.end());
  const Ended ended = job.run(words);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["samples_used_once"] == 203);
  CHECK(ended.summary["samples_missing"] == 0);
  Outcome outcome{job.snapshot(), {}, {}, ended.summary["generations"].get<int>()};
  for (const auto& record : job.ledger("commit")) {
    outcome.batches.push_back(record["digest"].get<std::string>() + record["batch"].dump());
    outcome.shares.push_back(record["shares"]);
  }
  return outcome;
}

const Outcome& contiguous() {
  static const Outcome kAlone = run(1, "");
  return kAlone;
}

const std::vector<std::string> kBalancers{
    "use = \"round_robin\"\n", "use = \"cost_sort\"\n[balancer.cost_sort]\nwindow = 1\n", "use = \"lpt\"\n",
    "use = \"karmarkar_karp\"\n[balancer.karmarkar_karp]\nequal_counts = false\n"};

}  // namespace

TEST_CASE("with every balancer the weights are bitwise those of one worker without") {
  for (const std::string& balancer : kBalancers) {
    for (const int workers : {2, 4}) {
      CAPTURE(balancer);
      CAPTURE(workers);
      const Outcome balanced = run(workers, balancer);
      CHECK(balanced.snapshot == contiguous().snapshot);
      CHECK(balanced.batches == contiguous().batches);
    }
  }
}

TEST_CASE("the ledger has the rows that each rank computed, in runs where there are runs") {
  const Outcome in_turn = run(2, "use = \"round_robin\"\n");
  CHECK(in_turn.shares.front() == nlohmann::json::parse("[[[0,2],[4,2]],[[2,2],[6,2]]]"));
  const Outcome in_runs = run(2, "");
  CHECK(in_runs.shares.front() == nlohmann::json::parse("[[0,4],[4,4]]"));
}

TEST_CASE("with a balancer workers die and join at any point of a step and the weights come out bitwise the same") {
  for (const char* at : {"forward", "reduce", "vote", "commit", "apply"}) {
    CAPTURE(at);
    const Outcome disturbed = run(4, kBalancers[2],
                                  {"--inject", fmt::format("kill:rank=0,step=5,at={}", at), "--inject",
                                   fmt::format("kill:rank=1,step=14,at={}", at)});
    CHECK(disturbed.generations >= 3);
    CHECK(disturbed.snapshot == contiguous().snapshot);
    CHECK(disturbed.batches == contiguous().batches);
  }
}

TEST_CASE("a job may be resumed with another balancer and another number of workers") {
  JobRunner job;
  const std::string config =
      toy_config("workers = 4\ndeterministic = true\nsnapshot_every = 5") + "[balancer]\nuse = \"lpt\"\n";
  job.config(config);
  REQUIRE(job.run({"run", "pliant.toml", "--json", "--inject", "kill:agent,step=12,at=commit"}).exit_code == 128 + 9);
  const Ended resumed = job.run({"run", "pliant.toml", "--json", "--resume", "--workers", "2", "--set",
                                 "balancer.use=cost_sort", "--set", "balancer.cost_per_square=7"});
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(job.snapshot() == contiguous().snapshot);
}

TEST_CASE("without deterministic mode the costliest micro-batch of every rank comes first and the loss agrees") {
  std::vector<std::vector<double>> curves;
  for (const char* use : {"contiguous", "lpt"}) {
    JobRunner job;
    job.config(toy_config("workers = 2") + "[balancer]\nuse = \"" + use + "\"\n");
    const Ended ended = job.run({"run", "pliant.toml", "--json"});
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    curves.emplace_back();
    for (const auto& record : job.ledger("commit")) curves.back().push_back(record["loss"].get<double>());
  }
  REQUIRE(curves[0].size() == curves[1].size());
  for (size_t i = 0; i < curves[0].size(); ++i) CHECK(curves[1][i] == doctest::Approx(curves[0][i]).epsilon(1e-5));
}

TEST_CASE("a job that fits costs to times ends with the same weights, whatever the times say") {
  JobRunner job;
  job.config(toy_config("workers = 2\ndeterministic = true\nepochs = 4", "square_ns = 1000") +
             "[balancer]\nuse = \"lpt\"\nfit = true\n");
  const Ended ended = job.run({"run", "pliant.toml", "--json"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  JobRunner plain;
  plain.config(toy_config("workers = 1\ndeterministic = true\nepochs = 4"));
  REQUIRE(plain.run({"run", "pliant.toml", "--json"}).exit_code == 0);
  CHECK(job.snapshot() == plain.snapshot());
}

namespace {

/// `toml` of a job that waits for a replacement.
std::string with_all(std::string toml, int workers) {
  return toml.replace(toml.find("[sampler]"), 0, fmt::format("min_gpus = {}\n", workers));
}

std::string moody_config(const std::string& run_keys) {
  return toy_config(run_keys) + "[balancer]\nuse = \"moody\"\npath = \"" + PLIANT_TEST_MOODY_BALANCER + "\"\n";
}

}  // namespace

TEST_CASE("workers whose balancers disagree end the job before a step, both named") {
  const Environment mood(std::map<std::string, std::string>{{"TEST_MOOD", "rank"}});
  JobRunner job;
  job.config(moody_config("workers = 2\ndeterministic = true"));
  const Ended ended = job.run({"run", "pliant.toml", "--json"});
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "there is no majority (worker 0: answers of digest "));
  CHECK(has(ended.err, ", worker 1: answers of digest "));
  CHECK(job.processes_left() == 0);
}

TEST_CASE(
    "a worker whose balancer answers otherwise than the job's is named and replaced, and disturbs no generation") {
  const Environment mood(std::map<std::string, std::string>{{"TEST_MOOD", "restart"}});
  JobRunner job;
  job.config(moody_config("workers = 2\ndeterministic = true"));
  const Ended ended = job.run_json({"--inject", "kill:rank=1,step=5"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["restarts"] == 2);
  CHECK(has(ended.err, "has another balancer or learning-rate rule than the other workers (answers of digest "));
  CHECK(job.ledger("generation").size() <= 3);
  CHECK(ended.summary["samples_used_once"] == 203);
}

TEST_CASE("a worker whose balancer differs only in later steps is named and replaced before such a step is committed") {
  const Environment mood(std::map<std::string, std::string>{{"TEST_MOOD", "later"}});
  JobRunner job;
  job.config(with_all(moody_config("workers = 2\ndeterministic = true"), 2));
  const Ended ended = job.run_json({"--inject", "kill:rank=1,step=5"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["restarts"] == 2);
  CHECK(has(ended.err,
            "got another assignment of step 5 from its balancer than the agent and was killed; plugins must be the "
            "same on all machines"));
  CHECK_FALSE(has(ended.err, "has another balancer"));
  CHECK(ended.summary["samples_used_once"] == 203);
  CHECK(ended.summary["samples_repeated"] == 0);
  JobRunner plain;
  plain.config(toy_config("workers = 1\ndeterministic = true"));
  REQUIRE(plain.run({"run", "pliant.toml", "--json"}).exit_code == 0);
  CHECK(job.snapshot() == plain.snapshot());
}

TEST_CASE("a worker with another build of a plugin that gives the same answers takes part, and its file is named") {
  namespace fs = std::filesystem;
  const Environment mood(std::map<std::string, std::string>{{"TEST_MOOD", "none"}});
  JobRunner job;
  const fs::path own = job.folder() / "libmoody.so";
  fs::copy_file(PLIANT_TEST_MOODY_BALANCER, own);
  job.config(with_all(toy_config("workers = 2\ndeterministic = true", "step_ms = 20"), 2) +
             "[balancer]\nuse = \"moody\"\npath = \"libmoody.so\"\n");
  const pid_t pid = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(pid, 3));
  fs::copy_file(own, job.folder() / "other.so");
  std::ofstream(job.folder() / "other.so", std::ios::app) << "built by another compiler";
  fs::rename(job.folder() / "other.so", own);  // what runs keeps what it has opened
  ::kill(job.worker(1), SIGKILL);
  const Ended ended = job.wait(pid);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["restarts"] == 1);
  CHECK(has(ended.err, "has other plugin files than the workers that the job began with (balancer moody 1.0.0 "));
  CHECK(ended.summary["samples_used_once"] == 203);
}

TEST_CASE("a balancer whose processes disagree ends the job with its step") {
  JobRunner job;
  job.config(moody_config("workers = 2\ndeterministic = true"));
  const Ended ended = job.run({"run", "pliant.toml", "--json"});
  INFO(ended.err);
  CHECK(ended.exit_code == 3);
  CHECK(ended.err.find("step 0: the balancer gave rank ") != std::string::npos);
  CHECK(job.processes_left() == 0);
}
