// Where workers compute, and what they hand in from there: digests, pieces of gradients, arrays of a state.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "integration/job_machines.hpp"

using namespace pliant::test;

namespace {

/// What the workers of a job logged.
std::string logs_of(const JobRunner& job) {
  std::string all;
  for (const auto& entry : std::filesystem::directory_iterator(job.latest() / "logs")) all += read_all(entry.path());
  return all;
}

constexpr const char* kWithoutKernels = "run on the CPU";

}  // namespace

TEST_CASE("digests of arrays in device memory are taken there, by one kernel for each, and none where none is due") {
  for (const Machine& machine : machines(2)) {
    if (!machine.has_kernels) continue;
    for (const int every : {1, 0}) {
      INFO(machine.name << ", every " << every);
      JobRunner job;
      const On on(that_reports(machine, job));
      job.config(config_on(machine, fmt::format("workers = 2\ndigest_every = {}", every)));
      const Ended ended = job.run_json();
      check_whole(ended);
      CHECK(ended.summary["digests"] == (every == 0 ? 0 : kSteps));
      CHECK_FALSE(has(logs_of(job), kWithoutKernels));
      if (!machine.is_double()) continue;
      const auto launches = launches_of(job);
      REQUIRE(launches.size() == 2);
      for (const auto& [rank, of_rank] : launches) CHECK(of_rank.digests == (every == 0 ? 0 : kSteps + 1));
    }
  }
}

#ifdef PLIANT_SOFT_CUDA_DIR
TEST_CASE("where kernels cannot be loaded the CPU takes the digests, and the workers say so") {
  Machine machine = soft_cuda_without_nccl();
  machine.environment["PLIANT_SOFT_CUDA_NO_KERNELS"] = "1";
  JobRunner job;
  const On on(that_reports(machine, job));
  job.config(config_on(machine, "workers = 2\ndeterministic = true"));
  const Ended ended = job.run_json();
  check_whole(ended);
  CHECK(ended.summary["digests"] == kSteps);
  CHECK(digests_of(job) == reference().digests);
  CHECK(has(logs_of(job), kWithoutKernels));
  CHECK(launches_of(job).empty());
}
#endif

TEST_CASE("workers free no memory that an update, or another worker, still uses when their job is done") {
  for (Machine machine : doubles()) {
    if (!machine.has_kernels) continue;
    for (const char* name : {"CUDA", "ZE"}) {
      machine.environment[fmt::format("PLIANT_SOFT_{}_SEED", name)] = "1";
      machine.environment[fmt::format("PLIANT_SOFT_{}_MAX_DELAY_US", name)] = "20000";
      machine.environment[fmt::format("PLIANT_SOFT_{}_FAULTS_OF", name)] =
          "1";  // it is told that the job is done first
    }
    INFO(machine.name);
    JobRunner job;
    const On on(that_reports(machine, job));
    job.config(config_on(machine, "workers = 2\ndigest_every = 0\nmax_steps = 1"));
    const Ended ended = job.run_json();
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    const auto launches = launches_of(job);
    REQUIRE(launches.size() == 2);
    for (const auto& one : launches) CHECK_MESSAGE(one.second.violation.empty(), one.second.violation);
  }
}

TEST_CASE("workers go round the devices there are, or all to the one that [accelerator] device names") {
  for (Machine machine : doubles()) {
    if (machine.name == "cuda, NCCL") continue;  // of four workers it wants a device for each
    machine.environment["PLIANT_SOFT_CUDA_DEVICES"] = machine.environment["PLIANT_SOFT_ZE_DEVICES"] = "3";
    const std::map<std::string, std::vector<int>> devices_by_option{{"", {0, 1, 2, 0}}, {"device = 2\n", {2, 2, 2, 2}}};
    for (const auto& choice : devices_by_option) {
      const std::string& option = choice.first;
      INFO(machine.name << ", " << option);
      JobRunner job;
      const On on(that_reports(machine, job));
      job.config(config_on(machine, "workers = 4\ndeterministic = true", option));
      const Ended ended = job.run_json();
      check_whole(ended);
      std::vector<int> devices;
      for (const auto& [rank, of_rank] : launches_of(job)) devices.push_back(of_rank.device);
      if (machine.has_kernels) CHECK(devices == choice.second);
      CHECK(job.snapshot() == reference().snapshot);
      CHECK(has(ended.err, option.empty() ? "workers 0 and 3 share device 0" : "workers 0, 1, 2 and 3 share device 2"));
    }
    const On on(machine);
    JobRunner job;
    job.config(config_on(machine, "workers = 2", "device = 3\n"));
    const Ended refused = job.run_json();
    INFO(refused.err);
    CHECK(refused.exit_code == 2);
    CHECK(has(refused.err, "[accelerator] device = 3, but '"));
    CHECK(has(refused.err, "has devices 0..2 on this machine"));
  }
}

TEST_CASE("a gradient on a device that is not finite is not committed") {
  for (const Machine& machine : machines()) {
    const On on(machine);
    for (const char* deterministic : {"true", "false"}) {
      INFO(machine.name << ", deterministic = " << std::string(deterministic));
      JobRunner job;
      job.config(toy_config(fmt::format("workers = 2\ndeterministic = {}", deterministic),
                            "misbehave = \"nan_gradient\"\nmisbehave_rank = 1\nmisbehave_step = 3\n[accelerator]\n" +
                                machine.accelerator));
      const Ended ended = job.run_json();
      INFO(ended.err);
      CHECK(ended.exit_code == 1);
      CHECK(ended.summary["steps"] == 3);
      const std::string reason = ended.summary["reason"];
      CHECK_MESSAGE(reason.find("on rank 1") != std::string::npos, reason);
      CHECK_MESSAGE(reason.find("on rank 0") == std::string::npos, reason);
    }
  }
}

TEST_CASE("what is not finite in device memory, on one rank, on all or in the loss only, stops a job or is skipped") {
  struct Kind {
    const char* how;
    int rank;
    const char* named;
  };
  for (const Machine& machine : machines()) {
    const On on(machine);
    for (const Kind kind :
         {Kind{"nan_in_front", 1, "on rank 1"}, Kind{"nan_in_front", -1, "rank 0"}, Kind{"nan_loss", 0, "on rank 0"}}) {
      for (const bool skips : {false, true}) {
        INFO(machine.name << ", " << std::string(kind.how) << " on " << kind.rank << ", " << skips);
        JobRunner job;  // the first half of a gradient comes from the device
        job.config(toy_config(fmt::format("workers = 2\nmax_steps = 6\non_nonfinite = \"{}\"", skips ? "skip" : "stop"),
                              misbehaving(kind.how, kind.rank, 3) + "misbehave_always = true\npieces = \"bf16\"\n" +
                                  "[accelerator]\n" + machine.accelerator));
        const Ended ended = job.run_json();
        INFO(ended.err);
        CHECK(ended.exit_code == (skips ? 0 : 1));
        CHECK(ended.summary["steps"] == (skips ? 6 : 3));
        CHECK(ended.summary["steps_skipped"] == (skips ? 1 : 0));
        CHECK(job.ledger("not_finite").size() == (skips ? 0 : 1));
        const std::string told = skips ? ended.err : ended.summary["reason"].get<std::string>();
        CHECK(has(told, kind.named));
        const bool has_rows = machine.name == "host" || machine.has_kernels || std::string(kind.how) == "nan_loss";
        CHECK(has(told, "the gradient or the loss of rows ") == has_rows);
        CHECK(has(told, "the rows are unknown") == !has_rows);
        if (skips) CHECK(job.parts_of_state(3) == job.parts_of_state(4));
        if (skips) CHECK(job.parts_of_state(3) != job.parts_of_state(5));
      }
    }
  }
}

TEST_CASE("a step refuses pieces that are none, or in memory that is none, and goes on as if they had not been there") {
  for (const Machine& machine : machines()) {
    const On on(machine);
    const std::string accelerator = "[accelerator]\n" + machine.accelerator;
    INFO(machine.name);
    JobRunner undisturbed;
    undisturbed.config(toy_config("workers = 2\ndeterministic = true", accelerator));
    REQUIRE(undisturbed.run_json().exit_code == 0);
    JobRunner job;
    job.config(toy_config("workers = 2\ndeterministic = true",
                          "misbehave = \"bad_pieces\"\nmisbehave_rank = -1\n" + accelerator));
    const Ended ended = job.run_json();
    INFO(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(ended.summary["restarts"] == 0);
    CHECK(job.snapshot() == undisturbed.snapshot());
  }
}

TEST_CASE("gradients of 16 bits are added up as the floats that they stand for, from the host and from the device") {
  JobRunner plain;
  plain.config(toy_config("workers = 2\ndeterministic = true"));
  REQUIRE(plain.run_json().exit_code == 0);
  for (const char* type : {"bf16", "f16"}) {
    const std::string pieces = fmt::format("pieces = \"{}\"\n", type);
    JobRunner wide;
    wide.config(toy_config("workers = 2\ndeterministic = true", pieces + "widened = true\n"));
    REQUIRE(wide.run_json().exit_code == 0);
    CHECK(wide.snapshot() != plain.snapshot());
    for (const Machine& machine : machines()) {
      const On on(machine);
      INFO(machine.name << ", " << std::string(type));
      JobRunner job;
      job.config(toy_config("workers = 2\ndeterministic = true", pieces + "[accelerator]\n" + machine.accelerator));
      const Ended ended = job.run_json();
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      CHECK(job.snapshot() == wide.snapshot());
    }
  }
}

TEST_CASE("a state whose array lies where nothing is ends the job before the first step, and names the array") {
  for (const Machine& machine : machines()) {
    const On on(machine);
    INFO(machine.name);
    JobRunner job;
    job.config(toy_config("workers = 2", "misbehave = \"foreign_array\"\n[accelerator]\n" + machine.accelerator));
    const Ended ended = job.run_json();
    INFO(ended.err);
    CHECK(ended.exit_code == 2);
    CHECK(ended.err.find("TrainingState::arrays: 'weights' is memory of neither the accelerator nor this process") !=
          std::string::npos);
  }
}
