// Sharded jobs on devices whose memory the CPU does not reach, and whose ranks misbehave: they end as those on the CPU.
#include <doctest/doctest.h>
#include <signal.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "integration/sharded_machines.hpp"
#include "integration/sharded_misbehaviour.hpp"

using namespace pliant::test;

namespace {

/// `body` on one machine of each kind that has devices, in its environment; says so where there is none.
void on_devices(const std::function<void(const ShardedMachine&)>& body) {
  std::vector<ShardedMachine> devices;
  for (ShardedMachine& machine : sharded_machines()) {
    if (has(machine.name, "four devices") || machine.name == "level_zero") devices.push_back(std::move(machine));
  }
  if (devices.empty()) MESSAGE("not run: there is neither software CUDA nor a software driver of Level Zero");
  for (const ShardedMachine& machine : devices) {
    CAPTURE(machine.name);
    const Environment here(machine.environment);
    body(machine);
  }
}

}  // namespace

TEST_CASE("what is not finite on a device is named with its rows, and not committed") {
  on_devices([](const ShardedMachine& machine) {
    JobRunner job;
    const Ended ended = job.run(job_that("nan", "", 2, machine.sets));
    INFO(ended.err);
    CHECK(ended.exit_code == 1);
    const std::string reason = ended.summary.at("reason");
    CHECK(has(reason, "step 6 is not committed: the gradient or the loss of row"));
    CHECK(has(reason, "rows 2..3, rows 6..7, rows 10..11, rows 14..15, rows 18..19, rows 22..23 on rank 1"));
    CHECK(job.ledger("commit").size() == 6);
    CHECK(has(ended.summary.at("snapshot").get<std::string>(), "step-00000006"));
  });
}

TEST_CASE("a program that throws in a pass on a device is replaced, one that catches it goes on, with the same bits") {
  on_devices([](const ShardedMachine& machine) {
    for (const char* const how : {"throw", "catch"}) {
      CAPTURE(how);
      JobRunner job;
      const Ended ended = job.run(job_that(how, "backward", 3, machine.sets));
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      CHECK(has(ended.err, "the program ran out of ideas"));
      const bool is_replaced = how == std::string("throw");
      CHECK(ended.summary.at("restarts") == (is_replaced ? 1 : 0));
      REQUIRE(job.ledger("restart").size() == (is_replaced ? 1U : 0U));
      if (is_replaced) CHECK(job.ledger("restart").front().at("step") == 4);
      CHECK(last_state(job) == well_behaved());
    }
  });
}

TEST_CASE("a program that is stopped in a pass on a device, and continued, costs nothing") {
  on_devices([](const ShardedMachine& machine) {
    for (const char* const place : {"entered", "backward"}) {
      CAPTURE(place);
      JobRunner job;
      const pid_t agent = job.start(job_that("stop", place, 3, machine.sets));
      ::kill(wait_for_stop(job, agent, 1), SIGCONT);
      const Ended ended = job.wait(agent);
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      CHECK(ended.summary.at("restarts") == 0);
      CHECK(job.ledger("restart").empty());
      CHECK(last_state(job) == well_behaved());
    }
  });
}

TEST_CASE("ranks of other models, or with other options, are named on devices, too") {
  on_devices([](const ShardedMachine& machine) {
    JobRunner job;
    const Ended other_model = job.run(job_that("other_model", "", 2, machine.sets));
    INFO(other_model.err);
    CHECK(other_model.exit_code == 2);
    CHECK(has(other_model.err, "none has a majority (worker 0: a model of digest "));
    CHECK(job.processes_left() == 0);
    const Environment other(std::map<std::string, std::string>{{"TEST_OTHER_BUDGET", "1 1"}});
    JobRunner later;
    const std::vector<std::string> sets = joined(machine.sets, {"coordinator.budget=1000000"});
    const Ended replaced = later.run(disturbed(job_that("", "", 2, sets), {"kill:rank=1,step=6"}));
    INFO(replaced.err);
    CHECK(replaced.exit_code == 0);
    CHECK(has(replaced.err, "has other options than the other workers"));
    CHECK(last_state(later) == well_behaved());
  });
}

TEST_CASE("a rank that does not update, or whose shard on a device changes by itself, is ended by what it did") {
  struct Kind {
    const char* how;
    const char* said;
  };
  on_devices([](const ShardedMachine& machine) {
    for (const Kind& kind : {Kind{"skip_update", "step 6 was committed and this rank has not applied it"},
                             Kind{"flip", "of weights that this rank owns has changed since step 6 began"}}) {
      CAPTURE(kind.how);
      JobRunner job;
      std::vector<std::string> command = job_that(kind.how, "", 2, machine.sets);
      command.emplace_back("--show-logs");
      const Ended ended = job.run(command);
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      CHECK(has(ended.err, kind.said));
      CHECK(job.ledger("restart").size() == 1);
      CHECK(last_state(job) == well_behaved());
    }
  });
}

TEST_CASE("a damaged snapshot of a job on devices is named, and the one before is taken") {
  on_devices([](const ShardedMachine& machine) {
    const std::vector<std::string> sets = joined(machine.sets, kTightSample);
    JobRunner job;
    leave_half(job, sets);
    damage(job.latest() / "snapshots/step-00000008.snapshot");
    const Ended ended = resume(job, sets);
    check_undisturbed(job, ended);
    CHECK(has(ended.err, "step-00000008.snapshot is damaged: its checksum does not match"));
    CHECK(ended.summary.at("resumed_from") == 4);
  });
}
