// Devices that fail, are busy, full or not there: it costs the worker that met it, and no step.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "integration/job_machines.hpp"

using namespace pliant::test;

namespace {

struct Fault {
  std::string setting;  ///< of a double, without its name in front
  std::string at;
  bool in_reduction = false;
};

/// The double has that fault, for whoever opens it.
Machine with(Machine machine, const Fault& fault) {
  for (const char* name : {"PLIANT_SOFT_CUDA_", "PLIANT_SOFT_ZE_"})
    machine.environment[name + fault.setting] = fault.at;
  return machine;
}
/// For the first worker of rank 1 alone.
Machine with_at_one(const Machine& machine, const Fault& fault) {
  return with(with(machine, fault), {"FAULTS_OF", "1"});
}

/// The most that any worker of a job has had in memory, in bytes, as device_worker says it. 0: none has said it.
[[maybe_unused]] int64_t most_held(const JobRunner& job) {
  int64_t most = 0;
  for (const auto& entry : std::filesystem::directory_iterator(job.latest() / "logs")) {
    const std::string log = read_all(entry.path());
    const size_t at = log.find("VmHWM:");
    if (at != std::string::npos) most = std::max<int64_t>(most, 1024 * std::stoll(log.substr(at + 6)));
  }
  return most;
}

}  // namespace

TEST_CASE("a reduction that has no memory left is made again by the workers that there are, to the same weights") {
  for (const Machine& machine : doubles()) {
    JobRunner whole;
    whole.config(config_on(machine, "workers = 2\ndeterministic = true\nmax_steps = 2"));
    {
      const On on(machine);
      REQUIRE(whole.run_json().exit_code == 0);
    }
    int in_reduction = 0;
    // On each of them what is received and sent; and what comes before, or beside it.
    for (int at = 12; at < 20; ++at) {
      const On on(with_at_one(machine, {"FAIL_ALLOC_AT", std::to_string(at)}));
      INFO(machine.name << ", allocation " << at);
      JobRunner job;
      job.config(config_on(machine, "workers = 2\ndeterministic = true\nmax_steps = 2"));
      const Ended ended = job.run_json();
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      CHECK(job.snapshot() == whole.snapshot());
      if (!has(ended.err, "rank 1 (worker 1) reported a failure: no memory for adding up gradients: ")) continue;
      ++in_reduction;
      CHECK(ended.summary["restarts"] == 0);
      CHECK(ended.summary["generations"] == 2);
    }
    if (machine.has_kernels) CHECK_MESSAGE(in_reduction == 2, machine.name);
  }
}

TEST_CASE("a device that has no room for the state twice has enough for snapshots, joins and a resume") {
  // Of 16 MiB each: the weights, three arrays that the trainer computes with, and the sum of gradients.
  constexpr int64_t kArrays = 5;
  constexpr int64_t kWeights = int64_t{4} << 20;
  constexpr int64_t kSpare = int64_t{12} << 20;  // less than the weights once more
  for (const Machine& machine : doubles()) {
    if (!machine.has_kernels) continue;
    INFO(machine.name);
    JobRunner job;
    std::string config = config_on(machine, "workers = 2\nmax_steps = 2\nmax_restarts = 1\n");
    for (const auto& [from, to] : {std::pair{"weights = 3001", "weights = 4194304"}, {"[2, 4]", "[16]"}})
      config.replace(config.find(from), std::string(from).size(), to);
    job.config(config);
    {
      const On on(with(machine, {"MEMORY_BYTES", std::to_string(kArrays * 4 * kWeights)}));
      const Ended ended = job.run_json();
      CHECK(ended.exit_code != 0);
      CHECK(has(ended.err, "not enough memory"));
    }
    const On on(with(machine, {"MEMORY_BYTES", std::to_string(kArrays * 4 * kWeights + kSpare)}));
    const Ended killed = job.run_json({"--inject", "kill:rank=1,step=1,at=forward"});
    INFO(killed.err);
    REQUIRE(killed.exit_code == 0);
    CHECK(killed.summary["restarts"] == 1);
    CHECK(killed.summary["samples_missing"] == 0);
    CHECK_FALSE(has(killed.err, "not enough memory"));
    const Ended resumed = job.run_json({"--resume", "--set", "run.max_steps=3"});
    INFO(resumed.err);
    REQUIRE(resumed.exit_code == 0);
    CHECK(resumed.summary["resumed_from"] == 2);
    CHECK_FALSE(has(resumed.err, "not enough memory"));
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose own memory is larger
TEST_CASE("on the CPU a rank that takes a state over, hands it on or writes it holds none of it twice") {
  constexpr int64_t kArray = int64_t{4} * (int64_t{6} << 20);  // of the two of the state
  for (const bool deterministic : {true, false}) {
    if (deterministic && !is_thorough()) continue;
    CAPTURE(deterministic);
    std::string config = config_on(host_machine(), "workers = 2\nmax_steps = 3\nmax_restarts = 1" +
                                                       in_mode(deterministic) + "\nsnapshot_every = 0\n");
    const std::vector<std::pair<std::string, std::string>> changes{
        {"weights = 3001", "weights = 6291456\nsays_memory = true"},
        {"[2, 4]", "[16]\nmin_gpus = 2"},  // one rank alone would have the granules of both
        {"\"device_trainer\"", fmt::format("\"{}/device_worker\"", PLIANT_TEST_BIN_DIR)}};
    for (const auto& [from, to] : changes) config.replace(config.find(from), from.size(), to);
    JobRunner calm;
    calm.config(config);
    REQUIRE(calm.run_json().exit_code == 0);
    const int64_t needed = most_held(calm);
    REQUIRE(needed > 5 * kArray);
    JobRunner job;
    job.config(config);
    const Ended ended = job.run_json({"--set", "run.snapshot_every=1", "--inject", "kill:rank=1,step=1,at=forward"});
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(ended.summary["restarts"] == 1);
    const int64_t held = most_held(job);
    CHECK(held < needed + kArray / 2);
    MESSAGE("deterministic = ", deterministic, ": at most ", needed, " bytes in a calm job, ", held, " in this one");
  }
}
#endif

#ifdef PLIANT_SOFT_CUDA_DIR
TEST_CASE(
    "a worker whose device is lost in mid-step, or has no memory left, is replaced, and the weights are the same") {
  for (const Machine& machine : {soft_cuda_without_nccl(), soft_cuda_with_nccl()}) {
    for (const Fault& fault : {Fault{"LOSE_DEVICE_AT", "40"},
                               {"LOSE_DEVICE_AT", "733"},
                               {"LOSE_DEVICE_AT", "2001"},
                               {"FAIL_ALLOC_AT", "3"},
                               {"FAIL_ALLOC_AT", "8"}}) {
      const On on(with_at_one(machine, fault));
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
#endif

TEST_CASE("devices that others keep for themselves end the job at once, and one worker that meets them is replaced") {
  for (const Machine& machine : doubles()) {
    INFO(machine.name);
    {
      const On on(with(machine, {"BUSY", "1"}));
      JobRunner job;
      job.config(config_on(machine, "workers = 2"));
      const Ended ended = job.run_json();
      INFO(ended.err);
      CHECK(ended.exit_code == 3);
      CHECK(ended.summary["restarts"] == 0);
      CHECK(has(ended.summary["reason"].get<std::string>(),
                machine.name == "level_zero" ? "ZE_RESULT_ERROR_NOT_AVAILABLE: another process uses it"
                                             : "the devices are busy, or their compute mode excludes this process"));
    }
    const On on(with_at_one(machine, {"BUSY", "1"}));
    JobRunner job;
    job.config(config_on(machine, "workers = 2\ndeterministic = true"));
    const Ended ended = job.run_json();
    check_whole(ended);
    CHECK(ended.summary["restarts"] == 1);
    CHECK(job.snapshot() == reference().snapshot);
  }
}

TEST_CASE("a machine without devices ends the job at once, and says who knows why") {
  for (const Machine& machine : doubles()) {
    const On on(with(machine, {"DEVICES", "0"}));
    JobRunner job;
    job.config(config_on(machine, "workers = 2"));
    const Ended ended = job.run_json();
    INFO(machine.name << ": " << ended.err);
    CHECK(ended.exit_code == 3);
    CHECK(ended.summary["restarts"] == 0);
    const std::string accelerator = machine.name == "level_zero" ? "level_zero" : "cuda";
    CHECK(has(ended.err, fmt::format("accelerator '{}' finds no device on this machine: ", accelerator)));
    CHECK(has(ended.err, "; `pliant accel list` shows the devices of all accelerators"));
  }
}

#ifdef PLIANT_SOFT_LEVEL_ZERO
TEST_CASE("a worker whose device of Level Zero is lost in mid-step is replaced, and the weights are the same") {
  const Machine machine = soft_level_zero();
  const auto is_lost_in_reduction = [&machine](int at) {
    const On on(with_at_one(machine, {"LOSE_DEVICE_AT", std::to_string(at)}));
    INFO("command " << at);
    JobRunner job;
    job.config(config_on(machine, "workers = 2\ndeterministic = true"));
    const Ended ended = job.run_json();
    check_whole(ended);
    CHECK(has(ended.err, "ZE_RESULT_ERROR_DEVICE_LOST"));
    CHECK(ended.summary["restarts"] == 1);
    CHECK(job.snapshot() == reference().snapshot);
    CHECK(job.processes_left() == 0);
    return has(ended.err, "rank 1 (worker 1) reported a failure: accelerator 'level_zero': ");
  };
  if (!machine.has_kernels) {
    is_lost_in_reduction(400);
    return;
  }
  bool in_reduction = false;
  bool before_it = false;
  for (int at = 436; at < 500 && !(in_reduction && before_it); at += 8) {
    (is_lost_in_reduction(at) ? in_reduction : before_it) = true;
  }
  CHECK(in_reduction);
  CHECK(before_it);
}
#endif

TEST_CASE("a device that is not there is refused with those that are") {
  JobRunner job;
  job.config(config_on(host_machine(), "workers = 2", "device = 3\n"));
  const Ended ended = job.run_json();
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(ended.err.find("[accelerator] device = 3, but 'host' has only device 0 on this machine") != std::string::npos);
}
