// Jobs whose state is cut over the workers: the same bits on every accelerator, whoever leaves, dies, stops and goes
// on.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "integration/sharded_jobs.hpp"

using namespace pliant::test;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;  // a job takes seconds: one machine of each kind
#else
constexpr bool kIsSanitized = false;
#endif

/// An accelerator of sharded jobs, most of them software doubles.
struct ShardedMachine {
  std::string name;
  std::vector<std::string> sets;
  std::map<std::string, std::string> environment;
};
std::vector<ShardedMachine> sharded_machines() {
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

/// zero3 as with a model far above its limits: layers are gathered ahead, and released after their use.
std::vector<std::string> of_a_large_model(std::vector<std::string> sets) {
  for (const char* const set : {"param_persistence_threshold=-1", "max_reuse_distance=0", "prefetch_bucket_size=6000",
                                "reduce_bucket_size=3000"})
    sets.push_back(fmt::format("coordinator.zero3.{}", set));
  return sets;
}

Ended run_on(const ShardedMachine& machine, JobRunner& job, const std::vector<std::string>& command) {
  const Environment here(machine.environment);
  return job.run(command);
}

}  // namespace

TEST_CASE(
    "a sharded job whose ranks leave and die at every point ends as undisturbed on every accelerator, also where work "
    "is late and runs in any order") {
  // Both ranks that are left are needed, so each of them is there whenever the other dies.
  std::vector<std::string> injections{"leave:rank=2,step=2"};
  for (const char* const death :
       {"rank=0,step=2,at=copy", "rank=1,step=5,at=gather", "rank=0,step=5,at=scatter", "rank=1,step=6,at=forward",
        "rank=0,step=6,at=reduce", "rank=1,step=7,at=vote", "rank=0,step=7,at=commit", "rank=1,step=8,at=snapshot",
        "rank=0,step=9,at=apply", "rank=0,step=12,at=finish"})
    injections.push_back(fmt::format("kill:{}", death));
  for (const ShardedMachine& machine : sharded_machines()) {
    for (const bool deterministic : {true, false}) {
      if (deterministic && machine.name == "host") continue;     // others do that
      if (!deterministic && has(machine.name, "sim")) continue;  // the ways of a device, and only to be late
      CAPTURE(machine.name);
      CAPTURE(deterministic);
      std::vector<std::string> sets = of_a_large_model(machine.sets);
      for (const char* const set : {"elasticity.\"v0.1\".min_gpus=2", "run.max_restarts=20"}) sets.emplace_back(set);
      sets.push_back(fmt::format("run.deterministic={}", deterministic));
      JobRunner job;
      const Ended ended = run_on(machine, job, disturbed(sharded_job(3, sets), injections));
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      CHECK(ended.summary.at("restarts") == injections.size() - 1);
      CHECK(!has(ended.err, "never struck"));
      check_commits(commits_of(job), undisturbed_job().commits, deterministic);
      if (deterministic) CHECK(last_state(job) == undisturbed());
    }
  }
}

TEST_CASE("a sharded job that was stopped goes on to the same bits on every accelerator, with more workers or fewer") {
  for (const ShardedMachine& machine : sharded_machines()) {
    CAPTURE(machine.name);
    JobRunner job;
    const auto with = [&machine](const std::string& set) {
      std::vector<std::string> sets = of_a_large_model(machine.sets);
      sets.push_back(set);
      return sets;
    };
    const Ended first = run_on(machine, job, sharded_job(3, with("run.max_steps=7")));
    {
      INFO(first.err);
      REQUIRE(first.exit_code == 0);
    }
    for (const auto& [workers, steps] : {std::pair{4, 10}, std::pair{2, static_cast<int>(kShardedSteps)}}) {
      std::vector<std::string> again = sharded_job(workers, with(fmt::format("run.max_steps={}", steps)));
      again.insert(again.end(), {"--resume", job.latest().string()});
      const Ended resumed = run_on(machine, job, again);
      INFO(resumed.err);
      REQUIRE(resumed.exit_code == 0);
    }
    CHECK(last_state(job) == undisturbed());
    check_commits(commits_of(job), undisturbed_job().commits, true);
  }
}

TEST_CASE("with bf16, averages of weights and evaluation between steps a job has the same bits on every accelerator") {
  std::string expected;
  for (const ShardedMachine& machine : sharded_machines()) {
    CAPTURE(machine.name);
    std::vector<std::string> sets = of_a_large_model(machine.sets);
    for (const char* const set :
         {"coordinator.compute_dtype=\"bf16\"", "coordinator.reduce_dtype=\"bf16\"", "lr.ema=0.75", "app.eval_every=3"})
      sets.emplace_back(set);
    JobRunner job;
    const Ended ended = run_on(machine, job, disturbed(sharded_job(3, sets), {"leave:rank=1,step=6"}));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    if (expected.empty()) expected = last_state(job);
    CHECK(last_state(job) == expected);
  }
}
