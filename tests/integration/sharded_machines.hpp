// Accelerators that sharded jobs run on, most of them software doubles.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "integration/job_runner.hpp"

namespace pliant::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;  // a job takes seconds: one machine of each kind
#else
inline constexpr bool kIsSanitized = false;
#endif

/// An accelerator of sharded jobs, most of them software doubles.
struct ShardedMachine {
  std::string name;
  std::vector<std::string> sets;
  std::map<std::string, std::string> environment;
};
inline std::vector<ShardedMachine> sharded_machines() {
  const std::string cuda = "accelerator.use=\"cuda\"";
  std::vector<ShardedMachine> machines;
  if (!kIsSanitized) machines.push_back({"host", {}, {}});
  for (const char* const visible : {"true", "false"}) {
    if (kIsSanitized && has(visible, "true")) continue;
    machines.push_back({fmt::format("sim, host_visible = {}", visible),
                        {"accelerator.use=\"sim\"",
                         fmt::format("accelerator.path=\"{}/accelerator-sim.pliant.so\"", PLIANT_TESTKIT_PLUGIN_DIR),
                         "accelerator.sim.reorder=true", "accelerator.sim.max_delay_us=100",
                         fmt::format("accelerator.sim.host_visible={}", visible)},
                        {}});
  }
#ifdef PLIANT_SOFT_CUDA_DIR
  const std::map<std::string, std::string> one{{"LD_LIBRARY_PATH", PLIANT_SOFT_CUDA_DIR}};
  std::map<std::string, std::string> four = one;
  four["PLIANT_SOFT_CUDA_DEVICES"] = "4";
  if (!kIsSanitized) machines.push_back({"cuda, one device", {cuda}, one});
  machines.push_back({"cuda, four devices", {cuda}, four});
#endif
  if (std::filesystem::exists("/dev/nvidia0")) machines.push_back({"cuda, a GPU", {cuda}, {}});
#ifdef PLIANT_SOFT_LEVEL_ZERO
  machines.push_back(
      {"level_zero", {"accelerator.use=\"level_zero\""}, {{"ZE_ENABLE_ALT_DRIVERS", PLIANT_SOFT_LEVEL_ZERO}}});
#endif
  return machines;
}

inline Ended run_on(const ShardedMachine& machine, JobRunner& job, const std::vector<std::string>& command) {
  const Environment here(machine.environment);
  return job.run(command);
}

}  // namespace pliant::test
