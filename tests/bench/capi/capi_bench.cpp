// What calls of libpliant cost: accessors alone, a micro-batch and a batch beside the same through C++, and how large
// the library is without its symbols. Prints medians with the least and the largest of nine repetitions.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "pliant.h"
#include "pliant/batches.hpp"
#include "pliant/learning_rate.hpp"
#include "pliant/micro_batches.hpp"

namespace {

constexpr const char* kNeeds = "elasticity sampler balancer lr";
constexpr int64_t kRows = 64;    // of a batch
constexpr int64_t kOfMicro = 8;  // rows of a micro-batch, a sequence each
constexpr size_t kSequences = 1'000'000;

std::string toml() {
  return fmt::format(
      "config_version = 1\n[run]\nepochs = 1000\n[elasticity]\nuse = \"exact\"\n[elasticity.exact]\n"
      "max_train_batch_size = {}\nmicro_batch_sizes = [{}]\nmax_gpus = 8\n[sampler]\nuse = \"fixed\"\n"
      "[sampler.fixed]\norder = \"random\"\n[balancer]\nuse = \"lpt\"\n[lr]\n"
      "use = \"linear\"\nbase_batch = 64\nunit = \"sequences\"\n",
      kRows, kOfMicro);
}

std::vector<int32_t> lengths() {
  std::vector<int32_t> made(kSequences);
  for (size_t i = 0; i < made.size(); ++i) made[i] = static_cast<int32_t>(3 + i * 7919 % 2039);
  return made;
}

void must(int32_t status) {
  if (status == PLIANT_OK) return;
  std::fprintf(stderr, "bench_capi: %s\n", pliant_last_message(nullptr));
  std::exit(1);
}

/// A job through C, and the same through C++. Both live as long as the program.
struct Job {
  Job() {
    const std::string text = toml();
    const char* const dirs[]{PLIANT_PLUGIN_DIR};
    pliant_config_options_t options = PLIANT_INIT(pliant_config_options_t);
    options.needs = kNeeds;
    options.flags = PLIANT_CONFIG_NO_ENVIRONMENT;
    options.plugin_dirs = dirs;
    options.plugin_dir_count = 1;
    must(pliant_config_parse(text.data(), text.size(), &options, &config, nullptr));
    must(pliant_planner_make(config, &planner, nullptr));
    must(pliant_planner_plan(planner, 8, &plan, nullptr));
    const std::vector<int32_t> tokens = lengths();
    pliant_lengths_t given = PLIANT_INIT(pliant_lengths_t);
    given.count = tokens.size();
    given.lengths = tokens.data();
    must(pliant_dataset_make(&given, &dataset, nullptr));
    must(pliant_batches_make(config, plan, dataset, &batches, nullptr));
    must(pliant_batches_at_step(batches, 0, &batch, nullptr));
    must(pliant_batch_size(batch, &size, nullptr));
    must(pliant_learning_rate_make(config, &size, &rate, nullptr));
    layout.multiple = 8;
    must(pliant_micro_batches_of_rows(batch, 0, kOfMicro, &layout, &micro, nullptr));

    pliant::ConfigOverrides overrides;
    overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
    overrides.read_environment = false;
    const pliant::Config cpp = pliant::Config::parse(text, {"elasticity", "sampler", "balancer", "lr"}, overrides);
    pliant::Dataset same;
    same.lengths = tokens;
    cpp_batches = std::make_unique<pliant::Batches>(cpp, pliant::Planner(cpp).plan(8), same);
    cpp_batch = cpp_batches->at_step(0);
    cpp_rate = std::make_unique<pliant::LearningRate>(cpp, cpp_batch.size);
  }
  pliant_config_t* config = nullptr;
  pliant_planner_t* planner = nullptr;
  pliant_plan_t* plan = nullptr;
  pliant_dataset_t* dataset = nullptr;
  pliant_batches_t* batches = nullptr;
  pliant_batch_t* batch = nullptr;
  pliant_micro_batches_t* micro = nullptr;
  pliant_learning_rate_t* rate = nullptr;
  pliant_batch_size_t size = PLIANT_INIT(pliant_batch_size_t);
  pliant_layout_t layout = PLIANT_INIT(pliant_layout_t);
  std::unique_ptr<pliant::Batches> cpp_batches;
  pliant::Batch cpp_batch;
  std::unique_ptr<pliant::LearningRate> cpp_rate;
};

Job& job() {
  static auto* const one = new Job;
  return *one;
}

/// One call that fills a struct.
template <class Facts, class Call>
void accessor(benchmark::State& state, const Call& call) {
  job();
  Facts facts{};
  facts.struct_size = sizeof(facts);
  for (auto _ : state) {
    must(call(facts));
    benchmark::DoNotOptimize(facts);
  }
}

void micro_batch_in_c(benchmark::State& state) {
  const Job& j = job();
  int64_t row = 0;
  for (auto _ : state) {
    pliant_micro_batches_t* made = nullptr;
    must(pliant_micro_batches_of_rows(j.batch, row, kOfMicro, &j.layout, &made, nullptr));
    pliant_micro_batches_view_t view = PLIANT_INIT(pliant_micro_batches_view_t);
    must(pliant_micro_batches_look(made, &view, nullptr));
    benchmark::DoNotOptimize(view.lengths[0]);
    must(pliant_micro_batches_free(made));
    row = (row + kOfMicro) % kRows;
  }
}

void micro_batch_in_cpp(benchmark::State& state) {
  const Job& j = job();
  const pliant::Padding padding{pliant::Line::kSequence, pliant::PadTo::kMicroBatch, 8};
  int64_t row = 0;
  for (auto _ : state) {
    const auto made = pliant::pad_rows(j.cpp_batch, {row, kOfMicro}, j.cpp_batches->dataset(), padding);
    benchmark::DoNotOptimize(made.lengths[0]);
    row = (row + kOfMicro) % kRows;
  }
}

// Steps of one epoch in turn: no epoch is planned meanwhile.
void batch_in_c(benchmark::State& state) {
  const Job& j = job();
  constexpr auto kSteps = static_cast<int64_t>(kSequences) / kRows;
  int64_t step = 0;
  for (auto _ : state) {
    pliant_batch_t* made = nullptr;
    must(pliant_batches_at_step(j.batches, step, &made, nullptr));
    pliant_batch_view_t view = PLIANT_INIT(pliant_batch_view_t);
    must(pliant_batch_look(made, &view, nullptr));
    benchmark::DoNotOptimize(view.ids[0]);
    must(pliant_batch_free(made));
    step = (step + 1) % kSteps;
  }
}

void batch_in_cpp(benchmark::State& state) {
  const Job& j = job();
  constexpr auto kSteps = static_cast<int64_t>(kSequences) / kRows;
  int64_t step = 0;
  for (auto _ : state) {
    const pliant::Batch made = j.cpp_batches->at_step(step);
    benchmark::DoNotOptimize(made.ids[0]);
    step = (step + 1) % kSteps;
  }
}

void rate_in_cpp(benchmark::State& state) {
  const Job& j = job();
  for (auto _ : state) benchmark::DoNotOptimize(j.cpp_rate->scaling(0, j.cpp_batch.size));
}

double least(const std::vector<double>& times) {
  return *std::min_element(times.begin(), times.end());
}
double largest(const std::vector<double>& times) {
  return *std::max_element(times.begin(), times.end());
}

void add(const char* name, void (*run)(benchmark::State&)) {
  benchmark::RegisterBenchmark(name, run)
      ->ComputeStatistics("least", least)
      ->ComputeStatistics("largest", largest)
      ->Unit(benchmark::kNanosecond);
}

void register_all() {
  add("accessor/pliant_batch_look", [](benchmark::State& s) {
    accessor<pliant_batch_view_t>(s, [](auto& to) { return pliant_batch_look(job().batch, &to, nullptr); });
  });
  add("accessor/pliant_batch_size", [](benchmark::State& s) {
    accessor<pliant_batch_size_t>(s, [](auto& to) { return pliant_batch_size(job().batch, &to, nullptr); });
  });
  add("accessor/pliant_micro_batches_look", [](benchmark::State& s) {
    accessor<pliant_micro_batches_view_t>(
        s, [](auto& to) { return pliant_micro_batches_look(job().micro, &to, nullptr); });
  });
  add("accessor/pliant_plan_look", [](benchmark::State& s) {
    accessor<pliant_plan_facts_t>(s, [](auto& to) { return pliant_plan_look(job().plan, &to, nullptr); });
  });
  add("accessor/pliant_config_run", [](benchmark::State& s) {
    accessor<pliant_run_options_t>(s, [](auto& to) { return pliant_config_run(job().config, &to, nullptr); });
  });
  add("accessor/pliant_batches_look", [](benchmark::State& s) {
    accessor<pliant_job_facts_t>(s, [](auto& to) { return pliant_batches_look(job().batches, &to, nullptr); });
  });
  add("rate/c", [](benchmark::State& s) {
    accessor<pliant_scaling_t>(
        s, [](auto& to) { return pliant_learning_rate_scaling(job().rate, 0, &job().size, 0, &to, nullptr); });
  });
  add("rate/cpp", rate_in_cpp);
  add("micro_batch/c", micro_batch_in_c);
  add("micro_batch/cpp", micro_batch_in_cpp);
  add("batch/c", batch_in_c);
  add("batch/cpp", batch_in_cpp);
}

/// Bytes of the library as it was built, and without symbols.
void print_sizes() {
  namespace fs = std::filesystem;
  const fs::path stripped = fs::temp_directory_path() / fmt::format("pliant-stripped-{}", std::rand());
  const std::string command =
      fmt::format("'{}' --strip-unneeded -o '{}' '{}'", PLIANT_STRIP, stripped.string(), PLIANT_C_LIBRARY);
  const bool has_stripped = std::system(command.c_str()) == 0;
  fmt::print("{}: {} bytes, stripped {}\n", PLIANT_C_LIBRARY, fs::file_size(PLIANT_C_LIBRARY),
             has_stripped ? fmt::format("{} bytes", fs::file_size(stripped)) : "not known");
  std::fflush(stdout);
  std::error_code ignored;
  fs::remove(stripped, ignored);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<char*> arguments(argv, argv + argc);
  std::string repetitions = "--benchmark_repetitions=9";
  std::string aggregates = "--benchmark_report_aggregates_only=true";
  arguments.insert(arguments.begin() + 1, {repetitions.data(), aggregates.data()});
  int count = static_cast<int>(arguments.size());
  print_sizes();
  register_all();
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
