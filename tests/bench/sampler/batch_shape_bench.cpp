// What the options of batches cost and save, through the plugin ABI, on 1 million sequences: cost_window in the share
// of rank-time that ranks wait for the slowest one of each batch (`lost`, one row a rank; a row costs the sum of l +
// l*l / 24576), same_sequences in rows (`more_rows`), both in the time of planning an epoch.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "pliant/abi/batch_sampler.h"
#include "plugin/option_values.hpp"
#include "plugin/plugin.hpp"

namespace {

using namespace pliant;

constexpr int64_t kQuadraticLength = 24576;
constexpr size_t kSequences = 1000000;

plugin::Instance make(const std::string& name, int64_t budget, int64_t window, bool same_sequences) {
  const auto opened = or_throw(plugin::Plugin::open(std::string(PLIANT_PLUGIN_DIR) + "/sampler-" + name + ".pliant.so",
                                                    *plugin::kind_of("sampler")));
  plugin::OptionValues values;
  values.state().reset(opened->options());
  for (size_t i = 0; i < opened->options().size(); ++i) {
    const pliant_option& option = opened->options()[i];
    const std::string key = option.key;
    values.state().set_default(i, option);
    if (key == "max_tokens") values.state().set_integer(i, budget);
    if (key == "cost_window") values.state().set_integer(i, window);
    if (key == "cost_window_length" && window != 0) values.state().set_integer(i, kQuadraticLength);
    if (key == "same_sequences") values.state().set_integer(i, same_sequences ? 1 : 0);
  }
  return or_throw(plugin::Instance::create(opened, values));
}

std::vector<int32_t> lognormal(double median, double sigma, int64_t budget) {
  std::lognormal_distribution<double> length(std::log(median), sigma);
  std::mt19937_64 engine(7020);
  std::vector<int32_t> lengths(kSequences);
  for (int32_t& one : lengths) {
    one = static_cast<int32_t>(std::clamp(std::ceil(length(engine)), 1.0, static_cast<double>(budget)));
  }
  return lengths;
}

/// Share of rank-time lost where every batch has `ranks` rows; the short batch at the end does not count.
double lost(const std::vector<uint64_t>& offsets, const std::vector<int64_t>& ids, const std::vector<int32_t>& lengths,
            size_t ranks) {
  double worked = 0;
  double held = 0;
  for (size_t first = 0; first + ranks < offsets.size(); first += ranks) {
    double most = 0;
    for (size_t row = first; row < first + ranks; ++row) {
      double cost = 0;
      for (uint64_t i = offsets[row]; i < offsets[row + 1]; ++i) {
        const double length = lengths[static_cast<size_t>(ids[i])];
        cost += length + length * length / static_cast<double>(kQuadraticLength);
      }
      most = std::max(most, cost);
      worked += cost;
    }
    held += most * static_cast<double>(ranks);
  }
  return 1 - worked / held;
}

/// A sampler, asked for epochs of the same lengths again and again.
class Epochs {
 public:
  Epochs(plugin::Instance sampler, const std::vector<int32_t>& lengths, int64_t ranks) : sampler_(std::move(sampler)) {
    request_.struct_size = sizeof(request_);
    request_.seed = 1234;
    request_.rows_per_batch = ranks;
    request_.sequence_count = lengths.size();
    request_.lengths = lengths.data();
    made_.struct_size = sizeof(made_);
  }
  /// Rows of the epoch; 0 when it is refused.
  uint64_t plan() {
    pliant_error error = plugin::fresh_error();
    const bool fine = slots().begin_epoch(sampler_.self(), &request_, &made_, &error) == PLIANT_OK;
    return fine ? made_.row_count : 0;
  }
  bool fetch(std::vector<uint64_t>& offsets, std::vector<int64_t>& ids) {
    offsets.resize(made_.row_count + 1);
    ids.resize(made_.entry_count);
    pliant_error error = plugin::fresh_error();
    return slots().rows(sampler_.self(), 0, made_.row_count, offsets.data(), ids.data(), ids.size(), &error) ==
           PLIANT_OK;
  }

 private:
  [[nodiscard]] const pliant_batch_sampler& slots() const { return sampler_.table<pliant_batch_sampler>(); }

  plugin::Instance sampler_;
  pliant_epoch_request request_{};
  pliant_epoch made_{};
};

void cost_window(benchmark::State& state, double median, double sigma, int64_t budget) {
  const int64_t ranks = state.range(0);
  const std::vector<int32_t> lengths = lognormal(median, sigma, budget);
  Epochs epochs(make("streaming", budget, state.range(1), false), lengths, ranks);
  uint64_t rows = 0;
  for (auto _ : state) rows = epochs.plan();
  std::vector<uint64_t> offsets;
  std::vector<int64_t> ids;
  if (rows == 0 || !epochs.fetch(offsets, ids)) return state.SkipWithError("refused");
  state.counters["lost"] = lost(offsets, ids, lengths, static_cast<size_t>(ranks));
  state.counters["rows"] = static_cast<double>(rows);
}

void same_sequences(benchmark::State& state, const std::string& sampler, int64_t budget) {
  const std::vector<int32_t> lengths = lognormal(300, 1, budget);
  Epochs plain(make(sampler, budget, 0, false), lengths, state.range(0));
  Epochs equal(make(sampler, budget, 0, true), lengths, state.range(0));
  const auto before = static_cast<double>(plain.plan());
  uint64_t rows = 0;
  for (auto _ : state) rows = equal.plan();
  if (rows == 0) return state.SkipWithError("refused");
  state.counters["rows"] = static_cast<double>(rows);
  state.counters["more_rows"] = static_cast<double>(rows) / before - 1;
}

const std::vector<std::vector<int64_t>> kCases{{8, 64}, {0, 8, 64}};  // ranks, cost_window

}  // namespace

BENCHMARK_CAPTURE(cost_window, median_300_budget_8192, 300.0, 1.0, 8192)
    ->ArgsProduct(kCases)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(cost_window, median_600_budget_131072, 600.0, 1.6, 131072)
    ->ArgsProduct(kCases)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(same_sequences, best_fit_2048, "best_fit", 2048)->Arg(8)->Arg(64)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(same_sequences, best_fit_8192, "best_fit", 8192)->Arg(8)->Arg(64)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(same_sequences, streaming_8192, "streaming", 8192)->Arg(8)->Arg(64)->Unit(benchmark::kMillisecond);

BENCHMARK_MAIN();
