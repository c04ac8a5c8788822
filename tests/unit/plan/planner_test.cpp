// Planner: a policy without files, environment or log, from any thread; its digest; changes that make a size valid.
#include <doctest/doctest.h>
#include <stdlib.h>  // setenv

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "pliant/error.hpp"
#include "pliant/plan.hpp"

using pliant::Config;
using pliant::ConfigNeeds;
using pliant::ConfigOverrides;
using pliant::Error;
using pliant::Plan;
using pliant::PlanChange;
using pliant::Planner;

namespace {

Config config_of(const std::string& policy, const std::string& options, const std::string& more = "") {
  ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
  overrides.read_environment = false;
  const ConfigNeeds needs{"elasticity"};
  return Config::parse(
      "config_version = 1\n[elasticity]\nuse = \"" + policy + "\"\n[elasticity.\"" + policy + "\"]\n" + options + more,
      needs, overrides);
}

const std::string kOptions = "max_train_batch_size = 2000\nmicro_batch_sizes = [2, 4, 6]\n";

/// What `changes_for` would set, one line for each change.
std::vector<std::string> sets_of(const std::vector<PlanChange>& changes) {
  std::vector<std::string> lines;
  for (const PlanChange& change : changes) {
    std::string line;
    for (const std::string& set : change.sets) line += (line.empty() ? "" : "; ") + set;
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

TEST_CASE("a planner answers without a file") {
  const Planner planner(config_of("v0.1", kOptions));
  CHECK(planner.policy() == "v0.1");
  CHECK(planner.plan().global_batch == 1680);
  CHECK(planner.plan(4).micro_batch == 6);
  CHECK_THROWS_AS(static_cast<void>(planner.plan(9)), Error);
  CHECK_THROWS_AS(static_cast<void>(planner.plan(-1)), Error);
}

TEST_CASE("many threads may ask one planner") {
  const Planner planner(config_of("exact", kOptions + "max_gpus = 64\n"));
  const int64_t batch = planner.plan().global_batch;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&planner, &wrong, batch] {
      for (int64_t size = 1; size <= 64; ++size) wrong += planner.plan(size).global_batch == batch ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a planner does not read the environment, what it is told counts") {
  ::setenv("WORLD_SIZE", "4", 1);
  const Planner planner(config_of("v0.2", kOptions));
  CHECK_THROWS_AS(static_cast<void>(planner.plan()), Error);
  ::unsetenv("WORLD_SIZE");
  CHECK(planner.plan(0, "4").micro_batch == 6);
}

TEST_CASE("a policy's warnings come with the plan") {
  const Planner planner(config_of("v0.2", kOptions));
  CHECK(planner.plan(4).warnings.empty());
  const Plan drifted = planner.plan(11);
  REQUIRE(drifted.warnings.size() == 1);
  CHECK(drifted.warnings.front().find("for this size alone") != std::string::npos);
  CHECK(planner.plan(4).warnings.empty());
}

TEST_CASE("the policy's own answer is not held against the contract, and not changed") {
  const Planner planner(config_of("v0.2", kOptions));
  const Plan nothing = planner.unchecked(0, true, "4000");
  CHECK(nothing.global_batch == 0);
  CHECK(nothing.world_sizes == std::vector<pliant::WorldRange>{{4000, 4000}});
  CHECK(!nothing.warnings.empty());
  CHECK(planner.unchecked(4, true).micro_batch == planner.plan(4).micro_batch);
  CHECK_THROWS_AS(static_cast<void>(Planner(config_of("v0.1", kOptions)).unchecked(0, true)), Error);
}

TEST_CASE("a refusal carries the policy's warnings") {
  const Planner planner(config_of("v0.2", kOptions));
  try {
    static_cast<void>(planner.plan(4000));
    FAIL("a batch of 0 was taken");
  } catch (const Error& error) {
    CHECK(error.message().find("note: ") != std::string::npos);
    CHECK(error.message().find("global batch of 0") != std::string::npos);
  }
}

TEST_CASE("the digest is that of the policy and every option, defaults included") {
  const Planner planner(config_of("v0.1", kOptions));
  CHECK(planner.block().find(R"({"options":{"lcm_may_exceed_max":false,"max_gpus":10000,)") == 0);
  CHECK(planner.block().find(R"("policy":"v0.1","version":")") != std::string::npos);
  CHECK(planner.digest().size() == 16);
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char byte : planner.block()) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
  CHECK(std::stoull(planner.digest(), nullptr, 16) == hash);
  CHECK(Planner(config_of("v0.1", kOptions + "max_gpus = 10000\n")).digest() == planner.digest());
  CHECK(Planner(config_of("v0.1", kOptions + "max_gpus = 9999\n")).digest() != planner.digest());
  CHECK(Planner(config_of("v0.1", kOptions + "min_time = 5\n")).digest() != planner.digest());
  CHECK(Planner(config_of("exact", kOptions)).digest() != planner.digest());
}

TEST_CASE("min_time of every policy is in the plan, in seconds") {
  for (const char* policy : {"v0.1", "v0.2", "exact"}) {
    CHECK(Planner(config_of(policy, kOptions + "min_time = 5\n")).plan(4).min_resize_interval_s == 300);
    CHECK(Planner(config_of(policy, kOptions)).plan(4).min_resize_interval_s == 0);
  }
}

TEST_CASE("another policy gets the options that it shares, and keeps its own") {
  const Config config = config_of("v0.1", kOptions + "max_gpus = 64\nprefer_larger_batch = false\n");
  const Config exact = pliant::with_plugin(config, "elasticity", "exact");
  CHECK(exact.use("elasticity") == "exact");
  CHECK(Planner(exact).plan().world_sizes == std::vector<pliant::WorldRange>{{1, 64}});
  const Config own = config_of("v0.1", kOptions, "[elasticity.exact]\nmax_train_batch_size = 100\n");
  CHECK(Planner(pliant::with_plugin(own, "elasticity", "exact")).plan().global_batch <= 100);
  CHECK_THROWS_AS(static_cast<void>(pliant::with_plugin(config, "elasticity", "exakt")), Error);
}

TEST_CASE("changes that make a size valid were planned, the least first") {
  const Config seven = config_of("v0.1", "max_train_batch_size = 12\nmicro_batch_sizes = [2, 4]\nmax_gpus = 5\n");
  const auto changes = pliant::changes_for(seven, 6);
  REQUIRE_FALSE(changes.empty());
  CHECK(sets_of(changes).front() == R"(elasticity."v0.1".max_gpus=6)");
  for (const PlanChange& change : changes) {
    CHECK(change.plan.valid(6));
    CHECK(Planner(seven.with(change.sets)).plan(6).global_batch == change.plan.global_batch);
  }
}

TEST_CASE("a change that names another policy sets the options that it needs") {
  const Config config = config_of("v0.1", "max_train_batch_size = 12\nmicro_batch_sizes = [1, 2, 3]\n");
  const auto changes = pliant::changes_for(config, 5);
  REQUIRE_FALSE(changes.empty());
  CHECK(sets_of({changes.back()}).front() == R"(elasticity.use="exact"; elasticity.exact.max_train_batch_size=12; )"
                                             R"(elasticity.exact.micro_batch_sizes=[1, 2, 3])");
  CHECK(Planner(config.with(changes.back().sets)).plan(5).valid(5));
}

TEST_CASE("for a job that has begun only changes are named that keep its batch and its granule") {
  const Config config = config_of("v0.1", "max_train_batch_size = 10\nmicro_batch_sizes = [2, 4]\n");
  const int64_t batch = Planner(config).plan().global_batch;
  const auto all = pliant::changes_for(config, 3);
  CHECK(std::any_of(all.begin(), all.end(), [&](const PlanChange& change) {
    return change.plan.global_batch != batch || change.plan.granule != 2;
  }));
  const auto kept = pliant::changes_for(config, 3, pliant::PinnedBatch{batch, 2});
  REQUIRE_FALSE(kept.empty());
  for (const PlanChange& change : kept) {
    CHECK(change.plan.global_batch == batch);
    CHECK(change.plan.granule == 2);
    CHECK(Planner(config.with(change.sets)).plan(3).valid(3));
  }
  CHECK(pliant::changes_for(config, 3, pliant::PinnedBatch{9999, 2}).empty());
}

TEST_CASE("one more micro-batch size makes a size valid") {
  const Config config = config_of("v0.1", "max_train_batch_size = 12\nmicro_batch_sizes = [4]\n");
  const auto lines = sets_of(pliant::changes_for(config, 6));
  CHECK(lines == std::vector<std::string>{R"(elasticity."v0.1".micro_batch_sizes=[1, 4])"});
}

TEST_CASE("where nothing helps nothing is advised") {
  CHECK(pliant::changes_for(config_of("exact", "max_train_batch_size = 4\nmicro_batch_sizes = [1]\n"), INT64_MAX / 2)
            .empty());
  CHECK(pliant::changes_for(config_of("v0.1", kOptions), 0).empty());
  const std::string groups = "model_parallel_size = 4611686018427387904\nmax_gpus = 4611686018427387904\n";
  CHECK(pliant::changes_for(config_of("exact", kOptions + groups), INT64_MAX / 2).empty());
}
