// Machines that jobs with devices run on, most of them software doubles, and what such jobs leave behind.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
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
};

inline std::vector<Machine> machines() {
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

inline std::vector<double> losses_of(const JobRunner& job) {
  std::vector<double> losses;
  for (const auto& record : job.ledger("commit")) losses.push_back(record["loss"].get<double>());
  return losses;
}

inline void check_close(const std::vector<double>& losses, const std::vector<double>& others) {
  REQUIRE(losses.size() == others.size());
  for (size_t i = 0; i < losses.size(); ++i) CHECK(losses[i] == doctest::Approx(others[i]).epsilon(1e-5));
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
};

/// One worker on the CPU, undisturbed.
inline const Reference& reference() {
  static const Reference kReference = [] {
    JobRunner job;
    job.config(config_on(machines().front(), "workers = 1\ndeterministic = true"));
    check_whole(job.run_json());
    return Reference{job.snapshot(), digests_of(job)};
  }();
  return kReference;
}

}  // namespace pliant::test
