// Accelerators that sharded jobs run on: software doubles, and the devices that this machine has.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "integration/job_runner.hpp"
#include "real_devices.hpp"
#include "thorough.hpp"

namespace pliant::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;  // a job takes seconds: one machine of each kind
#else
inline constexpr bool kIsSanitized = false;
#endif

/// An accelerator of sharded jobs.
struct ShardedMachine {
  std::string name;
  std::vector<std::string> sets;
  std::map<std::string, std::string> environment{};  ///< that makes it one of doubles; empty: it is what is there
  bool is_main_device = false;  ///< the one of its kind, with memory of its own, that faults are tried on

  [[nodiscard]] bool is_double() const { return !environment.empty(); }
};

#ifdef PLIANT_SOFT_CUDA_DIR
/// Of so many devices.
inline ShardedMachine soft_cuda(int devices) {
  return {fmt::format("cuda, {}", devices == 1 ? "one device" : fmt::format("{} devices", devices)),
          {"accelerator.use=\"cuda\""},
          {{"LD_LIBRARY_PATH", PLIANT_SOFT_CUDA_DIR}, {"PLIANT_SOFT_CUDA_DEVICES", std::to_string(devices)}},
          devices > 1};
}
#endif

/// Late, and in any order that its events allow.
inline ShardedMachine sim(bool host_visible) {
  return {fmt::format("sim, host_visible = {}", host_visible),
          {"accelerator.use=\"sim\"",
           fmt::format("accelerator.path=\"{}/accelerator-sim.pliant.so\"", PLIANT_TESTKIT_PLUGIN_DIR),
           "accelerator.sim.reorder=true", "accelerator.sim.max_delay_us=100",
           fmt::format("accelerator.sim.host_visible={}", host_visible)}};
}

inline std::vector<ShardedMachine> sharded_machines() {
  std::vector<ShardedMachine> machines;
  if (!kIsSanitized) machines.push_back({"host", {}});
  for (const bool visible : {true, false}) {
    if (kIsSanitized && visible) continue;
    machines.push_back(sim(visible));
  }
#ifdef PLIANT_SOFT_CUDA_DIR
  if (!kIsSanitized) machines.push_back(soft_cuda(1));
  machines.push_back(soft_cuda(4));
#endif
#ifdef PLIANT_SOFT_LEVEL_ZERO
  machines.push_back(
      {"level_zero", {"accelerator.use=\"level_zero\""}, {{"ZE_ENABLE_ALT_DRIVERS", PLIANT_SOFT_LEVEL_ZERO}}, true});
#endif
  for (const char* const accelerator : {"cuda", "level_zero"}) {
    if (real_devices(accelerator).count == 0) continue;
    machines.push_back(
        {fmt::format("{}, GPUs", accelerator), {fmt::format("accelerator.use=\"{}\"", accelerator)}, {}, true});
  }
  return machines;
}

inline Ended run_on(const ShardedMachine& machine, JobRunner& job, const std::vector<std::string>& command) {
  const Environment here(machine.environment);
  return job.run(command);
}

/// `body` on one machine of each kind that has devices, in its environment; says so where there is none. Of software
/// doubles one in turn of the tests, all in scripts/check-all.
inline void on_devices(const std::function<void(const ShardedMachine&)>& body, bool doubles_only = false) {
  std::vector<ShardedMachine> devices = sharded_machines();
  std::erase_if(devices, [doubles_only](const ShardedMachine& one) {
    return !one.is_main_device || (doubles_only && !one.is_double());
  });
  if (!is_thorough()) {
    std::vector<std::string> doubles;
    for (const ShardedMachine& one : devices) {
      if (one.is_double()) doubles.push_back(one.name);
    }
    std::erase_if(devices, [&doubles](const ShardedMachine& one) {
      return one.is_double() && one.name != doubles[turn_of_test() % doubles.size()];
    });
  }
  if (devices.empty()) MESSAGE("not run: there is no GPU, and neither software CUDA nor a software driver");
  for (const ShardedMachine& machine : devices) {
    CAPTURE(machine.name);
    const Environment here(machine.environment);
    body(machine);
  }
}

}  // namespace pliant::test
