// What `pliant coordinator simulate` takes: visits (enter and leave) a second of steps that planned knows, answered,
// held against the rules, counted and timed on paper; and all of a simulation from the model on. In time of the
// thread's own, so that other programs have little part in it.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <time.h>

#include <cstdint>
#include <string>

#include "model_file.hpp"
#include "pliant/config.hpp"
#include "sharded/arena_books.hpp"
#include "sharded/rehearsal.hpp"
#include "sharded/step_clock.hpp"

namespace {

using namespace pliant;

constexpr int64_t kElements = 4096;
constexpr int32_t kWorkers = 4;
constexpr int kKnown = 4;  ///< steps until all is planned
constexpr int kSteps = 8;

Config config_of(const std::string& coordinator, int64_t budget) {
  ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
  overrides.read_environment = false;
  return Config::parse(
      fmt::format("config_version = 1\n[coordinator]\nuse = \"{}\"\nbudget = {}\n", coordinator, budget),
      {"coordinator"}, overrides);
}

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// Seconds of all, and of the steps from kKnown on.
struct Took {
  double all = 0;
  double known = 0;
};

Took simulated(const Config& config, const sharded::ModelTables& model) {
  const auto budget = static_cast<uint64_t>(config.coordinator().budget.value_or(0));
  const double began = thread_seconds();
  double known = began;
  sharded::ArenaBooks books(model, kWorkers, {}, budget);
  sharded::StepClock clock(model, {.world_size = kWorkers, .budget = budget}, {});
  sharded::simulate(
      config, model, kWorkers, {kSteps, 1},
      [&](int step) {
        clock.begin_step();
        if (step == kKnown) known = thread_seconds();
      },
      [&](const sharded::RehearsedCall& call) {
        books.hear(call);
        benchmark::DoNotOptimize(books.take_most());
        clock.hear(call, 1000);
      });
  const double ended = thread_seconds();
  return {ended - began, ended - known};
}

/// Argument: layers of two parameters. `layers`: that the budget has room for; 0: there is none.
void simulate(benchmark::State& state, const std::string& coordinator, int64_t room) {
  const int64_t layers = state.range(0);
  const sharded::ModelTables model = cli::layers_of(layers, kElements);
  const Config config = config_of(coordinator, room * (kElements + 1024) * 4 * 3);
  double all = 0;
  for (auto _ : state) {
    const Took took = simulated(config, model);
    state.SetIterationTime(took.known);
    all += took.all;
  }
  const double visits = static_cast<double>((kSteps - kKnown) * (2 * layers + 2));
  state.counters["visits"] =
      benchmark::Counter(visits * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  state.counters["all_s"] = all / static_cast<double>(state.iterations());
}

/// A simulation has many visits: few are enough, and the largest take seconds.
void sizes(benchmark::internal::Benchmark* all) {
  all->Arg(128)->Arg(10000)->Arg(100000)->UseManualTime()->Iterations(3);
}

BENCHMARK_CAPTURE(simulate, planned, "planned", 0)->Apply(sizes);
BENCHMARK_CAPTURE(simulate, planned_room_for_three, "planned", 3)->Apply(sizes);
BENCHMARK_CAPTURE(simulate, eager, "eager", 0)->Apply(sizes);
BENCHMARK_CAPTURE(simulate, zero3, "zero3", 0)->Arg(128)->Arg(10000)->UseManualTime()->Iterations(3);

}  // namespace

BENCHMARK_MAIN();
