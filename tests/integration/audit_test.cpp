// `pliant audit` on runs that were disturbed, rescued or forged.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "integration/job_runner.hpp"

using namespace pliant::test;
using pliant::elastic::CommitRecord;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kDisturbedStep = 5;  ///< that is disturbed
constexpr size_t kAuditedSteps = 26;

Ended audit_against(JobRunner& job, const fs::path& against) {
  return job.run({"audit", job.latest().string(), "--against", against.string(), "--json"});
}

/// Steps of a run whose state is in its ledger, and not among the digests beside it.
std::vector<int64_t> unkept_states(const fs::path& run) {
  std::set<std::pair<int64_t, std::string>> kept;
  std::ifstream in(run / "digests.jsonl");
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line);
    kept.emplace(json.at("step").get<int64_t>(), json.at("root").get<std::string>());
  }
  const pliant::elastic::Lineage lineage = pliant::or_throw(pliant::elastic::Ledger::replay(run / "ledger.jsonl"));
  REQUIRE(lineage.commits.size() == kAuditedSteps);
  std::vector<int64_t> unkept;
  for (const CommitRecord& commit : lineage.commits) {
    if (!commit.state || !kept.contains({commit.step, fmt::format("{:016x}", *commit.state)}))
      unkept.push_back(commit.step);
  }
  return unkept;
}

}  // namespace

TEST_CASE(
    "what a state is compared by is kept for every step that is committed, whoever dies between vote and update") {
  for (const char* at : {"vote", "commit", "apply"}) {
    INFO("at " << std::string(at));
    JobRunner job;
    job.config(toy_config("workers = 2\ndeterministic = true", ""));
    const Ended ended = job.run_json({"--inject", fmt::format("kill:rank=0,step={},at={}", kDisturbedStep, at)});
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(ended.summary["restarts"] == 1);
    CHECK(unkept_states(job.latest()).empty());
    JobRunner other;
    other.config(toy_config("workers = 1\ndeterministic = true", misbehaving("flip_bit", 0, kDisturbedStep - 1)));
    REQUIRE(other.run_json().exit_code == 0);
    const Ended compared = audit_against(job, other.latest());
    CHECK(compared.summary["against"]["step"] == kDisturbedStep);
    CHECK(compared.summary["against"]["parts"] == nlohmann::json::array({"weights"}));
  }
}

TEST_CASE("a rescued run has what its states are compared by, and an audit says so of one that has not") {
  for (const char* lost : {"", "ledger.jsonl"}) {
    INFO("lost: " << std::string(lost));
    JobRunner job;
    job.config(toy_config("workers = 2\ndeterministic = true\nsnapshot_every = 4", "step_ms = 20"));
    const pid_t pid = job.start({"run", "pliant.toml", "--json"});
    REQUIRE(job.wait_for_commits(pid, kDisturbedStep));
    const fs::path run = job.latest();
    const std::string rescued = run.string() + "-rescued";
    fs::rename(run / lost, job.folder() / "gone");
    fs::remove_all(job.folder() / "gone");
    CHECK(job.wait(pid).exit_code == 1);
    const Ended resumed = job.run({"run", "pliant.toml", "--json", "--resume", rescued, "--set", "app.step_ms=0"});
    INFO(resumed.err);
    REQUIRE(resumed.exit_code == 0);
    CHECK(unkept_states(rescued).empty());
    JobRunner other;
    other.config(toy_config("workers = 1\ndeterministic = true", misbehaving("flip_bit", 0, 1)));
    REQUIRE(other.run_json().exit_code == 0);
    const Ended told = other.run({"audit", rescued, "--against", other.latest().string()});
    CHECK(told.exit_code == 1);
    CHECK_MESSAGE(has(told.out, "step 2 begins with another state: weights"), told.out << told.err);
    fs::remove(fs::path(rescued) / "digests.jsonl");
    const Ended untold = other.run({"audit", rescued, "--against", other.latest().string()});
    CHECK(untold.exit_code == 1);
    CHECK_MESSAGE(has(untold.out, "step 2 begins with another state; in which arrays cannot be told: " + rescued +
                                      "/digests.jsonl has no line of that state"),
                  untold.out << untold.err);
  }
}

TEST_CASE("an audit of a ledger that used other samples than the plan gives ends with 1, and names the step") {
  JobRunner job;
  job.config(toy_config("workers = 2\nmax_steps = 4"));
  REQUIRE(job.run_json().exit_code == 0);
  const std::string run = job.latest().string();
  CHECK(job.run({"audit", run}).exit_code == 0);
  forge_ledger(job.latest() / "ledger.jsonl", [](CommitRecord& commit) {
    if (commit.step == 2) commit.digest ^= 1;
  });
  const Ended forged = job.run({"audit", run, "--json"});
  CHECK(forged.exit_code == 1);
  CHECK_MESSAGE(has(forged.err, "step 2 of the ledger (epoch 0, batch 2) is not what the plan says"), forged.err);
  JobRunner well;
  well.config(toy_config("workers = 2\nmax_steps = 4"));
  REQUIRE(well.run_json().exit_code == 0);
  CommitRecord before;
  forge_ledger(well.latest() / "ledger.jsonl", [&before](CommitRecord& commit) {
    if (commit.step == 3) {
      commit = before;
      commit.step = 3;
    }
    before = commit;
  });
  const Ended twice = well.run({"audit", well.latest().string(), "--json"});
  INFO(twice.err << twice.out);
  CHECK(twice.exit_code == 1);
  CHECK(twice.summary["exit_code"] == 1);
  CHECK(twice.summary["samples_repeated"] == 8);
  CHECK(twice.summary["samples_missing"] == 8);
}
