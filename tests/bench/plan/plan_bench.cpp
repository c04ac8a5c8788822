// Time of a plan as an embedder asks for it: Planner::plan() on a planner that is ready, and on one made for it. The
// config is parsed and the plugin opened before. v0.1 and v0.2 compute in plan(), `exact` when the planner is made.
#include <benchmark/benchmark.h>

#include <optional>
#include <string>

#include "cases.hpp"
#include "pliant/config.hpp"
#include "pliant/plan.hpp"

namespace {

pliant::Config config_of(const bench::Case& one, const std::string& policy) {
  pliant::ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
  overrides.read_environment = false;
  const pliant::ConfigNeeds needs{"elasticity"};
  return pliant::Config::parse(bench::toml_of(one, policy), needs, overrides);
}

/// What v0.2 reads from WORLD_SIZE.
std::optional<std::string> devices_of(const std::string& policy) {
  return policy == "v0.2" ? std::optional<std::string>("1") : std::nullopt;
}

void plan(benchmark::State& state, const bench::Case& one, const std::string& policy) {
  const pliant::Planner planner(config_of(one, policy));
  const auto devices = devices_of(policy);
  for (auto _ : state) benchmark::DoNotOptimize(planner.plan(0, devices));
  state.SetLabel(bench::json_of(one));
}

void make_and_plan(benchmark::State& state, const bench::Case& one, const std::string& policy) {
  const pliant::Config config = config_of(one, policy);
  const auto devices = devices_of(policy);
  for (auto _ : state) benchmark::DoNotOptimize(pliant::Planner(config).plan(0, devices));
  state.SetLabel(bench::json_of(one));
}

void register_plans() {
  for (const std::string policy : {"v0.1", "v0.2", "exact"}) {
    for (const bench::Case& one : bench::cases()) {
      const std::string name = policy + "/" + bench::name_of(one);
      benchmark::RegisterBenchmark(("plan/" + name).c_str(), &plan, one, policy)->Unit(benchmark::kMicrosecond);
      benchmark::RegisterBenchmark(("make_and_plan/" + name).c_str(), &make_and_plan, one, policy)
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  register_plans();
  bench::register_common();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
