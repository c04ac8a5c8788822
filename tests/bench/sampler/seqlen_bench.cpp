// Time of planning one epoch with the sampler seqlen, through the plugin ABI. Lengths are uniform in 1..512, budget
// 4096.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "pliant/abi/batch_sampler.h"
#include "plugin/option_values.hpp"
#include "plugin/plugin.hpp"

namespace {

using namespace pliant;

plugin::Instance seqlen(const std::string& order, bool same_size) {
  const auto opened = or_throw(
      plugin::Plugin::open(std::string(PLIANT_PLUGIN_DIR) + "/sampler-seqlen.pliant.so", *plugin::kind_of("sampler")));
  plugin::OptionValues values;
  values.state().reset(opened->options());
  for (size_t i = 0; i < opened->options().size(); ++i) {
    const pliant_option& option = opened->options()[i];
    const std::string key = option.key;
    values.state().set_default(i, option);
    if (key == "max_tokens") values.state().set_integer(i, 4096);
    if (key == "sequence_picking_order") values.state().set_text(i, order);
    if (key == "required_microbatches_of_same_size") values.state().set_integer(i, same_size ? 1 : 0);
  }
  return or_throw(plugin::Instance::create(opened, values));
}

void plan_epoch(benchmark::State& state, const std::string& order, bool same_size) {
  plugin::Instance sampler = seqlen(order, same_size);
  std::mt19937_64 engine(7020);
  std::uniform_int_distribution<int32_t> length(1, 512);
  std::vector<int32_t> lengths(static_cast<size_t>(state.range(0)));
  for (int32_t& one : lengths) one = length(engine);
  pliant_epoch_request request{};
  request.struct_size = sizeof(request);
  request.seed = 1234;
  request.rows_per_batch = 8;
  request.sequence_count = lengths.size();
  request.lengths = lengths.data();
  for (auto _ : state) {
    pliant_epoch epoch{};
    epoch.struct_size = sizeof(epoch);
    pliant_error error = plugin::fresh_error();
    const auto& slots = sampler.table<pliant_batch_sampler>();
    if (slots.begin_epoch(sampler.self(), &request, &epoch, &error) != PLIANT_OK) {
      state.SkipWithError(error.message);
      break;
    }
    benchmark::DoNotOptimize(epoch.row_count);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

}  // namespace

BENCHMARK_CAPTURE(plan_epoch, dataloader, "dataloader", false)
    ->RangeMultiplier(10)
    ->Range(10000, 10000000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan_epoch, same_size, "dataloader", true)
    ->RangeMultiplier(10)
    ->Range(10000, 10000000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan_epoch, seqlen, "seqlen", false)
    ->RangeMultiplier(10)
    ->Range(10000, 10000000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan_epoch, random, "random", false)
    ->RangeMultiplier(10)
    ->Range(10000, 10000000)
    ->Unit(benchmark::kMillisecond);

BENCHMARK_MAIN();
