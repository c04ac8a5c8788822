// A model of a hundred thousand modules: what planning looks at and keeps grows as the model does.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "thorough.hpp"
#include "trainer.hpp"

using namespace pliant::coordinator::planned;
using namespace pliant::coordinator::planned::test;
using pliant::test::is_thorough;

namespace {

struct Cost {
  uint64_t looked_at = 0;
  uint64_t looked_at_later = 0;  ///< in the step after the third
  uint64_t saved = 0;            ///< bytes of what was learnt
  uint64_t late = 0;             ///< of the last pass
};

/// Groups of layers, of many sizes, with room for a part of them. Passes without gradients: what the host says of
/// those would take longer.
Cost cost_of(uint32_t modules, uint64_t part, size_t passes = 1, const PlannerOptions& options = {}) {
  sdk::Model model;
  model.modules.emplace_back();
  uint64_t all = 0;
  constexpr uint32_t kInGroup = 100;
  for (uint32_t module = 1; module < modules; ++module) {
    const bool is_group = module % kInGroup == 1;
    const uint32_t around = is_group ? 0 : module - (module - 1) % kInGroup;
    model.modules.emplace_back();
    model.modules[around].children.push_back(module);
    sdk::Parameter parameter;
    parameter.bytes = (1 + module * 7 % 13) * kUnit;
    parameter.elements = parameter.bytes / 4;
    parameter.frozen = true;
    all += parameter.bytes;
    model.parameters.push_back(parameter);
    model.modules.back().own.push_back(module - 1);
  }
  model.budget = all / part / kUnit * kUnit;
  Trainer trainer(model, options);
  Cost made;
  const auto pass = [&](const std::vector<uint32_t>& groups) {
    trainer.begin_pass(false);
    trainer.enter(0);
    for (const uint32_t group : groups) {
      trainer.enter(group);
      for (const uint32_t layer : model.modules[group].children) {
        trainer.enter(layer);
        trainer.leave(layer);
      }
      trainer.leave(group);
    }
    trainer.leave(0);
    made.late = trainer.end_pass().late;
  };
  std::vector<std::vector<uint32_t>> orders(passes, model.modules[0].children);
  for (size_t i = 1; i < passes; ++i)
    std::rotate(orders[i].begin(), orders[i].begin() + static_cast<std::ptrdiff_t>(i), orders[i].end());
  for (int step = 0; step < 3; ++step) {
    for (const std::vector<uint32_t>& groups : orders) pass(groups);
    trainer.end_step();
    trainer.forget();
  }
  made.looked_at = trainer.planner().looked_at();
  for (const std::vector<uint32_t>& groups : orders) pass(groups);
  trainer.end_step();
  made.looked_at_later = trainer.planner().looked_at() - made.looked_at;
  std::string saved;
  pliant_writer sink{sizeof(pliant_writer), 0, &saved, [](void* to, const void* bytes, uint64_t size) -> int32_t {
                       static_cast<std::string*>(to)->append(static_cast<const char*>(bytes), size);
                       return PLIANT_OK;
                     }};
  sdk::Writer writer(&sink);
  trainer.planner().save(writer);
  made.saved = saved.size();
  return made;
}

/// Entries looked at in three steps of layers of a large parameter and a tiny one, with room for 16 layers: a large one
/// goes where many tiny ones lie.
uint64_t looked_at_beside_tiny_ones(uint32_t layers) {
  constexpr uint64_t kTinyOnesOfLarge = 1024;
  sdk::Model model;
  model.modules.emplace_back();
  for (uint32_t layer = 1; layer <= layers; ++layer) {
    model.modules.emplace_back();
    model.modules[0].children.push_back(layer);
    for (const uint64_t units : {kTinyOnesOfLarge, uint64_t{1}}) {
      sdk::Parameter parameter;
      parameter.bytes = units * kUnit;
      parameter.elements = parameter.bytes / 4;
      model.modules.back().own.push_back(static_cast<uint32_t>(model.parameters.size()));
      model.parameters.push_back(parameter);
    }
  }
  model.budget = 16 * kTinyOnesOfLarge * kUnit;
  Trainer trainer(model);
  for (int step = 0; step < 3; ++step) {
    trainer.begin_pass();
    for (const bool backward : {false, true}) {
      trainer.enter(0, backward);
      for (uint32_t i = 1; i <= layers; ++i) {
        const uint32_t layer = backward ? layers + 1 - i : i;
        trainer.enter(layer, backward);
        trainer.leave(layer, backward);
      }
      trainer.leave(0, backward);
    }
    static_cast<void>(trainer.end_pass());
    trainer.end_step();
    trainer.forget();
  }
  return trainer.planner().looked_at();
}

}  // namespace

TEST_CASE(
    "planning a model of twice the layers, of large and tiny parameters, looks at no more than four times as much") {
  const uint64_t small = looked_at_beside_tiny_ones(300);
  const uint64_t large = looked_at_beside_tiny_ones(600);
  MESSAGE(small, " and ", large, " entries looked at");
  CHECK(large <= 5 * small);
}

TEST_CASE("planning a model of ten times the modules looks at ten times as much, up to many thousand") {
  constexpr uint64_t kPart = 20;
  const uint32_t most = is_thorough() ? 100'001 : 30'001;
  const Cost small = cost_of(most / 10 + 1, kPart);
  const auto begin = std::chrono::steady_clock::now();
  const Cost large = cost_of(most, kPart);
  MESSAGE(small.looked_at, " and ", large.looked_at, " entries looked at, ", large.saved, " bytes kept, ",
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
          " s with all that holds the answers against the rules");
  CHECK(large.looked_at <= 12 * small.looked_at);
  CHECK(large.looked_at <= 400 * uint64_t{most});
  CHECK(large.saved <= 11 * small.saved);
  CHECK(large.late == 0);
}

TEST_CASE("passes of a step that differ do not drive out each other's plans, however large they are") {
  const Cost made = cost_of(is_thorough() ? 10'001 : 3'001, 20, 4, {.plan_bytes = 1});
  CHECK(made.looked_at > 0);
  CHECK(made.looked_at_later == 0);
}
