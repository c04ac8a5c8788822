// What a coordinator costs the calling thread: the decisions of zero3 and planned through the ABI, a visit (enter and
// leave) with 2 and with 16 parameters in a complete trace, copied from the record of a pass or decided anew. Half of
// the visits are backward, and their gradients are reduced.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "config/options.hpp"
#include "config/values/diagnostics.hpp"
#include "config/values/value.hpp"
#include "pliant/abi/accelerator.h"
#include "pliant/abi/coordinator.h"
#include "plugin/plugin.hpp"
#include "plugin/search.hpp"

namespace {

using namespace pliant;

constexpr uint32_t kLayers = 128;
constexpr uint64_t kElements = 1000;  // of a parameter
constexpr uint64_t kBytes = 4096;     // in an arena

[[noreturn]] void give_up(const std::string& why) {
  std::cerr << "bench_coordinator: " << why << "\n";
  std::exit(1);
}

plugin::Instance make(const std::string& name, config::Value table) {
  const plugin::Kind* kind = plugin::kind_of("coordinator");
  auto file = plugin::find({{PLIANT_PLUGIN_DIR, "--plugin-dir"}}, *kind, name);
  if (!file) give_up(file.error().message());
  auto opened = plugin::Plugin::open(*file, *kind);
  if (!opened) give_up(opened.error().message());
  table.type = config::Value::Type::kTable;
  config::Diagnostics diagnostics("bench", "");
  const config::CheckedTable checked =
      config::check_options((*opened)->options(), &table, {"coordinator", name}, {}, diagnostics);
  if (diagnostics.failed()) give_up(diagnostics.to_error().message());
  auto made = plugin::Instance::create(*opened, checked.values);
  if (!made) give_up(made.error().message());
  return std::move(*made);
}

plugin::Instance make_zero3(int64_t bucket, int64_t live, int64_t distance, bool strict) {
  config::Value table;
  const auto set = [&](const char* key, config::Value value) { table.members.push_back({key, {}, std::move(value)}); };
  set("prefetch_bucket_size", config::Value::of(bucket));
  set("max_live_parameters", config::Value::of(live));
  set("max_reuse_distance", config::Value::of(distance));
  set("param_persistence_threshold", config::Value::of(int64_t{-1}));
  set("strict", config::Value::of(strict));
  return make("zero3", std::move(table));
}

/// A root without parameters over kLayers layers of `parameters` each.
struct Layers {
  explicit Layers(uint32_t parameters)
      : rows(size_t{kLayers} * parameters), numbers(rows.size()), modules(kLayers + 1) {
    for (uint32_t i = 0; i < rows.size(); ++i) {
      rows[i] = {kElements, kBytes, 0, PLIANT_F32, 0, 0, nullptr};
      numbers[i] = i;
    }
    for (uint32_t i = 0; i < kLayers; ++i) {
      children.push_back(i + 1);
      modules[i + 1].own = numbers.data() + size_t{i} * parameters;
      modules[i + 1].own_count = parameters;
    }
    modules[0].children = children.data();
    modules[0].child_count = kLayers;
  }
  uint64_t budget = 0;
  [[nodiscard]] pliant_model view() const {
    pliant_model made{};
    made.budget = budget;
    made.struct_size = sizeof(made);
    made.parameter_count = rows.size();
    made.parameter_stride = sizeof(rows[0]);
    made.parameters = rows.data();
    made.module_count = modules.size();
    made.module_stride = sizeof(modules[0]);
    made.modules = modules.data();
    made.world_size = 8;
    return made;
  }
  std::vector<pliant_parameter_row> rows;
  std::vector<uint32_t> numbers;
  std::vector<uint32_t> children;
  std::vector<pliant_module_row> modules;
};

/// A coordinator between its host and a program that goes forward and backward through Layers.
class Program {
 public:
  /// `alternates`: every second pass says that it has no gradient, and goes backward all the same. That changes no
  /// decision, but no pass begins in the state that the one before began in, so that no record of one is ever copied.
  Program(const plugin::Instance& coordinator, const Layers& layers, bool alternates)
      : self_(coordinator.self()),
        slots_(coordinator.table<pliant_coordinator>()),
        layers_(layers),
        alternates_(alternates),
        complete_(layers.modules.size()),
        actions_(8 * layers.rows.size() + 64) {
    list_.struct_size = sizeof(list_);
    list_.capacity = actions_.size();
    list_.actions = actions_.data();
    const pliant_model model = layers.view();
    expect(slots_.set_model(self_, &model, &error_));
  }
  /// A pass that finds out, as a host does, which gradients are complete and not reduced yet at each leave in backward.
  /// True: they are those of the pass before.
  bool follow() {
    follows_ = true;
    is_as_before_ = true;
    left_.clear();
    pass();
    follows_ = false;
    return is_as_before_;
  }
  /// A pass with the gradients of the last one that found them out, which takes longer than some decisions; returns the
  /// number of actions of its visits.
  uint64_t pass() {
    uint64_t actions = 0;
    begin();
    visit(0, PLIANT_FORWARD, true, actions);
    for (uint32_t i = 1; i <= kLayers; ++i) enter_and_leave(i, PLIANT_FORWARD, actions);
    visit(0, PLIANT_FORWARD, false, actions);
    visit(0, PLIANT_BACKWARD, true, actions);
    for (uint32_t i = kLayers; i > 0; --i) enter_and_leave(i, PLIANT_BACKWARD, actions);
    visit(0, PLIANT_BACKWARD, false, actions);
    list_.count = 0;
    expect(slots_.end_pass(self_, &list_, &error_));
    return actions;
  }

 private:
  void expect(int32_t status) {
    if (status != PLIANT_OK) give_up(error_.message);
  }
  void begin() {
    list_.count = 0;
    expect(slots_.begin_pass(self_, without_gradient_ ? PLIANT_PASS_NO_GRADIENT : 0, &list_, &error_));
    without_gradient_ = alternates_ && !without_gradient_;
  }
  void enter_and_leave(uint32_t module, uint32_t direction, uint64_t& actions) {
    visit(module, direction, true, actions);
    visit(module, direction, false, actions);
  }
  void visit(uint32_t module, uint32_t direction, bool enters, uint64_t& actions) {
    pliant_visit one{};
    one.struct_size = sizeof(one);
    one.module = module;
    one.direction = direction;
    const bool reduces = !enters && direction == PLIANT_BACKWARD;
    if (reduces) {
      if (follows_) find_complete(module);
      one.complete = complete_[module].data();
      one.complete_count = complete_[module].size();
    }
    list_.count = 0;
    expect((enters ? slots_.enter : slots_.leave)(self_, &one, &list_, &error_));
    actions += list_.count;
    if (reduces && follows_) forget_reduced();
  }
  void find_complete(uint32_t module) {
    const pliant_module_row& row = layers_.modules[module];
    left_.insert(left_.begin(), row.own, row.own + row.own_count);  // ascending: the last layer is the first backward
    is_as_before_ = is_as_before_ && complete_[module] == left_;
    complete_[module] = left_;
  }
  void forget_reduced() {
    for (uint64_t i = 0; i < list_.count; ++i) {
      if (actions_[i].kind == PLIANT_ACTION_REDUCE) std::erase(left_, actions_[i].parameter);
    }
  }

  void* self_;
  const pliant_coordinator& slots_;
  const Layers& layers_;
  bool alternates_;
  bool follows_ = false;
  bool is_as_before_ = false;
  std::vector<uint32_t> left_;                   // complete and not reduced
  std::vector<std::vector<uint32_t>> complete_;  // by module: those when it is left in backward
  bool without_gradient_ = false;
  pliant_error error_ = plugin::fresh_error();
  std::vector<pliant_action> actions_;
  pliant_action_list list_{};
};

/// Passes until a steady trace is copied; and until records that lead nowhere are tried once in 64 passes.
constexpr int kUntilCopied = 4;
constexpr int kUntilDecided = 160;

/// `count`: passes before those that are timed.
void time_passes(benchmark::State& state, Program& program, int count) {
  for (int i = 0; i < count; ++i) program.follow();
  uint64_t actions = 0;
  for (auto _ : state) actions += program.pass();
  if (!program.follow()) give_up("other gradients were left to reduce than before");
  const double visits = static_cast<double>(state.iterations()) * (2 * kLayers + 2);
  state.counters["visit"] = benchmark::Counter(visits, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["actions"] = static_cast<double>(actions) / visits;
}

/// Argument: parameters of a layer. `kept`: everything stays whole, as with DeepSpeed's defaults and a small model;
/// else each layer is gathered ahead, waited for and released in each visit. `decided`: each pass is decided anew.
void visits(benchmark::State& state, bool kept, bool strict, bool decided) {
  const auto parameters = static_cast<uint32_t>(state.range(0));
  const auto layer = static_cast<int64_t>(parameters * kElements);
  const plugin::Instance coordinator =
      kept ? make_zero3(50'000'000, 1'000'000'000, 1'000'000'000, strict) : make_zero3(2 * layer, 4 * layer, 0, strict);
  const Layers layers(parameters);
  Program program(coordinator, layers, decided);
  time_passes(state, program, decided ? kUntilDecided : kUntilCopied);
}

/// The same of planned, with room for three layers or for all.
void planned_visits(benchmark::State& state, bool kept) {
  const auto parameters = static_cast<uint32_t>(state.range(0));
  const plugin::Instance coordinator = make("planned", {});
  Layers layers(parameters);
  layers.budget = (kept ? kLayers : 3) * parameters * kBytes;
  Program program(coordinator, layers, false);
  time_passes(state, program, 8);
}

BENCHMARK_CAPTURE(planned_visits, gathered, false)->Arg(2)->Arg(16);
BENCHMARK_CAPTURE(planned_visits, kept, true)->Arg(2)->Arg(16);
BENCHMARK_CAPTURE(visits, gathered, false, false, false)->Arg(2)->Arg(16);
BENCHMARK_CAPTURE(visits, gathered_decided, false, false, true)->Arg(2)->Arg(16);
BENCHMARK_CAPTURE(visits, kept, true, false, false)->Arg(2)->Arg(16);
BENCHMARK_CAPTURE(visits, kept_decided, true, false, true)->Arg(2)->Arg(16);
BENCHMARK_CAPTURE(visits, gathered_strict, false, true, false)->Arg(2)->Arg(16);
BENCHMARK_CAPTURE(visits, gathered_strict_decided, false, true, true)->Arg(2)->Arg(16);
BENCHMARK_CAPTURE(visits, kept_strict, true, true, false)->Arg(2)->Arg(16);
BENCHMARK_CAPTURE(visits, kept_strict_decided, true, true, true)->Arg(2)->Arg(16);

}  // namespace

BENCHMARK_MAIN();
