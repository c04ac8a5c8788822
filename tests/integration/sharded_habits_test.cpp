// Sharded jobs of programs with habits of their own: those that are allowed change no bit, the bad ones end the job, or
// the one rank that has them, in words.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <sstream>
#include <string>
#include <vector>

#include "integration/sharded_misbehaviour.hpp"

using namespace pliant::test;

namespace {

/// Every rank misbehaves, in every incarnation.
const std::string kAllRanks = "app.misbehave_rank=-1";

/// What rank 0 says of its layers' weights after the last step.
std::string weights_after(std::vector<std::string> command) {
  command.emplace_back("--show-logs");
  JobRunner job;
  const Ended ended = job.run(command);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  std::string said;
  std::istringstream lines(ended.err);
  for (std::string line; std::getline(lines, line);) {
    if (const size_t at = line.find("layer."); at != std::string::npos && has(line, " is ")) said += line.substr(at);
  }
  CHECK(has(said, "layer.2 is "));
  return said;
}

}  // namespace

TEST_CASE(
    "hooks, metrics, evaluations and a look ahead change no bit of a sharded job, whoever dies, and all are heard") {
  for (const bool dies : {false, true}) {
    CAPTURE(dies);
    JobRunner job;
    std::vector<std::string> command = job_that("", "", 3, {"app.long_lived=true"});
    if (dies) command = disturbed(command, {"kill:rank=1,step=6,at=reduce"});
    const Ended ended = job.run(command);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(last_state(job) == well_behaved());
    CHECK(ended.summary["metrics"].contains("loss"));
    const auto& last = ended.summary["evaluations"].back();
    CHECK(last["step"] == kShardedSteps);
    CHECK(last["metrics"]["rank"] >= (dies ? 1 : 2));
    for (const int rank : {0, 2}) {  // each writes its part
      const std::string log = read_all((job.latest() / "logs" / fmt::format("rank-{}.log", rank)).string());
      CHECK(has(log, "before the snapshot of step 4\nafter the snapshot of step 4: ''\n"));
      CHECK(has(log, fmt::format("after the snapshot of step {}: ''", kShardedSteps)));
    }
  }
}

TEST_CASE("a rank with fewer micro-batches than others repeats its last pass without computing, and no bit changes") {
  JobRunner alone;
  const std::string expected = state_after(alone, job_that("", "", 1, joined(kFiveGranules, {"app.repeats=true"})));
  CHECK(repeated_passes(alone) == std::vector<double>(kShardedSteps, 0));
  for (const std::vector<std::string>& sets : {kTight, kZero3}) {
    CAPTURE(sets.front());
    JobRunner job;
    const Ended ended = job.run(job_that("", "", 3, joined(joined(kFiveGranules, sets), {"app.repeats=true"})));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(repeated_passes(job) == std::vector<double>(kShardedSteps, 1));
    CHECK(last_state(job) == expected);
  }
}

TEST_CASE("layers that compute once more in backward, and passes of any order between steps, change no bit") {
  for (const char* const habit : {"app.recomputes=true", "app.generates=true"}) {
    CAPTURE(habit);
    JobRunner job;
    CHECK(state_after(job, job_that("", "", 3, {habit})) == well_behaved());
  }
  JobRunner job;
  const Ended ended = job.run(job_that("kill", "recomputing", 3, {"app.recomputes=true", "app.generates=true"}));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary.at("restarts") == 1);
  CHECK(last_state(job) == well_behaved());
}

TEST_CASE(
    "a call beside the callback of update is refused by the names of both, one inside it is not, and no bit changes") {
  JobRunner job;
  std::vector<std::string> command = job_that("call_twice", "", 2);
  command.emplace_back("--show-logs");
  const Ended ended = job.run(command);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  for (const char* const call : {"enter", "memory"}) {
    CHECK(has(ended.err, fmt::format("sharded_worker: refused: ShardedModel::{} did nothing because "
                                     "ShardedModel::update is still running in another thread",
                                     call)));
  }
  CHECK(ended.summary.at("restarts") == 0);
  CHECK(last_state(job) == well_behaved());
}

TEST_CASE("a frozen reference that is visited forward beside what is trained keeps its values and changes no bit") {
  const std::string says = fmt::format("app.says_after={}", kShardedSteps - 1);
  const std::string alone =
      weights_after(job_that("", "", 1, {says, "coordinator.use=\"eager\"", "coordinator.budget=0"}));
  CHECK(weights_after(job_that("", "", 3, {says, "app.reference=true"})) == alone);
}

TEST_CASE("a module that is entered twice before it is left stays whole, and zero3 says what it needs for that") {
  JobRunner job;
  CHECK(state_after(job, job_that("enter_twice", "", 2, {kAllRanks})) == well_behaved());
  const std::vector<std::string> releases = joined(kFarAboveLimits, {kAllRanks, "run.max_restarts=0"});
  JobRunner other;
  const Ended ended = other.run(job_that("enter_twice", "", 2, joined(kZero3, releases)));
  INFO(ended.err);
  CHECK(ended.exit_code == 3);
  CHECK(has(ended.summary.at("reason"), "coordinator 'zero3' broke a rule: leaving layer.0 forward"));
  CHECK(has(ended.summary.at("reason"), "[coordinator.zero3] strict = true may fix that"));
  // Both ranks break off there. If one is seen to be gone before the other, the other repeats the steps since the
  // snapshot alone.
  CHECK(other.ledger("commit").back().at("step") == 5);
  CHECK(other.processes_left() == 0);
  JobRunner strict;
  CHECK(state_after(strict, job_that("enter_twice", "", 2,
                                     joined(kZero3, joined(releases, {"coordinator.zero3.strict=true"})))) ==
        well_behaved());
}

TEST_CASE("a pointer that is kept after its release is told with poison, by rank and rows, and not without") {
  const std::vector<std::string> eager{"coordinator.use=\"eager\""};
  const std::vector<std::string> poisoned = joined(eager, {"coordinator.poison=true"});
  {
    JobRunner job;
    const Ended ended = job.run(job_that("keep_pointer", "", 2, joined(poisoned, {"run.max_restarts=0"})));
    INFO(ended.err);
    CHECK(ended.exit_code == 1);
    const std::string reason = ended.summary.at("reason");
    CHECK(has(reason, "step 6 is not committed: the gradient or the loss of row"));
    CHECK(has(reason, "on rank 1"));
    CHECK(job.processes_left() == 0);
  }
  JobRunner untold;
  CHECK(state_after(untold, job_that("keep_pointer", "", 2, eager)) == well_behaved());
  for (const std::vector<std::string>& way :
       {poisoned, joined(kZero3, {"coordinator.poison=true"}), joined(kTight, {"coordinator.poison=true"})}) {
    JobRunner job;
    CHECK(state_after(job, job_that("", "", 3, way)) == well_behaved());
  }
}

TEST_CASE("a module that is never left, and a value that is asked for after it was released, are named") {
  struct Habit {
    const char* how;
    const char* said;
  };
  for (const Habit& habit :
       {Habit{"never_leave", "model (forward) was left while layer.0 (forward) is the last entered module; leave that"},
        Habit{"use_released", "layer.0.weights is not gathered here; enter a module that uses it, or call fetch"}}) {
    CAPTURE(habit.how);
    {  // a program that does so whenever it comes there
      JobRunner job;
      const Ended ended = job.run(job_that(habit.how, "", 2, joined(kRoomy, {kAllRanks, "run.max_restarts=1"})));
      INFO(ended.err);
      CHECK(ended.exit_code == 1);
      CHECK(has(ended.summary.at("reason"), habit.said));
      CHECK(job.ledger("commit").back().at("step") == 5);
      CHECK(job.processes_left() == 0);
    }
    JobRunner job;  // one rank, once; of others it would differ before it comes to what is refused
    const Ended ended = job.run(job_that(habit.how, "", 1, kRoomy));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(has(ended.err, habit.said));
    CHECK(ended.summary.at("restarts") == 1);
    CHECK(last_state(job) == well_behaved());
  }
}
