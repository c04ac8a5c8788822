// `pliant report` on runs that were disturbed.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "integration/job_runner.hpp"
#include "negative/pliant_process.hpp"

using namespace pliant::test;

namespace {

/// Of the groups of the newest run, in their order.
std::vector<std::string> causes(JobRunner& job) {
  const Ended shown = job.run({"report", job.latest().string(), "--json"});
  INFO(shown.err);
  REQUIRE(shown.exit_code == 0);
  std::vector<std::string> words;
  for (const auto& group : shown.summary["groups"]) words.push_back(group["cause"]);
  return words;
}

}  // namespace

TEST_CASE("a report says why each group was formed: a start, a loss, a worker that joined") {
  JobRunner job;
  job.config(toy_config("workers = 2", "step_ms = 20"));
  const Ended ended = job.run_json({"--inject", "kill:rank=1,step=5"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  const std::vector<std::string> found = causes(job);
  REQUIRE(found.size() >= 2);
  CHECK(found[0] == "start");
  CHECK(found[1] == "loss");
  CHECK((found.size() == 2 || found[2] == "join"));  // the job may end before it is ready
}

TEST_CASE("workers that leave, and steps that are lost with an agent, are in the report") {
  JobRunner job;
  job.config(toy_config("workers = 4\nsnapshot_every = 5"));
  const Ended killed = job.run_json({"--inject", "leave:rank=2,step=3", "--inject", "kill:agent,step=8,at=commit"});
  INFO(killed.err);
  CHECK(killed.exit_code == 128 + 9);
  const auto committed = static_cast<int64_t>(commits_of(job).size());
  const std::vector<std::string> before = causes(job);
  REQUIRE(before.size() >= 2);
  CHECK(before[1] == "leave");
  REQUIRE(job.run_json({"--resume"}).exit_code == 0);
  const Ended shown = job.run({"report", job.latest().string(), "--json", "--plot", "run.svg"});
  REQUIRE(shown.exit_code == 0);
  const auto resume = shown.summary["groups"][before.size()];
  CHECK(resume["cause"] == "resume");
  const int64_t discarded = committed - resume["step"].get<int64_t>();
  CHECK(discarded > 0);
  CHECK(resume["steps_discarded"] == discarded);
  REQUIRE(shown.summary["discarded"].size() == 1);
  CHECK(shown.summary["discarded"][0]["step"].size() == static_cast<size_t>(discarded));
  CHECK(shown.summary["by_step"]["step"].size() == commits_of(job).size());
  CHECK(has(read_all(job.folder() / "run.svg"), "discarded, computed again"));
}

TEST_CASE("the sample for embedders fits its line, and to the bit the same when a worker is killed") {
  const std::string config = std::string(PLIANT_SOURCE_DIR) + "/samples/embedder/pliant.toml";
  const auto fit = [&config](JobRunner& job, std::vector<std::string> more) {
    more.insert(more.begin(), {"run", config, "--json", "--set", "run.log_dir=" + (job.folder() / "runs").string()});
    const Ended ended = job.run(more);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(ended.summary["steps"] == ended.summary["total_steps"]);
    CHECK(ended.summary["loss_last"] < 1e-3);
    return ended.summary["directory"].get<std::string>();
  };
  JobRunner quiet;
  JobRunner killed;
  const std::string whole = fit(quiet, {});
  const std::string disturbed = fit(killed, {"--inject", "kill:rank=1,step=20"});
  const Ended audit = killed.run({"audit", disturbed, "--against", whole});
  CHECK_MESSAGE(audit.exit_code == 0, audit.out << audit.err);
}

TEST_CASE("the sample of a loop without a session uses each sequence once in each epoch at two world sizes") {
  const ScratchFolder folder;
  const Outcome ended = run_pliant(folder, {}, {}, {}, std::string(PLIANT_BIN_DIR) + "/own_loop");
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(ended.out == "2000 of 2000 sequences were used once in each of 2 epochs, weight 3\n");
}
