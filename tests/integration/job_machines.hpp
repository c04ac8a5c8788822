// Machines that jobs with devices run on, most of them software doubles, and what such jobs leave behind.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "integration/job_runner.hpp"
#include "real_devices.hpp"
#include "thorough.hpp"

namespace pliant::test {

inline constexpr int64_t kSteps = 42;  ///< of a job of config_on

/// An accelerator as the operator names it, with the software doubles of what its machine would have.
struct Machine {
  std::string name;
  std::string accelerator;                           ///< TOML
  std::map<std::string, std::string> environment{};  ///< that makes it one of doubles; empty: it is what is there
  bool has_kernels = true;  ///< to reduce and to take digests with; else the CPU does that. Doubles report launches
  int devices = 1;          ///< that workers go round; 0: they do not count as such, and nobody shares them
  int most_workers = 4;     ///< that it serves

  [[nodiscard]] bool is_double() const { return !environment.empty(); }
};

#ifdef PLIANT_LEVEL_ZERO_HAS_KERNELS
inline constexpr bool kLevelZeroHasKernels = true;
#else
inline constexpr bool kLevelZeroHasKernels = false;
#endif
#ifdef PLIANT_CUDA_HAS_KERNELS
inline constexpr bool kCudaHasKernels = true;
#else
inline constexpr bool kCudaHasKernels = false;
#endif

/// The CPU.
inline Machine host_machine() {
  return {"host", "use = \"host\"\n", {}, false, 0};
}

#ifdef PLIANT_SOFT_CUDA_DIR
inline Machine soft_cuda(int devices, const std::string& name, const std::string& options = "") {
  return {name,
          "use = \"cuda\"\n" + options,
          {{"LD_LIBRARY_PATH", PLIANT_SOFT_CUDA_DIR}, {"PLIANT_SOFT_CUDA_DEVICES", std::to_string(devices)}},
          true,
          devices};
}
/// One device, which workers share and NCCL does not serve.
inline Machine soft_cuda_without_nccl() {
  return soft_cuda(1, "cuda, one device");
}
inline Machine soft_cuda_with_nccl() {
  return soft_cuda(4, "cuda, NCCL", "[accelerator.cuda]\ncollectives = \"nccl\"\n");
}
#endif

#ifdef PLIANT_SOFT_LEVEL_ZERO
inline Machine soft_level_zero() {
  return {"level_zero",
          "use = \"level_zero\"\n",
          {{"ZE_ENABLE_ALT_DRIVERS", PLIANT_SOFT_LEVEL_ZERO}},
          kLevelZeroHasKernels};
}
#endif

/// All doubles that there are.
inline std::vector<Machine> doubles() {
  std::vector<Machine> all;
#ifdef PLIANT_SOFT_CUDA_DIR
  all.push_back(soft_cuda_without_nccl());
  all.push_back(soft_cuda_with_nccl());
#endif
#ifdef PLIANT_SOFT_LEVEL_ZERO
  all.push_back(soft_level_zero());
#endif
  return all;
}

inline std::vector<Machine> real_machines() {
  std::vector<Machine> all;
  const RealDevices cuda = real_devices("cuda");
  if (cuda.count > 0) {
    const Machine gpus{"cuda, GPUs", "use = \"cuda\"\n", {}, kCudaHasKernels, cuda.count};
    all.push_back(gpus);
    all.push_back(gpus);
    all.back().name += ", no NCCL";
    all.back().accelerator += "[accelerator.cuda]\nnccl = \"none\"\n";
    if (cuda.has_collectives) {
      all.push_back(gpus);
      all.back().name += ", NCCL";
      all.back().accelerator += "[accelerator.cuda]\ncollectives = \"nccl\"\n";
      all.back().most_workers = cuda.count;  // it wants a device for each
    }
  }
  if (const RealDevices level_zero = real_devices("level_zero"); level_zero.count > 0)
    all.push_back({"level_zero, GPUs", "use = \"level_zero\"\n", {}, kLevelZeroHasKernels, level_zero.count});
  return all;
}

/// Those that serve so many workers, the CPU first.
inline std::vector<Machine> machines(int workers = 4) {
  std::vector<Machine> all{host_machine()};
  for (const auto& more : {doubles(), real_machines()}) all.insert(all.end(), more.begin(), more.end());
  all.erase(std::remove_if(all.begin(), all.end(), [&](const Machine& one) { return one.most_workers < workers; }),
            all.end());
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

/// On each machine in one mode, by turns, and in both in scripts/check-all; and where nobody says which collectives
/// workers with a device each take, with NCCL and without.
inline void on_every_machine(const std::function<void(const Machine&, bool deterministic)>& body) {
  std::vector<Machine> all = machines();
#ifdef PLIANT_SOFT_CUDA_DIR
  all.push_back(soft_cuda(4, "cuda, a device each"));
  all.push_back(soft_cuda(4, "cuda, a device each, no NCCL", "[accelerator.cuda]\nnccl = \"none\"\n"));
#endif
  size_t number = turn_of_test();
  for (const Machine& machine : all) {
    const On on(machine);
    ++number;
    for (const bool deterministic : {true, false}) {
      if (!is_thorough() && deterministic != (number % 2 == 0)) continue;
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
    job.config(config_on(host_machine(), "workers = 1\ndeterministic = true"));
    check_whole(job.run_json());
    return Reference{job.snapshot(), digests_of(job), commits_of(job)};
  }();
  return kReference;
}

}  // namespace pliant::test
