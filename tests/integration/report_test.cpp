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
