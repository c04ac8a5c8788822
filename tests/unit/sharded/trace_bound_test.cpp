// The least that is gathered for the visits of a trace, against everything that could be tried and against
// coordinators.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "sharded/memory/arena_needs.hpp"
#include "sharded/rehearsal.hpp"
#include "sharded/trace/trace_bound.hpp"
#include "sharded/trace/traced_program.hpp"
#include "unit/sharded/hand_made_trace.hpp"
#include "unit/sharded/networks.hpp"

namespace pliant::sharded {
namespace {

LeastGathered sum_of(const std::vector<LeastGathered>& least) {
  LeastGathered sum;
  for (const LeastGathered& one : least) {
    sum.with_room += one.with_room;
    sum.at_budget += one.at_budget;
  }
  return sum;
}

LeastGathered least_of(const HandMadeTrace& made) {
  return sum_of(least_gathered(*made.trace.model, made.calls(), {made.trace.budget, DType::kF32, DType::kF32}));
}

/// The least for one pass over layers, each with one parameter of so many bytes, whose gradient takes as many while the
/// layer is entered backward: every choice of what stays is tried. O(3^layers * visits).
uint64_t least_of_all(const std::vector<uint64_t>& bytes, const std::vector<uint32_t>& forward, uint64_t budget) {
  std::vector<std::pair<uint32_t, uint64_t>> visits;  // layer, and bytes of its gradient
  for (const uint32_t layer : forward) visits.emplace_back(layer, 0);
  for (size_t i = forward.size(); i-- > 0;) visits.emplace_back(forward[i], bytes[forward[i]]);
  std::map<uint32_t, uint64_t> costs{{0, 0}};  // by what is whole, as bits
  for (const auto& [layer, gradient] : visits) {
    std::map<uint32_t, uint64_t> next;
    for (const auto& [whole, cost] : costs) {
      const uint64_t more = (whole >> layer & 1U) != 0 ? 0 : bytes[layer];
      for (uint32_t kept = whole;; kept = (kept - 1) & whole) {
        const uint32_t with = kept | 1U << layer;
        uint64_t taken = gradient;
        for (uint32_t i = 0; i < bytes.size(); ++i) taken += (with >> i & 1U) != 0 ? bytes[i] : 0;
        if (taken <= budget) {
          const auto [at, is_new] = next.emplace(with, cost + more);
          if (!is_new) at->second = std::min(at->second, cost + more);
        }
        if (kept == 0) break;
      }
    }
    costs = std::move(next);
  }
  uint64_t least = UINT64_MAX;
  for (const auto& [whole, cost] : costs) least = std::min(least, cost);
  return least;
}

}  // namespace

TEST_CASE("each parameter is gathered once between two ends of steps, however often it is used") {
  HandMadeTrace made({100, 50, 7});
  made.pass({1, 2});
  made.pass({1, 2, 1});
  made.end_step();
  CHECK(least_of(made).with_room == 4 * 150);
  CHECK(least_of(made).at_budget == 4 * 150);
  made.evaluation({2, 3});  // still whole when the next step begins
  made.pass({2});
  made.end_step();
  CHECK(least_of(made).with_room == 4 * (150 + 57));
  made.evaluation({1});
  CHECK(least_of(made).with_room == 4 * (150 + 57 + 100));
}

TEST_CASE("what a pass had whole that was given up is gathered again") {
  HandMadeTrace made({100, 50});
  made.call(TracedCall::Kind::kBeginPass);
  made.visit(2);
  made.enter(1);
  made.pass({1, 2});
  made.end_step();
  CHECK(least_of(made).with_room == 4 * (150 + 150));
}

TEST_CASE("what is used latest goes first, and of it as much as must") {
  HandMadeTrace made({100, 100, 100}, 4 * 250);
  made.call(TracedCall::Kind::kBeginEvaluation);
  for (const uint32_t module : {1U, 2U, 3U, 1U, 2U, 3U}) made.visit(module);
  made.call(TracedCall::Kind::kEndPass);
  CHECK(least_of(made).with_room == 4 * 300);
  CHECK(least_of(made).at_budget == 4 * (300 + 50));  // half of the second has gone once the third is entered
  made.trace.budget = 4 * 200;
  CHECK(least_of(made).at_budget == 4 * (300 + 100));
  made.trace.budget = 4 * 100;
  CHECK(least_of(made).at_budget == 4 * 600);
}

TEST_CASE("what modules use unannounced stays, and so do modules that others are entered in") {
  HandMadeTrace made({100}, 4 * 350);
  ModelTables model;
  const ParameterId shared{add_weights(model, "shared", 200, true)};
  const ParameterId around{add_weights(model, "around", 50)};
  const ParameterId inside{add_weights(model, "inside", 50)};
  const ParameterId beside{add_weights(model, "beside", 50)};
  model.add(ModuleSpec{.name = "model", .parent = std::nullopt, .own = {around}, .external = {}});
  model.add(ModuleSpec{.name = "a", .parent = ModuleId{0}, .own = {shared}, .external = {}});
  model.add(ModuleSpec{.name = "b", .parent = ModuleId{0}, .own = {inside}, .external = {}});
  model.add(ModuleSpec{.name = "c", .parent = ModuleId{0}, .own = {beside}, .external = {}});
  model.close();
  made.trace.model = std::move(model);
  made.call(TracedCall::Kind::kBeginEvaluation);
  made.enter(0);
  for (const uint32_t module : {1U, 2U, 3U, 2U}) made.visit(module);
  made.leave(0);
  made.call(TracedCall::Kind::kEndPass);
  CHECK(least_of(made).at_budget == 4 * 350);
  made.trace.budget = 4 * 300;  // the second cannot stay beside the third
  CHECK(least_of(made).at_budget == 4 * (350 + 50));
}

TEST_CASE("between one layer and all of them the least is found for layers of one size, and never passed for others") {
  std::mt19937 drawn(11);
  const auto draw = [&drawn](uint32_t below) { return static_cast<uint32_t>(drawn()) % below; };
  int found = 0;
  for (int model = 0; model < 400; ++model) {
    CAPTURE(model);
    const bool is_even = model % 2 == 0;
    const uint32_t layers = 2 + draw(5);
    std::vector<int64_t> elements;
    for (uint32_t i = 0; i < layers; ++i) elements.push_back(is_even ? 16 : 1 + draw(40));
    std::vector<uint64_t> bytes;
    uint64_t all = 0;
    uint64_t largest = 0;
    for (const int64_t count : elements) {
      bytes.push_back(4 * static_cast<uint64_t>(count));
      all += bytes.back();
      largest = std::max(largest, bytes.back());
    }
    uint64_t budget = 2 * largest + draw(static_cast<uint32_t>(all));
    if (is_even) budget = budget / largest * largest;
    std::vector<uint32_t> order;
    const uint32_t visited = layers + draw(4);
    for (uint32_t i = 0; i < visited; ++i) order.push_back(i < layers ? i : draw(layers));
    std::shuffle(order.begin(), order.end(), drawn);
    HandMadeTrace made(elements, budget);
    std::vector<uint32_t> modules;
    for (const uint32_t layer : order) modules.push_back(layer + 1);
    made.pass(modules);
    // A layer that is used twice keeps its gradient from its first backward visit to its second.
    const bool is_used_once = order.size() == layers;
    const uint64_t tried = is_used_once ? least_of_all(bytes, order, budget) : UINT64_MAX;
    const LeastGathered least = least_of(made);
    CHECK(least.with_room == all);
    CHECK(least.at_budget >= all);
    CHECK(least.at_budget <= tried);
    if (is_even && is_used_once) CHECK(least.at_budget == tried);
    found += is_even && is_used_once ? 1 : 0;
  }
  CHECK(found > 20);
}

TEST_CASE("no coordinator gathers less than the least") {
  std::mt19937 drawn(5);
  const auto draw = [&drawn](uint32_t below) { return static_cast<uint32_t>(drawn()) % below; };
  for (int model = 0; model < 40; ++model) {
    CAPTURE(model);
    std::vector<int64_t> elements;
    int64_t all = 0;
    const uint32_t layers = 3 + draw(6);
    for (uint32_t i = 0; i < layers; ++i) {
      elements.push_back(100 + draw(4000));
      all += elements.back();
    }
    const auto budget = static_cast<uint64_t>(4 * 4 * 4200 + 4 * draw(static_cast<uint32_t>(2 * all)));
    HandMadeTrace made(elements, budget);
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < elements.size(); ++i) order.push_back(i + 1);
    std::shuffle(order.begin(), order.end(), drawn);
    for (int step = 0; step < 4; ++step) {
      const uint32_t passes = 1 + draw(3);
      for (uint32_t pass = 0; pass < passes; ++pass) made.pass(order);
      if (draw(2) == 0) made.evaluation(order);
      made.end_step();
    }
    const std::vector<LeastGathered> least =
        least_gathered(*made.trace.model, made.calls(), {budget, DType::kF32, DType::kF32});
    const std::vector<TracedStep> steps = whole_steps(made.trace.ranks.front());
    for (const char* const coordinator : {"planned", "eager"}) {
      CAPTURE(coordinator);
      std::vector<uint64_t> gathered;
      simulate(
          config_of(coordinator, fmt::format("budget = {}", budget)), *made.trace.model, 2, steps,
          [&](int) { gathered.push_back(0); },
          [&](const RehearsedCall& call) {
            for (const pliant_action& action : call.actions) {
              if (action.kind != PLIANT_ACTION_GATHER) continue;
              gathered.back() += made.trace.model->parameter(action.parameter).elements * sizeof(float);
            }
          });
      size_t at = 0;
      for (size_t step = 0; step < gathered.size(); ++step) {
        uint64_t bound = 0;
        for (; at < made.calls().size() && made.calls()[at].step == static_cast<int64_t>(step); ++at) {
          bound += least[at].at_budget;
        }
        CHECK(gathered[step] >= bound);
      }
    }
  }
}

}  // namespace pliant::sharded
