// Time of the searches alone: no plugin, no border, no text.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>

#include "cases.hpp"
#include "common/deepspeed.hpp"
#include "exact/choice.hpp"

namespace {

namespace pe = pliant::elasticity;

void best_batch(benchmark::State& state, const bench::Case& one, bool strict) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(pe::best_batch(
        {.micro_batches = one.micro_batches, .cap = one.cap, .low = 1, .high = one.max_gpus, .strict = strict}));
  }
}

void most_efficient(benchmark::State& state, const bench::Case& one, bool calls) {
  const int64_t high = std::min(one.max_gpus, one.cap);
  const int64_t fewest = one.max_gpus <= one.cap ? one.max_gpus : 1;
  std::vector<pe::Period> sizes;
  for (int64_t size = 1; size <= high; ++size) sizes.push_back({size * (calls ? one.micro_batches.back() : 1), 1});
  for (auto _ : state) benchmark::DoNotOptimize(pe::most_efficient(fewest, one.cap, sizes));
}

}  // namespace

void bench::register_common() {
  for (const bench::Case& one : bench::cases()) {
    const std::string name = bench::name_of(one);
    benchmark::RegisterBenchmark(("best_batch/" + name).c_str(), &best_batch, one, false)
        ->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark(("best_batch_strict/" + name).c_str(), &best_batch, one, true)
        ->Unit(benchmark::kMicrosecond);
    if (one.micro_batches.size() > 3 || std::min(one.max_gpus, one.cap) > pe::kMostSizes) continue;
    benchmark::RegisterBenchmark(("most_efficient/" + name).c_str(), &most_efficient, one, false)
        ->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark(("most_efficient_calls/" + name).c_str(), &most_efficient, one, true)
        ->Unit(benchmark::kMicrosecond);
  }
}
