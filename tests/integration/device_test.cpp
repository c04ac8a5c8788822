// Jobs whose weights and gradients stay on devices: the same weights, to the bit, on every accelerator, at every number
// of workers, after every loss.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "integration/job_runner.hpp"

using namespace pliant::test;

namespace {

constexpr int64_t kSteps = 42;

/// An accelerator as the operator names it, with the software doubles of what its machine would have.
struct Machine {
  std::string name;
  std::string accelerator;  ///< TOML
  std::map<std::string, std::string> environment{};
};

std::vector<Machine> machines() {
  std::vector<Machine> all{{"host", "use = \"host\"\n"}};
#ifdef PLIANT_SOFT_CUDA_DIR
  const std::map<std::string, std::string> one{{"LD_LIBRARY_PATH", PLIANT_SOFT_CUDA_DIR}};
  std::map<std::string, std::string> four = one;
  four["PLIANT_SOFT_CUDA_DEVICES"] = "4";
  all.push_back({"cuda, one device", "use = \"cuda\"\n", one});
  all.push_back({"cuda, NCCL", "use = \"cuda\"\n[accelerator.cuda]\ncollectives = \"nccl\"\n", four});
#endif
  if (std::filesystem::exists("/dev/nvidia0")) all.push_back({"cuda, a GPU", "use = \"cuda\"\n"});
#ifdef PLIANT_SOFT_LEVEL_ZERO
  all.push_back({"level_zero", "use = \"level_zero\"\n", {{"ZE_ENABLE_ALT_DRIVERS", PLIANT_SOFT_LEVEL_ZERO}}});
#endif
  return all;
}

/// The environment of a machine while this lives.
class On {
 public:
  explicit On(const Machine& machine) : names_(machine.environment) {
    for (const auto& [name, value] : names_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  On(const On&) = delete;
  On& operator=(const On&) = delete;
  ~On() {
    for (const auto& [name, value] : names_) ::unsetenv(name.c_str());
  }

 private:
  std::map<std::string, std::string> names_;
};

std::string config_on(const Machine& machine, const std::string& run_keys, const std::string& device = "") {
  return fmt::format(R"(config_version = 1
[elasticity]
use = "v0.1"
[elasticity."v0.1"]
max_train_batch_size = 32
micro_batch_sizes = [2, 4]
[sampler]
use = "fixed"
[sampler.fixed]
order = "random"
[lr]
use = "sqrt"
base_lr = 0.01
[run]
name = "toy"
command = ["device_trainer"]
attach = "required"
{}
[app]
weights = 3001
[accelerator]
{}{})",
                     run_keys, device, machine.accelerator);
}

void check_whole(const Ended& ended) {
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["steps"] == kSteps);
  CHECK(ended.summary["samples_used_once"] == 1000);
  CHECK(ended.summary["samples_repeated"] == 0);
}

/// The digests of each step's state and its arrays.
std::string digests_of(JobRunner& job) {
  std::ifstream in(job.latest() / "digests.jsonl");
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Reference {
  std::string snapshot;
  std::string digests;
};

/// One worker on the CPU, undisturbed.
const Reference& reference() {
  static const Reference kReference = [] {
    JobRunner job;
    job.config(config_on(machines().front(), "workers = 1\ndeterministic = true"));
    check_whole(job.run_json());
    return Reference{job.snapshot(), digests_of(job)};
  }();
  return kReference;
}

}  // namespace

TEST_CASE(
    "in deterministic mode the weights are bitwise the same on every accelerator and at every number of workers") {
  for (const Machine& machine : machines()) {
    const On on(machine);
    for (const int workers : {1, 2, 4}) {
      INFO(machine.name << ", " << workers << " workers");
      JobRunner job;
      job.config(config_on(machine, fmt::format("workers = {}\ndeterministic = true", workers)));
      const Ended ended = job.run_json();
      check_whole(ended);
      CHECK(job.snapshot() == reference().snapshot);
      CHECK(digests_of(job) == reference().digests);  // which the device takes itself
      const bool shares = machine.name != "host" && machine.name != "cuda, NCCL" && workers > 1;  // a GPU is one here
      CHECK((ended.err.find("share device 0") != std::string::npos) == shares);
    }
  }
}

TEST_CASE("a job on devices that loses a worker at any point of a step comes to the same weights") {
  for (const Machine& machine : machines()) {
    const On on(machine);
    for (const char* at : {"forward", "reduce", "vote", "commit", "apply"}) {
      INFO(machine.name << ", at " << std::string(at));
      JobRunner job;
      job.config(config_on(machine, "workers = 2\ndeterministic = true"));
      const Ended ended = job.run_json({"--inject", fmt::format("kill:rank=1,step=9,at={}", at)});
      check_whole(ended);
      CHECK(ended.summary["restarts"] == 1);
      CHECK(job.snapshot() == reference().snapshot);
      CHECK(job.processes_left() == 0);
    }
  }
}

TEST_CASE("a joiner that dies half way through its copy to the device is replaced, and the weights are the same") {
  for (const Machine& machine : machines()) {
    const On on(machine);
    INFO(machine.name);
    JobRunner job;
    job.config(config_on(machine, "workers = 4\ndeterministic = true"));
    const Ended ended = job.run_json({"--inject", "kill:rank=1,step=9", "--inject", "kill:rank=3,step=10,at=copy"});
    check_whole(ended);
    CHECK(ended.err.find("(copy)") != std::string::npos);
    CHECK(ended.summary["restarts"] == 2);
    CHECK(job.snapshot() == reference().snapshot);
  }
}

TEST_CASE("a job on devices is stopped, resumed at another size, and comes to the same weights") {
  for (const Machine& machine : machines()) {
    const On on(machine);
    INFO(machine.name);
    JobRunner job;
    job.config(config_on(machine, "workers = 2\ndeterministic = true"));
    const pid_t agent = job.start({"run", "pliant.toml", "--json"});
    REQUIRE(job.wait_for_commits(agent, 5));
    ::kill(agent, SIGINT);
    CHECK(job.wait(agent).exit_code == 130);
    const Ended ended = job.run_json({"--resume", "--workers", "1"});
    check_whole(ended);
    CHECK(job.snapshot() == reference().snapshot);
  }
}

TEST_CASE("in fast mode a job on devices uses every sample once and its losses agree with those on the CPU") {
  std::vector<double> on_cpu;
  for (const Machine& machine : machines()) {
    const On on(machine);
    INFO(machine.name);
    for (const char* at : {"forward", "reduce", "vote", "commit", "apply"}) {
      JobRunner job;
      job.config(config_on(machine, "workers = 4"));
      check_whole(job.run_json({"--inject", fmt::format("kill:rank=2,step=5,at={}", at)}));
      std::vector<double> losses;
      for (const auto& record : job.ledger("commit")) losses.push_back(record["loss"].get<double>());
      if (on_cpu.empty()) on_cpu = losses;
      REQUIRE(losses.size() == on_cpu.size());
      for (size_t i = 0; i < losses.size(); ++i) CHECK(losses[i] == doctest::Approx(on_cpu[i]).epsilon(1e-5));
    }
  }
}

#ifdef PLIANT_SOFT_CUDA_DIR
TEST_CASE(
    "a worker whose device is lost in mid-step, or has no memory left, is replaced, and the weights are the same") {
  for (const Machine& machine : machines()) {
    if (machine.environment.count("LD_LIBRARY_PATH") == 0) continue;
    for (const auto& [fault, at] : {std::pair{"PLIANT_SOFT_CUDA_LOSE_DEVICE_AT", 40},
                                    {"PLIANT_SOFT_CUDA_LOSE_DEVICE_AT", 733},
                                    {"PLIANT_SOFT_CUDA_LOSE_DEVICE_AT", 2001},
                                    {"PLIANT_SOFT_CUDA_FAIL_ALLOC_AT", 3},
                                    {"PLIANT_SOFT_CUDA_FAIL_ALLOC_AT", 8}}) {
      Machine faulty = machine;
      faulty.environment["PLIANT_SOFT_CUDA_FAULTS_OF"] = "1";
      faulty.environment[fault] = std::to_string(at);
      const On on(faulty);
      INFO(machine.name << ", " << std::string(fault) << " " << at);
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
  CHECK(ended.err.find("accelerator 'cuda' finds no device on this machine; `pliant accel list` says why") !=
        std::string::npos);
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

TEST_CASE("a state whose array lies where nothing is ends the job before the first step, and names the array") {
  for (const Machine& machine : machines()) {
    const On on(machine);
    INFO(machine.name);
    JobRunner job;
    job.config(toy_config("workers = 2", "misbehave = \"foreign_array\"\n[accelerator]\n" + machine.accelerator));
    const Ended ended = job.run_json();
    INFO(ended.err);
    CHECK(ended.exit_code == 2);
    CHECK(ended.err.find(
              "TrainingState::arrays: 'weights' is memory that neither the accelerator nor this process has") !=
          std::string::npos);
  }
}
