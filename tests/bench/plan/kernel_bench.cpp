// Time of the searches alone: no plugin, no border, no text.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "cases.hpp"
#include "exact/choice.hpp"
#include "kernel/deepspeed.hpp"

namespace {

namespace pe = pliant::elasticity;

void best_batch(benchmark::State& state, const bench::Case& one, bool strict) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(pe::best_batch(
        {.micro_batches = one.micro_batches, .cap = one.cap, .low = 1, .high = one.max_gpus, .strict = strict}));
  }
}

void least_waste(benchmark::State& state, const bench::Case& one, bool calls) {
  pe::WasteSearch search;
  search.most_granules = one.cap;
  search.high = std::min(one.max_gpus, one.cap);
  search.fewest_granules = one.max_gpus <= one.cap ? one.max_gpus : 1;
  search.granules_at_once = calls ? one.micro_batches.back() : 1;
  for (auto _ : state) benchmark::DoNotOptimize(pe::least_waste(search));
}

}  // namespace

void bench::register_kernel() {
  for (const bench::Case& one : bench::cases()) {
    const std::string name = bench::name_of(one);
    benchmark::RegisterBenchmark(("best_batch/" + name).c_str(), &best_batch, one, false)
        ->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark(("best_batch_strict/" + name).c_str(), &best_batch, one, true)
        ->Unit(benchmark::kMicrosecond);
    if (one.micro_batches.size() > 3) continue;
    benchmark::RegisterBenchmark(("least_waste/" + name).c_str(), &least_waste, one, false)
        ->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark(("least_waste_calls/" + name).c_str(), &least_waste, one, true)
        ->Unit(benchmark::kMicrosecond);
  }
}
