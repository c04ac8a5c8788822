// Machines that jobs with devices run on, most of them software doubles, and what such jobs leave behind.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "integration/job_runner.hpp"

namespace pliant::test {

inline constexpr int64_t kSteps = 42;  ///< of a job of config_on

/// An accelerator as the operator names it, with the software doubles of what its machine would have.
struct Machine {
  std::string name;
  std::string accelerator;  ///< TOML
  std::map<std::string, std::string> environment{};
  bool has_kernels = true;  ///< its double launches them, and reports that; else the CPU reduces and takes digests
};

#ifdef PLIANT_LEVEL_ZERO_HAS_KERNELS
inline constexpr bool kLevelZeroHasKernels = true;
#else
inline constexpr bool kLevelZeroHasKernels = false;
#endif

inline std::vector<Machine> machines() {
  std::vector<Machine> all{{"host", "use = \"host\"\n", {}, false}};
#ifdef PLIANT_SOFT_CUDA_DIR
  const std::map<std::string, std::string> one{{"LD_LIBRARY_PATH", PLIANT_SOFT_CUDA_DIR}};
  std::map<std::string, std::string> four = one;
  four["PLIANT_SOFT_CUDA_DEVICES"] = "4";
  all.push_back({"cuda, one device", "use = \"cuda\"\n", one});
  all.push_back({"cuda, NCCL", "use = \"cuda\"\n[accelerator.cuda]\ncollectives = \"nccl\"\n", four});
#endif
  if (std::filesystem::exists("/dev/nvidia0")) all.push_back({"cuda, a GPU", "use = \"cuda\"\n", {}, false});
#ifdef PLIANT_SOFT_LEVEL_ZERO
  all.push_back({"level_zero",
                 "use = \"level_zero\"\n",
                 {{"ZE_ENABLE_ALT_DRIVERS", PLIANT_SOFT_LEVEL_ZERO}},
                 kLevelZeroHasKernels});
#endif
  return all;
}

/// The environment of a machine while this lives.
class On : Environment {
 public:
  explicit On(const Machine& machine) : Environment(machine.environment) {}
};

inline std::string config_on(const Machine& machine, const std::string& run_keys, const std::string& device = "") {
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

/// A key of [run], behind others.
inline std::string in_mode(bool deterministic) {
  return fmt::format("\ndeterministic = {}", deterministic);
}

/// On each machine in both modes; and where nobody says which collectives workers with a device each take, with NCCL
/// and without.
inline void on_every_machine(const std::function<void(const Machine&, bool deterministic)>& body) {
  std::vector<Machine> all = machines();
#ifdef PLIANT_SOFT_CUDA_DIR
  const auto environment = all.at(2).environment;
  all.push_back({"cuda, a device each", "use = \"cuda\"\n", environment});
  all.push_back({"cuda, a device each, no NCCL", "use = \"cuda\"\n[accelerator.cuda]\nnccl = \"none\"\n", environment});
#endif
  for (const Machine& machine : all) {
    const On on(machine);
    for (const bool deterministic : {true, false}) {
      INFO(machine.name << ", deterministic = " << deterministic);
      body(machine, deterministic);
    }
  }
}

inline void check_whole(const Ended& ended) {
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["steps"] == kSteps);
  CHECK(ended.summary["samples_used_once"] == 1000);
  CHECK(ended.summary["samples_repeated"] == 0);
}

/// The digests of each step's state and its arrays.
inline std::string digests_of(const JobRunner& job) {
  std::ifstream in(job.latest() / "digests.jsonl");
  return {std::istreambuf_iterator<char>(in), {}};
}

/// World sizes of the generations so far, one after the other.
inline std::vector<int64_t> sizes_of(const JobRunner& job) {
  std::vector<int64_t> sizes;
  for (const auto& record : job.ledger("generation")) sizes.push_back(record["world_size"].get<int64_t>());
  return sizes;
}

/// What the doubles report of a job's workers, by LOCAL_RANK.
struct Launches {
  int device = -1;        ///< of the last kernel
  int digests = 0;        ///< kernels that took some
  std::string violation;  ///< of the rules of the device's interface, the first; empty: none
};
inline std::map<int, Launches> launches_of(const JobRunner& job) {
  std::map<int, Launches> all;
  std::ifstream in(job.folder() / "launches");
  Launches one;
  for (int rank = 0; in >> rank >> one.device >> one.digests && in.ignore() && std::getline(in, one.violation);)
    all[rank] = one;
  return all;
}

/// The doubles report to the job's folder.
inline Machine that_reports(Machine machine, const JobRunner& job) {
  for (const char* name : {"PLIANT_SOFT_CUDA_REPORT_TO", "PLIANT_SOFT_ZE_REPORT_TO"})
    machine.environment[name] = (job.folder() / "launches").string();
  return machine;
}

/// The CPU, whose work starts late.
inline Machine late_machine() {
  return {"sim, late",
          fmt::format("use = \"sim\"\n[accelerator.sim]\nmax_delay_us = 20000\n[plugins]\ndirs = [\"{}\"]\n",
                      PLIANT_TESTKIT_PLUGIN_DIR)};
}

struct Reference {
  std::string snapshot;
  std::string digests;
  std::vector<elastic::CommitRecord> commits;
};

/// One worker on the CPU, undisturbed.
inline const Reference& reference() {
  static const Reference kReference = [] {
    JobRunner job;
    job.config(config_on(machines().front(), "workers = 1\ndeterministic = true"));
    check_whole(job.run_json());
    return Reference{job.snapshot(), digests_of(job), commits_of(job)};
  }();
  return kReference;
}

}  // namespace pliant::test
