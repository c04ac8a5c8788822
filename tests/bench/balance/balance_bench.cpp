// Rank-time that each balancer loses, and the time that it takes for a step's assignment, on rows that samplers packed.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "pliant/balancer.hpp"

namespace {

using namespace pliant;

struct Workload {
  double median;
  double sigma;
  int64_t budget;
};
constexpr Workload kShort{300, 1.0, 8192};
constexpr Workload kLong{600, 1.6, 131072};
constexpr size_t kSequences = 1000000;
constexpr CostRates kRates{24576, 1};

Config config(const std::string& toml) {
  ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
  overrides.read_environment = false;
  return Config::parse("config_version = 1\n" + toml, {"sampler", "balancer"}, overrides);
}

Dataset lognormal(const Workload& workload) {
  std::lognormal_distribution<double> length(std::log(workload.median), workload.sigma);
  std::mt19937_64 engine(7020);
  std::vector<int32_t> lengths(kSequences);
  for (int32_t& one : lengths) {
    one = static_cast<int32_t>(std::clamp(std::ceil(length(engine)), 1.0, static_cast<double>(workload.budget)));
  }
  Dataset dataset;
  dataset.lengths = std::move(lengths);
  return dataset;
}

/// Costs of the rows of an epoch, kept.
const std::vector<int64_t>& packed(const Workload& workload, const std::string& sampler) {
  static std::map<std::string, std::vector<int64_t>> kept;
  std::vector<int64_t>& costs = kept[fmt::format("{} {}", sampler, workload.budget)];
  if (!costs.empty()) return costs;
  Plan plan;
  plan.global_batch = 1024;
  Batches batches(
      config(fmt::format("[sampler]\nuse = \"{0}\"\n[sampler.{0}]\nmax_tokens = {1}\n", sampler, workload.budget)),
      plan, lognormal(workload));
  for (int64_t index = 0; index < batches.epoch(0).batches; ++index) {
    const std::vector<int64_t> of_batch = row_costs(batches.batch(0, index), batches.dataset(), kRates);
    costs.insert(costs.end(), of_batch.begin(), of_batch.end());
  }
  return costs;
}

Balancer balancer(const std::string& use, const std::string& options) {
  return Balancer(config(fmt::format("[balancer]\nuse = \"{0}\"\n[balancer.{0}]\n{1}\n", use, options)));
}

/// Arguments: ranks, rows of one rank in a step. One row is one micro-batch.
void lost(benchmark::State& state, const Workload& workload, const std::string& sampler, const std::string& use,
          const std::string& options) {
  const std::vector<int64_t>& costs = packed(workload, sampler);
  const Balancer one = balancer(use, options);
  const Sharing how{.world_size = state.range(0)};
  const auto rows = static_cast<size_t>(state.range(0) * state.range(1));
  const size_t steps = costs.size() / rows;
  const auto step = [&](size_t i) { return std::span(costs).subspan(i * rows, rows); };
  Waiting sum;
  for (size_t i = 0; i < steps; ++i) sum += one.predict(step(i), how);
  size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(one.assign(step(next), how).blocks.data());
    next = (next + 1) % steps;
  }
  state.counters["lost_per_step"] = sum.lost_per_step();
  state.counters["lost_per_micro_batch"] = sum.lost_per_micro_batch();
  state.counters["steps"] = static_cast<double>(steps);
}

/// Sequences of kShort, each a block of its own: arguments are their number and the ranks.
void sequences(benchmark::State& state, const std::string& use, const std::string& options) {
  const Dataset dataset = lognormal(kShort);
  std::vector<int64_t> lengths(dataset.lengths.begin(), dataset.lengths.begin() + state.range(0));
  std::vector<uint64_t> offsets(lengths.size() + 1);
  for (size_t i = 0; i < offsets.size(); ++i) offsets[i] = i;
  const std::vector<int64_t> costs = row_costs(lengths, offsets, kRates);
  const Balancer one = balancer(use, options);
  const Sharing how{.world_size = state.range(1)};
  for (auto _ : state) benchmark::DoNotOptimize(one.assign(costs, how).blocks.data());
  const Waiting waits = one.predict(costs, how);
  state.counters["max_over_mean"] = waits.work > 0 ? waits.per_step / waits.work : 0;
}

const std::vector<std::vector<int64_t>> kShapes{{8, 64}, {1, 4, 16}};

void register_all() {
  struct Choice {
    const char* use;
    const char* options;
  };
  const std::vector<Choice> choices{{"contiguous", ""},
                                    {"round_robin", ""},
                                    {"cost_sort", ""},
                                    {"cost_sort", "window = 4"},
                                    {"lpt", ""},
                                    {"lpt", "equal_counts = false"},
                                    {"karmarkar_karp", ""},
                                    {"karmarkar_karp", "equal_counts = false"}};
  for (const auto& [name, workload] : {std::pair("short", kShort), std::pair("long", kLong)}) {
    for (const char* sampler : {"best_fit", "streaming"}) {
      for (const Choice& choice : choices) {
        const std::string title = fmt::format("lost/{}/{}/{}{}{}", name, sampler, choice.use,
                                              *choice.options == 0 ? "" : ", ", choice.options);
        benchmark::RegisterBenchmark(title.c_str(), lost, workload, sampler, choice.use, choice.options)
            ->ArgsProduct(kShapes)
            ->Unit(benchmark::kMicrosecond);
      }
    }
  }
  for (const Choice& choice : choices) {
    const std::string title =
        fmt::format("sequences/{}{}{}", choice.use, *choice.options == 0 ? "" : ", ", choice.options);
    benchmark::RegisterBenchmark(title.c_str(), sequences, choice.use, choice.options)
        ->Args({1024, 8})
        ->Args({4096, 64})
        ->Args({16384, 64})
        ->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace

int main(int argc, char** argv) {
  register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
