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
    CHECK_MESSAGE(has(untold.out, "step 2 begins with another state; the arrays are unknown because " + rescued +
                                      "/digests.jsonl has no line for that state"),
                  untold.out << untold.err);
  }
}

TEST_CASE("with digests at some steps only, arrays are named at the next digest, and what lies before it is said") {
  const auto every_five = [](const std::string& app) {
    return toy_config("workers = 1\ndeterministic = true\ndigest_every = 5", app);
  };
  const auto both_parts = nlohmann::json::array({"(rest)", "weights"});
  JobRunner well;
  well.config(every_five(""));
  REQUIRE(well.run_json().exit_code == 0);
  JobRunner wrong;
  wrong.config(every_five(misbehaving("skip_apply", 0, 6)));
  REQUIRE(wrong.run_json().exit_code == 0);
  const Ended by_loss = audit_against(well, wrong.latest());
  INFO(by_loss.out);
  CHECK(by_loss.exit_code == 1);
  CHECK(by_loss.summary["against"]["step"] == 7);
  CHECK(by_loss.summary["against"]["parts"] == both_parts);
  CHECK(by_loss.summary["against"]["parts_step"] == 10);
  CHECK(has(by_loss.out, "has another loss: "));
  CHECK(has(by_loss.out, "; step 10, the next with a digest in both runs, begins with another state: (rest), weights"));
  // As if the losses had not shown it.
  const std::vector<CommitRecord> right = commits_of(well);
  const fs::path ledger = wrong.latest() / "ledger.jsonl";
  forge_ledger(ledger, [&right](CommitRecord& commit) { commit.loss = right[static_cast<size_t>(commit.step)].loss; });
  const Ended by_state = audit_against(well, wrong.latest());
  INFO(by_state.out);
  CHECK(by_state.summary["against"]["step"] == 10);
  CHECK(by_state.summary["against"]["parts"] == both_parts);
  CHECK(by_state.summary["against"]["parts_step"] == 10);
  CHECK(has(by_state.out,
            "another state: (rest), weights; steps 6..9 before it could not be compared: no digest in both runs"));
  forge_ledger(ledger, [](CommitRecord& commit) {
    if (commit.step > 5) commit.state.reset();
    if (commit.step == 8) commit.loss += 1;
  });
  const Ended at_end = audit_against(well, wrong.latest());
  INFO(at_end.out);
  CHECK(at_end.summary["against"]["step"] == 8);
  CHECK(at_end.summary["against"]["parts"] == both_parts);
  CHECK(at_end.summary["against"]["parts_step"] == kAuditedSteps);
  CHECK(has(at_end.out, "; step 25, the last, ends with another state: (rest), weights"));
}

TEST_CASE("two runs without a step are not called equal, and what they are made of is compared") {
  const auto without_steps = [](JobRunner& job, const std::string& run_keys) {
    job.config(toy_config("workers = 2\nmax_steps = 2\n" + run_keys));
    REQUIRE(job.run_json().exit_code == 0);
    const fs::path ledger = job.latest() / "ledger.jsonl";
    const std::string whole = pliant::test::read_all(ledger);
    pliant::test::write_all(ledger, whole.substr(0, whole.find('\n') + 1));
  };
  JobRunner one;
  without_steps(one, "");
  JobRunner same;
  without_steps(same, "");
  JobRunner other;
  without_steps(other, "seed = 8");
  const Ended alike = audit_against(one, same.latest());
  INFO(alike.out << alike.err);
  CHECK(alike.exit_code == 1);
  CHECK(alike.summary["against"]["equal"] == false);
  CHECK(alike.summary["against"]["step"].is_null());
  CHECK(alike.summary["against"]["steps"] == 0);
  CHECK(has(alike.out, "neither run has a step: only data, seed and batches were compared"));
  const Ended unlike = audit_against(one, other.latest());
  CHECK(unlike.exit_code == 1);
  CHECK(has(unlike.out, "neither run has a step, and they differ in data, seed or batches ("));
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
  CHECK_MESSAGE(has(forged.err, "step 2 of the ledger (epoch 0, batch 2) differs from the plan"), forged.err);
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

namespace {

/// A short run with a cosine of the rate, a warm-up and a balancer that looks at costs, disturbed by a death.
void run_planned(JobRunner& job, const std::string& more = "") {
  job.config(toy_config("workers = 4\ndeterministic = true\nmax_steps = 12", more + R"([balancer]
use = "lpt"
cost_per_square = 1
)"));
  const Ended ended =
      job.run_json({"--set", "lr.schedule=[\"cosine\"]", "--set", "lr.then=[\"smooth\"]", "--set", "lr.smooth.over=5",
                    "--set", "run.on_loss=shrink", "--inject", "kill:rank=1,step=7"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
}

/// The only thing that was not derived.
const nlohmann::json kLossesOnly =
    nlohmann::json::array({"losses: they can only be checked by training again; --against compares them"});

}  // namespace

TEST_CASE("an audit derives learning rates and rows of ranks again from the config, through deaths and resumes") {
  JobRunner job;
  run_planned(job);
  const Ended audited = job.run({"audit", job.latest().string(), "--json"});
  INFO(audited.err << audited.out);
  CHECK(audited.exit_code == 0);
  CHECK(audited.summary["learning_rates"] == 12);
  CHECK(audited.summary["assignments"] == 12);
  CHECK(audited.summary["differences"].empty());
  CHECK(audited.summary["not_checked"] == kLossesOnly);
  // Another rate, another balancer and another number of workers from here on; the config before is kept.
  const Ended resumed = job.run_json({"--resume", "--set", "run.max_steps=20", "--set", "lr.schedule=[\"cosine\"]",
                                      "--set", "lr.then=[\"smooth\"]", "--set", "lr.base_lr=0.003", "--set",
                                      "balancer.use=round_robin", "--workers", "2"});
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  const Ended both = job.run({"audit", job.latest().string(), "--json"});
  INFO(both.err << both.out);
  CHECK(both.exit_code == 0);
  CHECK(both.summary["learning_rates"] == 20);
  CHECK(both.summary["assignments"] == 20);
  CHECK(both.summary["not_checked"] == kLossesOnly);
  fs::remove_all(job.latest() / "configs");
  const Ended lost = job.run({"audit", job.latest().string(), "--json"});
  CHECK(lost.exit_code == 0);
  CHECK(lost.summary["learning_rates"] == 0);
  CHECK(lost.summary["assignments"] == 8);
  CHECK_MESSAGE(has(lost.out, "learning rates and rows of the ranks of steps 0..11: "), lost.out);
  CHECK_MESSAGE(has(lost.out, "learning rates of steps 12..19: an earlier config is unknown"), lost.out);
}

TEST_CASE("an audit names the step and the field of whatever a ledger has that plan and config do not give") {
  struct Forged {
    const char* field;
    void (*change)(CommitRecord& commit);
    const char* recorded;
  };
  const Forged all[] = {
      {"learning rate", [](CommitRecord& commit) { commit.learning_rate *= 1.0001; }, ""},
      {"rows of rank 0", [](CommitRecord& commit) { std::swap(commit.shares.front(), commit.shares.back()); }, ""},
      {"world size", [](CommitRecord& commit) { commit.shares.push_back({}); }, "5"},
      {"generation", [](CommitRecord& commit) { ++commit.generation; }, "2"},
      {"skipped", [](CommitRecord& commit) { commit.skipped = true; }, "true"},
  };
  JobRunner job;
  run_planned(job);
  const fs::path ledger = job.latest() / "ledger.jsonl";
  const std::string whole = pliant::test::read_all(ledger);
  for (const Forged& forged : all) {
    INFO(std::string(forged.field));
    pliant::test::write_all(ledger, whole);
    forge_ledger(ledger, [&forged](CommitRecord& commit) {
      if (commit.step == 3) forged.change(commit);
    });
    const Ended audited = job.run({"audit", job.latest().string(), "--json"});
    INFO(audited.err << audited.out);
    CHECK(audited.exit_code == 1);
    CHECK(audited.summary["exit_code"] == 1);
    REQUIRE(audited.summary["differences"].size() >= 1);
    const auto& first = audited.summary["differences"].front();
    CHECK(first["step"] == 3);
    CHECK(first["field"] == forged.field);
    CHECK(first["recorded"] != first["planned"]);
    if (*forged.recorded != '\0') CHECK(first["recorded"] == forged.recorded);
    for (const auto& one : audited.summary["differences"]) CHECK(one["step"] == 3);
    const Ended shown = job.run({"audit", job.latest().string()});
    CHECK(shown.exit_code == 1);
    CHECK(has(shown.out, "differs at step 3"));
    CHECK(has(shown.out, std::string(forged.field) + ": "));
  }
  // Samples and sizes are held against the plan before anything else.
  for (const auto change :
       {+[](CommitRecord& commit) { commit.digest ^= 1; }, +[](CommitRecord& commit) { --commit.size.tokens; },
        +[](CommitRecord& commit) { commit.batch_index = 99; }}) {
    pliant::test::write_all(ledger, whole);
    forge_ledger(ledger, [&change](CommitRecord& commit) {
      if (commit.step == 3) change(commit);
    });
    const Ended audited = job.run({"audit", job.latest().string(), "--json"});
    CHECK(audited.exit_code == 1);
    CHECK_MESSAGE(has(audited.err, "step 3 of the ledger (epoch 0, batch "), audited.err);
  }
  // Two steps that changed places use each sample once, and not when they should.
  pliant::test::write_all(ledger, whole);
  CommitRecord kept[2];
  forge_ledger(ledger, [&kept](CommitRecord& commit) {
    if (commit.step == 3 || commit.step == 4) kept[commit.step - 3] = commit;
  });
  forge_ledger(ledger, [&kept](CommitRecord& commit) {
    if (commit.step != 3 && commit.step != 4) return;
    const int64_t step = commit.step;
    commit = kept[4 - step];
    commit.step = step;
  });
  const Ended swapped = job.run({"audit", job.latest().string(), "--json"});
  INFO(swapped.err << swapped.out);
  CHECK(swapped.exit_code == 1);
  CHECK(swapped.summary["samples_repeated"] == 0);
  CHECK(swapped.summary["samples_missing"] == 0);
  CHECK(swapped.summary["differences"].front()["field"] == "batch");
  CHECK(swapped.summary["differences"].front()["recorded"] == "4 of epoch 0");
  CHECK(swapped.summary["differences"].front()["planned"] == "3 of epoch 0");
}

TEST_CASE("what follows measured times or gradients an audit does not check, and says so") {
  JobRunner job;
  job.config(toy_config("workers = 2\nmax_steps = 6", "[balancer]\nfit = true\n"));
  const Ended ended = job.run_json({"--set", "lr.use=adascale", "--set", "lr.optimizer=sgd_momentum"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  const Ended audited = job.run({"audit", job.latest().string(), "--json"});
  INFO(audited.err << audited.out);
  CHECK(audited.exit_code == 0);
  CHECK(audited.summary["learning_rates"] == 0);
  CHECK(audited.summary["assignments"] == 0);
  CHECK(has(audited.out, "rows of the ranks of steps 0..5: [balancer] fit = true follows the times that the ranks"));
  CHECK(has(audited.out, "learning rates of steps 0..5: a rule of [lr] depends on the norms of gradients"));
  const Ended shown = job.run({"audit", job.latest().string()});
  CHECK(has(shown.out, "not checked"));
  CHECK(has(shown.out, "at 0 of 6 steps"));
}
