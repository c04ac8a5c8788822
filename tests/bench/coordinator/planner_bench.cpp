// What planned takes to know a pass: the table of next uses of its visits, and the whole plan that answers the next
// one.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "planner.hpp"

namespace {

using namespace pliant::coordinator::planned;
namespace sdk = pliant::sdk;

constexpr uint64_t kBytes = 4096;  // of a parameter

/// Layers of two parameters below a root; of one size, or of so many.
sdk::Model layers(uint32_t count, uint64_t room, uint32_t sizes = 1) {
  sdk::Model model;
  model.modules.emplace_back();
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t k = 0; k < 2; ++k) {
      const uint64_t bytes = sizes == 1 ? kBytes : kBytes / 8 * (1 + (2 * i + k) * 7 % sizes);
      sdk::Parameter parameter;
      parameter.elements = bytes / sizeof(float);
      parameter.bytes = parameter.gradient_bytes = bytes;
      parameter.received_bytes = bytes / 2;
      model.parameters.push_back(parameter);
    }
    model.modules.push_back({{2 * i, 2 * i + 1}, {}, {}, false});
    model.modules[0].children.push_back(i + 1);
  }
  model.budget = room * 5 * kBytes;
  model.reduce_flags = PLIANT_ACTION_LINGER;
  return model;
}

/// Forward through the layers and back.
std::vector<sdk::Visit> visits_of(uint32_t count) {
  std::vector<sdk::Visit> made;
  for (uint32_t i = 0; i < count; ++i) made.push_back({i + 1, false, false, {}});
  for (uint32_t i = count; i-- > 0;) made.push_back({i + 1, true, false, {}});
  return made;
}

/// Argument: visits.
void next_uses(benchmark::State& state) {
  const auto count = static_cast<uint32_t>(state.range(0) / 2);
  const Layout layout(layers(count, 0));
  auto trace = std::make_shared<Trace>();
  for (const sdk::Visit& visit : visits_of(count)) {
    trace->calls.push_back(call_of(visit, false));
    trace->calls.push_back(call_of(visit, true));
  }
  for (auto _ : state) {
    const Uses uses(layout, trace, trace);
    benchmark::DoNotOptimize(uses.first(0));
  }
}

/// A pass that is seen, and what the begin of the next takes, where it is planned. `room`: layers with their gradients;
/// 0: no budget. `sizes`: of parameters.
void plan(benchmark::State& state, uint64_t room, uint32_t sizes) {
  const auto count = static_cast<uint32_t>(state.range(0) / 2);
  const std::vector<sdk::Visit> visits = visits_of(count);
  std::vector<pliant_action> actions(16 * count + 64);
  pliant_action_list list{sizeof(pliant_action_list), 0, actions.size(), 0, actions.data()};
  const auto ask = [&](const auto& call) {
    list.count = 0;
    sdk::Actions to(list);
    call(to);
  };
  for (auto _ : state) {
    state.PauseTiming();
    Planner planner(layers(count, room, sizes), {16, 2, 0});
    ask([&](sdk::Actions& to) { planner.begin_pass(true, to); });
    for (const sdk::Visit& visit : visits) {
      ask([&](sdk::Actions& to) { planner.enter(visit, to); });
      ask([&](sdk::Actions& to) { planner.leave(visit, to); });
    }
    ask([&](sdk::Actions& to) { planner.end_pass(to); });
    ask([&](sdk::Actions& to) { planner.end_step(to); });
    state.ResumeTiming();
    ask([&](sdk::Actions& to) { planner.begin_pass(true, to); });
  }
}

BENCHMARK(next_uses)->Arg(2048)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan, all, 0, 1)->Arg(2048)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan, room_for_three, 3, 1)->Arg(2048)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan, room_for_100, 100, 1)->Arg(2048)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan, of_13_sizes_room_for_ten, 10, 13)->Arg(2048)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan, of_13_sizes_room_for_100, 100, 13)->Arg(2048)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
