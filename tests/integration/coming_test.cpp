// Steps that a session foretells for loaders that read ahead: they come so, whatever becomes of the group.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <regex>
#include <string>

#include "integration/job_runner.hpp"

using namespace pliant::test;

namespace {

struct Foretold {
  int kept = 0;
  int moved = 0;
  int never = 0;
};

/// As rank 0 of the first group says at its end.
Foretold foretold_by(const JobRunner& job) {
  const std::string log = read_all((job.latest() / "logs" / "rank-0.log").string());
  std::smatch found;
  REQUIRE(std::regex_search(log, found,
                            std::regex("foretold: ([0-9]+) as they came, ([0-9]+) shared out anew, ([0-9]+) never")));
  return {std::stoi(found[1]), std::stoi(found[2]), std::stoi(found[3])};
}

}  // namespace

TEST_CASE("what was foretold comes, step by step, also in the next epoch, which the run writes down as ever") {
  std::string epochs;
  for (const std::string look_ahead : {"0", "3", "1000"}) {
    CAPTURE(look_ahead);
    JobRunner job;
    job.config(toy_config("workers = 2\nepochs = 3", "look_ahead = " + look_ahead));
    const Ended ended = job.run_json();
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    const std::string written = read_all((job.latest() / "epochs.jsonl").string());
    if (look_ahead == "0") {
      epochs = written;
      continue;
    }
    CHECK(written == epochs);
    const Foretold foretold = foretold_by(job);
    CHECK(foretold.kept == ended.summary["steps"].get<int>() - 1);  // all but the first
    CHECK(foretold.moved == 0);
    CHECK(foretold.never == 0);
  }
}

TEST_CASE("max_steps ends what is foretold") {
  JobRunner job;
  job.config(toy_config("workers = 2\nmax_steps = 5", "look_ahead = 30"));
  REQUIRE(job.run_json().exit_code == 0);
  CHECK(foretold_by(job).kept == 4);
  CHECK(foretold_by(job).never == 0);
}

TEST_CASE("after a death the batches are those that were foretold, and rows that are shared out anew are announced") {
  JobRunner job;
  job.config(toy_config("workers = 4\nepochs = 2\non_loss = \"shrink\"", "look_ahead = 1000"));
  const Ended ended = job.run_json({"--inject", "kill:rank=3,step=7,at=reduce"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["restarts"] == 0);
  const Foretold foretold = foretold_by(job);
  CHECK(foretold.moved >= 1);  // step 7, which came again
  CHECK(foretold.kept > 10);
  CHECK(foretold.never == 0);
}

TEST_CASE("where costs are fitted to measured times the rows that change with them are announced") {
  JobRunner job;
  job.config(toy_config("workers = 2\nepochs = 4", "look_ahead = 3\nsquare_ns = 2000") +
             "[balancer]\nuse = \"lpt\"\nfit = true\n");
  const Ended ended = job.run_json();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(foretold_by(job).kept > 10);
}
