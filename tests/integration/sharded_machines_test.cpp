// Jobs whose state is cut over the workers: the same bits on every accelerator, whoever leaves, dies, stops and goes
// on.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "integration/sharded_jobs.hpp"
#include "integration/sharded_machines.hpp"
#include "thorough.hpp"

using namespace pliant::test;

namespace {

/// zero3 as with a model far above its limits: layers are gathered ahead, and released after their use.
const std::vector<std::string> kZero3OfALargeModel{
    "coordinator.zero3.param_persistence_threshold=-1", "coordinator.zero3.max_reuse_distance=0",
    "coordinator.zero3.prefetch_bucket_size=6000", "coordinator.zero3.reduce_bucket_size=3000"};

/// Coordinators whose jobs gather parameters again in a step: what they set, of [coordinator].
const std::vector<std::vector<std::string>>& ways() {
  static const std::vector<std::vector<std::string>> kOne{kTightSample};
  static const std::vector<std::vector<std::string>> kBoth{kZero3OfALargeModel, kTightSample};
  return kIsSanitized ? kOne : kBoth;
}

/// Whether the machine of this number takes the way of that number of `all`: each in turn, so that every one is met on
/// some machine; in thorough tests all.
bool is_taken(size_t machine, size_t way, size_t all) {
  return is_thorough() || kIsSanitized || machine % all == way;
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
  struct Mode {
    std::vector<std::string> way;
    bool deterministic;
  };
  std::vector<Mode> modes{{{"coordinator.use=\"planned\""}, false}};
  for (const std::vector<std::string>& way : ways()) modes.push_back({way, true});
  const std::vector<ShardedMachine> machines = sharded_machines();
  for (size_t m = 0; m < machines.size(); ++m) {
    const ShardedMachine& machine = machines[m];
    for (size_t number = 0; number < modes.size(); ++number) {
      const Mode& mode = modes[number];
      if (!is_taken(m, number, modes.size())) continue;
      if (!mode.deterministic && has(machine.name, "sim")) continue;  // the ways of a device, and only to be late
      CAPTURE(machine.name);
      CAPTURE(mode.way.front());
      CAPTURE(mode.deterministic);
      JobRunner job;
      const std::vector<std::string> sets =
          joined(joined(machine.sets, mode.way), {"elasticity.\"v0.1\".min_gpus=2", "run.max_restarts=20",
                                                  fmt::format("run.deterministic={}", mode.deterministic)});
      const Ended ended = run_on(machine, job, disturbed(sharded_job(3, sets), injections));
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      CHECK(ended.summary.at("restarts") == injections.size() - 1);
      CHECK(!has(ended.err, "did not happen"));
      check_commits(commits_of(job), undisturbed_job().commits, mode.deterministic);
      if (mode.deterministic) CHECK(last_state(job) == undisturbed());
    }
  }
}

TEST_CASE("a sharded job that was stopped goes on to the same bits on every accelerator, with more workers or fewer") {
  const std::vector<ShardedMachine> machines = sharded_machines();
  for (size_t m = 0; m < machines.size(); ++m) {
    const ShardedMachine& machine = machines[m];
    for (size_t number = 0; number < ways().size(); ++number) {
      if (!is_taken(m, number, ways().size())) continue;
      const std::vector<std::string>& way = ways()[number];
      CAPTURE(machine.name);
      CAPTURE(way.front());
      JobRunner job;
      const auto with = [&](int64_t steps) {
        return joined(joined(machine.sets, way), {fmt::format("run.max_steps={}", steps)});
      };
      const Ended first = run_on(machine, job, sharded_job(3, with(7)));
      {
        INFO(first.err);
        REQUIRE(first.exit_code == 0);
      }
      for (const auto& [workers, steps] : {std::pair{int64_t{4}, int64_t{10}}, std::pair{int64_t{2}, kShardedSteps}}) {
        std::vector<std::string> again = sharded_job(workers, with(steps));
        again.insert(again.end(), {"--resume", job.latest().string()});
        const Ended resumed = run_on(machine, job, again);
        INFO(resumed.err);
        REQUIRE(resumed.exit_code == 0);
      }
      CHECK(last_state(job) == undisturbed());
      check_commits(commits_of(job), undisturbed_job().commits, true);
    }
  }
}

TEST_CASE(
    "with AdamW on the device, clipped by the norm of the gradient, a job has the same bits on every accelerator") {
  const auto job_of = [](int64_t workers, const std::vector<std::string>& sets) {
    const std::string program = fmt::format("run.command=[\"{}/sharded_worker\"]", PLIANT_TEST_BIN_DIR);
    return sharded_job(workers, joined(sets, {program, "app.optimizer=\"adamw\""}));
  };
  JobRunner alone;
  const std::string expected = state_after(alone, job_of(1, {"coordinator.use=\"eager\""}));
  CHECK(has(expected, "second_moment"));
  for (const ShardedMachine& machine : sharded_machines()) {
    if (has(machine.name, "sim")) continue;  // has the arithmetic of host
    CAPTURE(machine.name);
    JobRunner job;
    const std::vector<std::string> command = job_of(3, joined(machine.sets, kTightSample));
    const Ended ended = run_on(machine, job, disturbed(command, {"leave:rank=1,step=6", "kill:rank=0,step=10"}));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(ended.summary.at("restarts") == 1);
    CHECK(last_state(job) == expected);
  }
}

TEST_CASE("with bf16, averages of weights and evaluation between steps a job has the same bits on every accelerator") {
  std::string expected;
  const std::vector<ShardedMachine> machines = sharded_machines();
  for (size_t m = 0; m < machines.size(); ++m) {
    const ShardedMachine& machine = machines[m];
    for (size_t number = 0; number < ways().size(); ++number) {
      if (!is_taken(m, number, ways().size())) continue;
      const std::vector<std::string>& way = ways()[number];
      CAPTURE(machine.name);
      CAPTURE(way.front());
      const std::vector<std::string> sets =
          joined(joined(machine.sets, way), {"coordinator.compute_dtype=\"bf16\"", "coordinator.reduce_dtype=\"bf16\"",
                                             "lr.ema=0.75", "app.eval_every=3"});
      JobRunner job;
      const Ended ended = run_on(machine, job, disturbed(sharded_job(3, sets), {"leave:rank=1,step=6"}));
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      if (expected.empty()) expected = last_state(job);
      CHECK(last_state(job) == expected);
    }
  }
}
