// Devices that fail, are busy, full or not there: it costs the worker that met it, and no step.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

#include "integration/job_machines.hpp"

using namespace pliant::test;

namespace {

struct Fault {
  std::string setting;  ///< of a double
  std::string at;
  bool in_reduction = false;
};

}  // namespace

#ifdef PLIANT_SOFT_CUDA_DIR
TEST_CASE("a reduction that has no memory left is made again by the workers that there are, to the same weights") {
  const Machine machine = machines().at(1);
  JobRunner whole;
  whole.config(config_on(machine, "workers = 2\ndeterministic = true\nmax_steps = 2"));
  {
    const On on(machine);
    REQUIRE(whole.run_json().exit_code == 0);
  }
  int in_reduction = 0;
  for (int at = 11; at < 16; ++at) {  // what is looked at, folded to, received and sent, the numbers beside it
    Machine faulty = machine;
    faulty.environment["PLIANT_SOFT_CUDA_FAULTS_OF"] = "1";
    faulty.environment["PLIANT_SOFT_CUDA_FAIL_ALLOC_AT"] = std::to_string(at);
    const On on(faulty);
    INFO("allocation " << at);
    JobRunner job;
    job.config(config_on(machine, "workers = 2\ndeterministic = true\nmax_steps = 2"));
    const Ended ended = job.run_json();
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(job.snapshot() == whole.snapshot());
    if (!has(ended.err, "rank 1 (worker 1) broke off: no memory to add up gradients in: ")) continue;
    ++in_reduction;
    CHECK(ended.summary["restarts"] == 0);
    CHECK(ended.summary["generations"] == 2);
  }
  CHECK(in_reduction == 3);
}

TEST_CASE(
    "a worker whose device is lost in mid-step, or has no memory left, is replaced, and the weights are the same") {
  for (const Machine& machine : machines()) {
    if (machine.environment.count("LD_LIBRARY_PATH") == 0) continue;
    for (const Fault& fault : {Fault{"PLIANT_SOFT_CUDA_LOSE_DEVICE_AT", "40"},
                               {"PLIANT_SOFT_CUDA_LOSE_DEVICE_AT", "733"},
                               {"PLIANT_SOFT_CUDA_LOSE_DEVICE_AT", "2001"},
                               {"PLIANT_SOFT_CUDA_FAIL_ALLOC_AT", "3"},
                               {"PLIANT_SOFT_CUDA_FAIL_ALLOC_AT", "8"}}) {
      Machine faulty = machine;
      faulty.environment["PLIANT_SOFT_CUDA_FAULTS_OF"] = "1";
      faulty.environment[fault.setting] = fault.at;
      const On on(faulty);
      INFO(machine.name << ", " << fault.setting << " " << fault.at);
      JobRunner job;
      job.config(config_on(machine, "workers = 2\ndeterministic = true"));
      const Ended ended = job.run_json();
      check_whole(ended);
      CHECK(ended.summary["restarts"] == 1);
      CHECK(job.snapshot() == reference().snapshot);
      CHECK(job.processes_left() == 0);
    }
  }
}

TEST_CASE("devices that others keep for themselves end the job at once, and one worker that meets them is replaced") {
  Machine busy{"cuda", "use = \"cuda\"\n", {{"LD_LIBRARY_PATH", PLIANT_SOFT_CUDA_DIR}, {"PLIANT_SOFT_CUDA_BUSY", "1"}}};
  {
    const On on(busy);
    JobRunner job;
    job.config(config_on(busy, "workers = 2"));
    const Ended ended = job.run_json();
    INFO(ended.err);
    CHECK(ended.exit_code == 3);
    CHECK(ended.summary["restarts"] == 0);
    CHECK(ended.summary["reason"].get<std::string>().find(
              "the devices are busy or in a mode that keeps this process out") != std::string::npos);
  }
  busy.environment["PLIANT_SOFT_CUDA_FAULTS_OF"] = "1";
  const On on(busy);
  JobRunner job;
  job.config(config_on(busy, "workers = 2\ndeterministic = true"));
  const Ended ended = job.run_json();
  check_whole(ended);
  CHECK(ended.summary["restarts"] == 1);
  CHECK(job.snapshot() == reference().snapshot);
}

TEST_CASE("a machine without devices ends the job at once, and says who knows why") {
  const On on({"", "", {{"LD_LIBRARY_PATH", PLIANT_SOFT_CUDA_DIR}, {"PLIANT_SOFT_CUDA_DEVICES", "0"}}});
  JobRunner job;
  job.config(config_on({"cuda", "use = \"cuda\"\n"}, "workers = 2"));
  const Ended ended = job.run_json();
  INFO(ended.err);
  CHECK(ended.exit_code == 3);
  CHECK(ended.summary["restarts"] == 0);
  CHECK(has(ended.err, "accelerator 'cuda' finds no device on this machine: "));
  CHECK(has(ended.err, "; `pliant accel list` shows what others find"));
}
#endif

#ifdef PLIANT_SOFT_LEVEL_ZERO
TEST_CASE("a worker whose device of Level Zero is lost in mid-step is replaced, and the weights are the same") {
  const Machine machine = machines().back();
  for (const Fault& fault :
       {Fault{"PLIANT_SOFT_ZE_LOSE_DEVICE_AT", "400", false}, {"PLIANT_SOFT_ZE_LOSE_DEVICE_AT", "448", true}}) {
    Machine faulty = machine;
    faulty.environment["PLIANT_SOFT_ZE_FAULTS_OF"] = "1";
    faulty.environment[fault.setting] = fault.at;
    const On on(faulty);
    INFO("command " << fault.at);
    JobRunner job;
    job.config(config_on(machine, "workers = 2\ndeterministic = true"));
    const Ended ended = job.run_json();
    check_whole(ended);
    CHECK(has(ended.err, "ZE_RESULT_ERROR_DEVICE_LOST"));
    const bool in_reduction = has(ended.err, "rank 1 (worker 1) broke off: accelerator 'level_zero': ");
    if (machine.has_kernels) CHECK(in_reduction == fault.in_reduction);
    CHECK(ended.summary["restarts"] == 1);
    CHECK(job.snapshot() == reference().snapshot);
    CHECK(job.processes_left() == 0);
  }
}
#endif

TEST_CASE("a device that is not there is refused with those that are") {
  JobRunner job;
  job.config(config_on(machines().front(), "workers = 2", "device = 3\n"));
  const Ended ended = job.run_json();
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(ended.err.find("[accelerator] device = 3, but 'host' has the device 0 only on this machine") !=
        std::string::npos);
}
