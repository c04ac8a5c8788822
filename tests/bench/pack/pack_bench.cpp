// Sequences per CPU second of every packing sampler through the plugin ABI: one epoch planned and all its rows fetched.
// Measured against the machine: reading the 32-bit lengths and writing as many ids, of 64 bits (of_limit: the share) or
// of 32 (of_limit32), in the same run. With several threads by the clock, otherwise by CPU time.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "pack_setup.hpp"

namespace {

using namespace pliant;
using namespace pliant::bench;

/// The same vector for every benchmark that asks for it; one is kept.
const std::vector<int32_t>& lengths_of(bool wiki, size_t n, int64_t budget) {
  static std::vector<int32_t> kept;
  static std::string key;
  const std::string asked = std::to_string(wiki) + "/" + std::to_string(n) + "/" + std::to_string(budget);
  if (key != asked) {
    kept = wiki ? wikipedia(n, budget) : lognormal(n, budget);
    key = asked;
  }
  return kept;
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// CPU seconds a sequence of reading a length and writing an id of type Id: each loop the best of 9.
template <class Id>
double limit(size_t n) {
  static std::map<size_t, double> measured;
  if (const auto found = measured.find(n); found != measured.end()) return found->second;
  const std::vector<int32_t> lengths(n, 3);
  std::vector<Id> ids(n);
  double read = 1e9;
  double write = 1e9;
  for (int round = 0; round < 9; ++round) {
    const double begin = cpu_seconds();
    benchmark::DoNotOptimize(std::accumulate(lengths.begin(), lengths.end(), int32_t{0}));
    const double between = cpu_seconds();
    std::iota(ids.begin(), ids.end(), Id{0});
    benchmark::DoNotOptimize(ids.data());
    benchmark::ClobberMemory();
    read = std::min(read, between - begin);
    write = std::min(write, cpu_seconds() - between);
  }
  return measured[n] = (read + write) / static_cast<double>(n);
}

/// `order`: another order than the default.
void pack(benchmark::State& state, const std::string& name, bool wiki, const std::string& order = "",
          int64_t threads = 1) {
  const int64_t budget = state.range(0);
  const auto n = static_cast<size_t>(state.range(1));
  plugin::Instance sampler = make(name, budget, order, threads);
  const std::vector<int32_t>& lengths = lengths_of(wiki, n, budget);
  const auto& slots = sampler.table<pliant_batch_sampler>();
  const pliant_epoch_request request = request_of(lengths);
  pliant_epoch epoch{};
  epoch.struct_size = sizeof(epoch);
  pliant_error error = plugin::fresh_error();
  std::vector<uint64_t> offsets;
  std::vector<int64_t> ids;
  const auto plan_and_fetch = [&] {
    if (slots.begin_epoch(sampler.self(), &request, &epoch, &error) != PLIANT_OK) return false;
    offsets.resize(epoch.row_count + 1);
    ids.resize(epoch.entry_count);
    return slots.rows(sampler.self(), 0, epoch.row_count, offsets.data(), ids.data(), ids.size(), &error) == PLIANT_OK;
  };
  bool fine = plan_and_fetch();  // the first epoch takes the memory that the later ones write over
  for (auto _ : state) {
    fine = fine && plan_and_fetch();
    benchmark::DoNotOptimize(ids.data());
  }
  if (!fine) return state.SkipWithError(error.message);
  const double tokens = std::accumulate(lengths.begin(), lengths.end(), 0.0);
  const auto each = static_cast<double>(n);
  state.SetItemsProcessed(state.iterations() * state.range(1));
  state.counters["efficiency"] = tokens / (static_cast<double>(epoch.row_count) * static_cast<double>(budget));
  state.counters["of_limit"] =
      benchmark::Counter(limit<int64_t>(n) * each, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["of_limit32"] =
      benchmark::Counter(limit<int32_t>(n) * each, benchmark::Counter::kIsIterationInvariantRate);
}

/// The limit itself, on as many threads as asked: what a second one can add on this machine.
template <class Id>
void read_and_write(benchmark::State& state) {
  const auto n = static_cast<size_t>(state.range(0));
  const auto parts = static_cast<size_t>(state.range(1));
  const std::vector<int32_t> lengths(n, 3);
  std::vector<Id> ids(n);
  const auto run = [&](size_t part) {
    const auto begin = static_cast<std::ptrdiff_t>(n * part / parts);
    const auto end = static_cast<std::ptrdiff_t>(n * (part + 1) / parts);
    benchmark::DoNotOptimize(std::accumulate(lengths.begin() + begin, lengths.begin() + end, int32_t{0}));
    std::iota(ids.begin() + begin, ids.begin() + end, static_cast<Id>(begin));
  };
  for (auto _ : state) {
    {
      std::vector<std::jthread> others;
      for (size_t part = 1; part < parts; ++part) others.emplace_back(run, part);
      run(0);
    }
    benchmark::DoNotOptimize(ids.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

const std::vector<std::vector<int64_t>> kSizes{{512, 2048, 8192}, {1000000, 10000000}};
const std::vector<std::vector<int64_t>> kGrowth{{2048}, {100000, 1000000, 10000000, 100000000}};

}  // namespace

#define PLIANT_PACK(sampler)                                                                                        \
  BENCHMARK_CAPTURE(pack, sampler##_wikipedia, #sampler, true)->ArgsProduct(kSizes)->Unit(benchmark::kMillisecond); \
  BENCHMARK_CAPTURE(pack, sampler##_lognormal, #sampler, false)->ArgsProduct(kSizes)->Unit(benchmark::kMillisecond)
#define PLIANT_PACK_THREADS(sampler)                                  \
  BENCHMARK_CAPTURE(pack, sampler##_1_thread, #sampler, true, "", 1)  \
      ->Args({2048, 10000000})                                        \
      ->Unit(benchmark::kMillisecond)                                 \
      ->UseRealTime();                                                \
  BENCHMARK_CAPTURE(pack, sampler##_2_threads, #sampler, true, "", 2) \
      ->Args({2048, 10000000})                                        \
      ->Unit(benchmark::kMillisecond)                                 \
      ->UseRealTime();                                                \
  BENCHMARK_CAPTURE(pack, sampler##_growth, #sampler, true)->ArgsProduct(kGrowth)->Unit(benchmark::kMillisecond)

BENCHMARK_TEMPLATE(read_and_write, int32_t)
    ->ArgsProduct({{1000000, 10000000}, {1, 2}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_TEMPLATE(read_and_write, int64_t)
    ->ArgsProduct({{1000000, 10000000}, {1, 2}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
PLIANT_PACK(next_fit);
PLIANT_PACK(best_fit);
BENCHMARK_CAPTURE(pack, best_fit_as_built_wikipedia, "best_fit", true, "seqlen")
    ->ArgsProduct(kSizes)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(pack, best_fit_as_built_lognormal, "best_fit", false, "seqlen")
    ->ArgsProduct(kSizes)
    ->Unit(benchmark::kMillisecond);
PLIANT_PACK(streaming);
PLIANT_PACK(concat);
PLIANT_PACK(padded_budget);
PLIANT_PACK(bucketed);
PLIANT_PACK(seqlen);
PLIANT_PACK_THREADS(next_fit);
PLIANT_PACK_THREADS(best_fit);
PLIANT_PACK_THREADS(streaming);

BENCHMARK_MAIN();
