// Sharded jobs on devices whose memory the CPU does not reach, and whose ranks misbehave: they end as those on the CPU.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <map>
#include <string>
#include <vector>

#include "integration/sharded_machines.hpp"
#include "integration/sharded_misbehaviour.hpp"

using namespace pliant::test;

namespace {

/// One rank was replaced, and no bit or sample was lost.
void check_replaced(const JobRunner& job, const Ended& ended) {
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary.at("restarts") == 1);
  CHECK(last_state(job) == well_behaved());
  CHECK(ended.summary.at("samples_missing") == 0);
  CHECK(job.processes_left() == 0);
}

/// With which a pass comes to a place of sharded_worker.
std::vector<std::string> settings_at(const ShardedMachine& machine, const std::string& place) {
  if (place == "released") return joined(machine.sets, kRoomy);  // which releases at once
  if (place == "dropped") return joined(machine.sets, {"app.drops_trace=true"});
  return machine.sets;
}

/// One rank of three is stopped at a place of sharded_worker, or a point of --inject, and continued.
void check_stop(const ShardedMachine& machine, const std::string& place) {
  CAPTURE(place);
  JobRunner job;
  const std::vector<std::string> sets = settings_at(machine, place);
  const pid_t agent =
      job.start(has(place, "at=") ? disturbed(job_that("", "", 3, sets), {"stop:rank=1,step=4," + place})
                                  : job_that("stop", place.c_str(), 3, sets));
  ::kill(wait_for_stop(job, agent, 1), SIGCONT);
  const Ended ended = job.wait(agent);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary.at("restarts") == 0);
  CHECK(job.ledger("restart").empty());
  CHECK(last_state(job) == well_behaved());
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

TEST_CASE(
    "a program that is stopped in a pass on a device, as it gathers, releases, reduces or saves, or drops an order, "
    "and "
    "continued, costs nothing") {
  on_devices([](const ShardedMachine& machine) {
    for (const char* const place : {"released", "backward", "dropped", "at=gather", "at=snapshot"}) {
      check_stop(machine, place);
    }
    if (!is_thorough()) return;
    for (const char* const place : {"entered", "at=scatter"}) check_stop(machine, place);
  });
}

TEST_CASE("a program that is stopped in a pass while its device is late and runs in any order costs nothing") {
  for (const char* const place : {"entered", "backward", "at=scatter"}) check_stop(sim(false), place);
  if (!is_thorough()) return;
  for (const char* const place : {"released", "dropped", "at=gather", "at=snapshot"}) check_stop(sim(false), place);
}

TEST_CASE(
    "a program that dies once a parameter is whole on a device, was released, or as an order is dropped, is replaced") {
  on_devices([](const ShardedMachine& machine) {
    for (const char* const place : {"entered", "released", "dropped"}) {
      CAPTURE(place);
      JobRunner job;
      check_replaced(job, job.run(job_that("kill", place, 3, settings_at(machine, place))));
      REQUIRE(job.ledger("restart").size() == 1);
      CHECK(job.ledger("restart").front().at("step") == 4);
    }
  });
}

TEST_CASE(
    "a rank that zero3 holds up, as its device is behind, is killed or stopped there, and the bits are the same") {
  const std::vector<std::string> sets = joined(kZero3, joined(kFarAboveLimits, {"app.evaluates=true"}));
  on_devices(
      [&sets](const ShardedMachine& machine) {
        for (const char* const how : {"kill", "stop"}) {
          CAPTURE(how);
          JobRunner job;
          const pid_t agent = job.start(job_that(how, "held", 2, joined(machine.sets, sets)));
          const bool is_killed = how == std::string("kill");
          if (!is_killed) ::kill(wait_for_stop(job, agent, 1), SIGCONT);
          const Ended ended = job.wait(agent);
          INFO(ended.err);
          REQUIRE(ended.exit_code == 0);
          CHECK(ended.summary.at("restarts") == (is_killed ? 1 : 0));
          CHECK(job.ledger("restart").size() == (is_killed ? 1U : 0U));
          CHECK(last_state(job) == well_behaved());
        }
      },
      true);
}

#ifdef PLIANT_SOFT_CUDA_DIR
TEST_CASE(
    "within a budget a rank whose device is lost or has no memory left in mid-run costs no bit, also as others leave") {
  struct Fault {
    std::string setting;
    std::string at;
  };
  int replaced = 0;
  for (const Fault& fault : {Fault{"LOSE_DEVICE_AT", "400"},  // in the first step
                             {"LOSE_DEVICE_AT", "1000"},
                             {"FAIL_ALLOC_AT", "12"},
                             {"FAIL_ALLOC_AT", "20"},
                             {"FAIL_ALLOC_AT", "28"}}) {
    CAPTURE(fault.setting);
    CAPTURE(fault.at);
    ShardedMachine machine = soft_cuda(4);
    machine.environment["PLIANT_SOFT_CUDA_" + fault.setting] = fault.at;
    machine.environment["PLIANT_SOFT_CUDA_FAULTS_OF"] = "1";
    JobRunner job;
    const Ended ended = run_on(machine, job, disturbed(job_that("", "", 3, machine.sets), {"leave:rank=2,step=6"}));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    replaced += ended.summary.at("restarts") == 1 ? 1 : 0;
    CHECK(last_state(job) == well_behaved());
    CHECK(ended.summary.at("samples_missing") == 0);
    CHECK(job.processes_left() == 0);
  }
  CHECK(replaced > 0);
}
#endif

TEST_CASE("a rank whose device is lost in mid-run is replaced, whatever the device and the coordinator") {
  // planned on the software CUDA: above.
  on_devices(
      [](const ShardedMachine& machine) {
        const bool is_cuda = has(machine.name, "cuda");
        for (const std::vector<std::string>& sets : {kTight, kZero3}) {
          if (is_cuda && sets == kTight) continue;
          CAPTURE(sets.front());
          ShardedMachine faulty = machine;
          const std::string name = is_cuda ? "PLIANT_SOFT_CUDA_" : "PLIANT_SOFT_ZE_";
          faulty.environment[name + "LOSE_DEVICE_AT"] = "1500";  // of one of the first steps
          faulty.environment[name + "FAULTS_OF"] = "1";
          JobRunner job;
          const Ended ended = run_on(faulty, job, job_that("", "", 2, joined(machine.sets, sets)));
          check_replaced(job, ended);
          CHECK(has(ended.err, is_cuda ? "cudaErrorLaunchFailure" : "ZE_RESULT_ERROR_DEVICE_LOST"));
        }
      },
      true);
}

TEST_CASE("a rank whose device is lost in a pass or as all reduce is replaced, also before there is a snapshot") {
  const std::vector<std::string> sim{
      "accelerator.use=\"sim\"",
      fmt::format("accelerator.path=\"{}/accelerator-sim.pliant.so\"", PLIANT_TESTKIT_PLUGIN_DIR),
      "accelerator.sim.host_visible=false", "accelerator.sim.lose_device_at=50000"};
  struct Place {
    std::string name;
    int64_t step;
    int64_t back_to;
    const std::vector<std::string>& sets;
  };
  for (const Place& place : {Place{"backward", 6, 4, kTight}, Place{"passed", 6, 4, kZero3},
                             Place{"computed", 6, 4, kZero3}, Place{"computed", 2, 0, kTight}}) {
    CAPTURE(place.name);
    CAPTURE(place.step);
    JobRunner job;
    const std::string step = fmt::format("app.misbehave_step={}", place.step);
    const Ended ended =
        job.run(job_that("lose_device", place.name.c_str(), 2, joined(joined(sim, place.sets), {step})));
    check_replaced(job, ended);
    REQUIRE(job.ledger("restart").size() == 1);
    CHECK(job.ledger("restart").front().at("step") == place.back_to);
    CHECK(has(ended.err, "the device is lost since its piece of work 50000"));
    CHECK(has(ended.err, "reported a failure: ") == (place.name == "computed"));
  }
}

TEST_CASE(
    "layers that compute once more in backward, and passes of any order between steps, change no bit on a device") {
  on_devices([](const ShardedMachine& machine) {
    JobRunner job;
    const std::vector<std::string> habits = joined(machine.sets, {"app.recomputes=true", "app.generates=true"});
    CHECK(state_after(job, job_that("", "", 2, habits)) == well_behaved());
  });
}

TEST_CASE("a rank that does other things than the others is named on devices, too, also where NCCL waits for it") {
  on_devices([](const ShardedMachine& machine) {
    std::vector<std::string> sets = machine.sets;
    if (has(machine.name, "cuda") && machine.is_double()) sets.emplace_back("accelerator.cuda.collectives=\"nccl\"");
    for (const Parted& parted : ways_to_part()) {
      CAPTURE(parted.how);
      for (const char* const coordinator : {"coordinator.use=\"planned\"", "coordinator.use=\"eager\""}) {
        CAPTURE(coordinator);
        if (parted.how != "evaluate_alone" && parted.how != "other_order" && has(coordinator, "eager")) continue;
        check_parted(parted, joined(sets, {coordinator}));
      }
    }
  });
}

TEST_CASE("ranks of other models, or with other options, are named on devices, too") {
  on_devices([](const ShardedMachine& machine) {
    JobRunner job;
    const Ended other_model = job.run(job_that("other_model", "", 2, machine.sets));
    INFO(other_model.err);
    CHECK(other_model.exit_code == 2);
    CHECK(has(other_model.err, "there is no majority (worker 0: a model of digest "));
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
    for (const Kind& kind : {Kind{"skip_update", "step 6 was committed but this rank has not applied it"},
                             Kind{"flip", "of weights of this rank has changed since step 6 began"},
                             Kind{"flip_after_update", "of weights of this rank has changed since step 7 began"}}) {
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
