// How a job ends and what it says then.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include "integration/job_runner.hpp"

using namespace pliant::test;

TEST_CASE("an epoch ends with a short batch in which some ranks own no rows") {
  JobRunner job;
  job.config(toy_config("workers = 4\ndeterministic = true"));
  REQUIRE(job.run({"run", "pliant.toml", "--json"}).exit_code == 0);
  const auto commits = job.ledger("commit");
  REQUIRE(commits.size() == 26);
  CHECK(commits.back()["rows"] == 3);
  CHECK(commits.back()["shares"] == nlohmann::json::parse("[[0,2],[2,1],[],[]]"));
}

TEST_CASE("two epochs use every sample twice, once in each") {
  JobRunner job;
  job.config(toy_config("workers = 2\nepochs = 2"));
  const Ended ended = job.run({"run", "pliant.toml", "--json", "--inject", "kill:rank=1,step=26,at=vote"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["steps"] == 52);
  CHECK(ended.summary["samples_expected"] == 406);
  CHECK(ended.summary["samples_used_once"] == 406);
}

TEST_CASE("max_steps ends a job early and cleanly") {
  JobRunner job;
  job.config(toy_config("workers = 2\nmax_steps = 5"));
  const Ended ended = job.run({"run", "pliant.toml", "--json"});
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["steps"] == 5);
  CHECK(ended.summary["samples_used_once"] == 40);
}

TEST_CASE("the JSON summary is one line, the last of stdout, with every promised key") {
  JobRunner job;
  job.config(toy_config("workers = 2"));
  const Ended ended = job.run({"run", "pliant.toml", "--json"});
  REQUIRE(ended.summary.is_object());
  CHECK(ended.out.find('\n') == ended.out.size() - 1);
  for (const char* key :
       {"steps", "tokens", "packing_efficiency", "loss_first", "loss_last", "samples_expected", "samples_used_once",
        "samples_repeated", "samples_missing", "samples_dropped", "generations", "seconds_lost", "wall_seconds"}) {
    INFO(key);
    CHECK(ended.summary.contains(key));
  }
}

TEST_CASE("the table names what was used") {
  JobRunner job;
  job.config(toy_config("workers = 2"));
  const Ended ended = job.run({"run", "pliant.toml"});
  CHECK(ended.out.find("samples used once") != std::string::npos);
  CHECK(ended.out.find("203 of 203") != std::string::npos);
  CHECK(ended.err.find("step 26/26") != std::string::npos);
}

TEST_CASE(
    "a last batch filled up with rows without sequences trains as the short one does, at every number of workers") {
  const auto curve = [](const std::string& tail, int64_t workers) {
    JobRunner job;
    job.config(toy_config(fmt::format("workers = {}\nepochs = 2\ndeterministic = true", workers)));
    const Ended ended = job.run({"run", "pliant.toml", "--json", "--set", "sampler.fixed.tail=" + tail});
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(ended.summary["samples_used_once"] == 406);
    const auto commits = job.ledger("commit");
    CHECK(commits.back()["rows"] == (tail == "pad" ? 8 : 3));
    CHECK(commits.back().value("padding_rows", 0) == (tail == "pad" ? 5 : 0));
    std::vector<nlohmann::json> steps;
    for (const auto& record : commits) steps.push_back({record["digest"], record["loss"], record["lr"]});
    return steps;
  };
  const auto kept = curve("keep", 1);
  CHECK(curve("pad", 1) == kept);
  CHECK(curve("pad", 4) == kept);
}

TEST_CASE("a job of a thousand million epochs starts at once and stops at Ctrl-C") {
  JobRunner job;
  job.config(toy_config("workers = 2\nepochs = 1000000000", "step_ms = 5"));
  // A schedule over the whole job has to know how long it is, too.
  const pid_t agent = job.start({"run", "pliant.toml", "--json", "--set", "lr.schedule=[\"cosine\"]"});
  REQUIRE(job.wait_for_commits(agent, 3));
  ::kill(agent, SIGINT);
  const Ended ended = job.wait(agent);
  INFO(ended.err);
  CHECK(ended.exit_code == 130);
  CHECK(ended.summary["total_steps"] == 26000000000);
  CHECK(ended.summary["samples_repeated"] == 0);
}
