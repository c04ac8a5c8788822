// Jobs over rows that somebody made beforehand: killed, resized and resumed; with costs of their own.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "integration/given_rows.hpp"
#include "integration/job_runner.hpp"

namespace rows_test {

using namespace pliant::test;

namespace {

constexpr int64_t kSequences = 203;  // of the toy worker

void write_rows(const JobRunner& job, int64_t stride = 89) {
  write_rows(job.folder(), packed(kSequences, stride));
}

std::string rows_config(const std::string& run_keys, const std::string& app_keys = "", const std::string& more = "") {
  std::string toml = toy_config("deterministic = true\n" + run_keys, app_keys);
  const std::string fixed = "use = \"fixed\"\n[sampler.fixed]\norder = \"random\"\n";
  toml.replace(
      toml.find(fixed), fixed.size(),
      "use = \"rows\"\n[sampler.rows]\noffsets = \"offsets.npy\"\nids = \"ids.npy\"\norder = \"random\"\n" + more);
  return toml;
}

struct Whole {
  std::string snapshot;
  std::vector<std::string> batches;
  std::vector<nlohmann::json> shares;
};

Whole whole_run(int workers, const std::string& more = "") {
  JobRunner job;
  write_rows(job);
  std::vector<int64_t> costs;  // of the first row as much as of all others together
  for (size_t row = 0; row + 1 < packed(kSequences).offsets.size(); ++row) costs.push_back(row == 0 ? 1000 : 1);
  write_npy(job.folder() / "costs.npy", costs);
  job.config(rows_config(fmt::format("workers = {}", workers), "", more));
  const Ended ended = job.run_json();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["samples_used_once"] == kSequences);
  Whole whole{job.snapshot(), {}, {}};
  for (const auto& record : job.ledger("commit")) {
    whole.batches.push_back(record["digest"].get<std::string>());
    whole.shares.push_back(record["shares"]);
  }
  return whole;
}

/// Without step, rate and fingerprint, which counts the costs in.
std::string without_first_line(const std::string& snapshot) {
  return snapshot.substr(snapshot.find('\n'));
}

}  // namespace

TEST_CASE("a job over given rows has the same weights at every world size, bit by bit") {
  const Whole alone = whole_run(1);
  const Whole four = whole_run(4);
  CHECK(four.snapshot == alone.snapshot);
  CHECK(four.batches == alone.batches);
}

TEST_CASE("a job over given rows that is killed and resumed at another size ends with the same weights, bit by bit") {
  JobRunner job;
  write_rows(job);
  job.config(rows_config("workers = 4\nsnapshot_every = 4"));
  const Ended killed = job.run({"run", "pliant.toml", "--inject", "kill:agent,step=10,at=commit"});
  CHECK(killed.exit_code == 128 + SIGKILL);
  job.wait_for_processes();
  const Ended resumed = job.run_json({"--resume", "--workers", "2"});
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(resumed.summary["resumed_from"] == 8);
  CHECK(resumed.summary["samples_used_once"] == kSequences);
  CHECK(resumed.summary["samples_repeated"] == 0);
  CHECK(job.snapshot() == whole_run(2).snapshot);
}

TEST_CASE("a worker that is killed is replaced, and the rows are as if it had lived") {
  JobRunner job;
  write_rows(job);
  job.config(rows_config("workers = 4\nmax_restarts = 3"));
  const Ended ended = job.run_json({"--inject", "kill:rank=2,step=5,at=vote"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["samples_used_once"] == kSequences);
  CHECK(job.snapshot() == whole_run(2).snapshot);
}

TEST_CASE(
    "a resume with other rows is refused and changes nothing, and with the same ones at another place it goes on") {
  JobRunner job;
  write_rows(job);
  job.config(rows_config("workers = 2\nsnapshot_every = 2", "step_ms = 20"));
  const pid_t pid = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(pid, 4));
  ::kill(pid, SIGINT);
  REQUIRE(job.wait(pid).exit_code == 130);
  const std::string before = job.snapshot();
  write_rows(job, 90);
  const Ended other = job.run_json({"--resume"});
  INFO(other.err);
  CHECK(other.exit_code == 2);
  CHECK(has(other.err, "the given rows have changed: this job began with others"));
  CHECK(job.snapshot() == before);
  std::filesystem::create_directory(job.folder() / "moved");
  write_rows(job);
  std::filesystem::rename(job.folder() / "ids.npy", job.folder() / "moved" / "ids.npy");
  const Ended resumed = job.run_json({"--resume", "--set", "sampler.rows.ids=moved/ids.npy"});
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(resumed.summary["samples_used_once"] == kSequences);
  CHECK(job.snapshot() == whole_run(2).snapshot);
}

TEST_CASE("costs of rows move work between ranks, and never a bit of the weights") {
  const Whole by_tokens = whole_run(2, "[balancer]\nuse = \"lpt\"\n");
  const Whole by_costs = whole_run(2, "[balancer]\nuse = \"lpt\"\nrow_costs = \"costs.npy\"\n");
  CHECK(without_first_line(by_costs.snapshot) == without_first_line(by_tokens.snapshot));
  CHECK(by_costs.batches == by_tokens.batches);
  CHECK(by_costs.shares != by_tokens.shares);
}

TEST_CASE("rows that are wrong end a job before its first step, with the file and the place in it") {
  JobRunner job;
  write_rows(job);
  Packed rows = packed(kSequences);
  rows.ids[7] = 999;
  write_npy(job.folder() / "ids.npy", rows.ids);
  job.config(rows_config("workers = 2"));
  const Ended ended = job.run_json();
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "ids.npy: id 7 is 999"));
  CHECK(job.processes_left() == 0);
}

}  // namespace rows_test
