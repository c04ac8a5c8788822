// Modules around others, gradients that live long, parameters without bytes: what fits goes on fitting.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "trainer.hpp"

using namespace pliant::coordinator::planned;
using namespace pliant::coordinator::planned::test;

namespace {

struct Nested {
  sdk::Model model;
  uint32_t module(uint32_t parent) {
    model.modules.emplace_back();
    const auto number = static_cast<uint32_t>(model.modules.size() - 1);
    if (number > 0) model.modules[parent].children.push_back(number);
    return number;
  }
  uint32_t parameter(uint32_t module, uint64_t units, bool frozen = false) {
    sdk::Parameter one;
    one.elements = units * kUnit / 4;
    one.bytes = units * kUnit;
    one.frozen = frozen;
    if (!frozen) one.gradient_bytes = one.bytes;
    one.name = "p" + std::to_string(model.parameters.size());
    model.parameters.push_back(one);
    const auto number = static_cast<uint32_t>(model.parameters.size() - 1);
    model.modules[module].own.push_back(number);
    return number;
  }
};

/// Forward and backward through the tree.
Gathered walked(Trainer& trainer, const sdk::Model& model) {
  const auto walk = [&](const auto& self, uint32_t module, bool backward) -> void {
    trainer.enter(module, backward);
    std::vector<uint32_t> children = model.modules[module].children;
    if (backward) std::reverse(children.begin(), children.end());
    for (const uint32_t child : children) self(self, child, backward);
    trainer.leave(module, backward);
  };
  trainer.begin_pass();
  walk(walk, 0, false);
  walk(walk, 0, true);
  return trainer.end_pass();
}

}  // namespace

TEST_CASE(
    "what fitted by demand fits once it is gathered ahead: a module around another leaves the rest in one piece") {
  Nested nested;
  nested.module(0);
  const uint32_t first = nested.module(0);
  const uint32_t around = nested.module(0);
  const uint32_t within = nested.module(around);
  nested.parameter(first, 45, true);
  nested.parameter(around, 10, true);
  nested.parameter(within, 60, true);
  nested.model.budget = 100 * kUnit;
  Trainer trainer(nested.model);
  for (int step = 0; step < 5; ++step) {
    CHECK_NOTHROW(walked(trainer, nested.model));
    trainer.end_step();
  }
}

TEST_CASE("the gradient of a parameter that the first and the last layer share has room while the others compute") {
  Nested nested;
  nested.module(0);
  const uint32_t embedding = nested.module(0);
  const uint32_t tied = nested.parameter(embedding, 40);
  for (int i = 0; i < 10; ++i) nested.parameter(nested.module(0), 8);
  const uint32_t head = nested.module(0);
  nested.model.modules[head].external.push_back(tied);
  nested.model.budget = 130 * kUnit;
  Trainer trainer(nested.model, {16, 2, 0});
  uint64_t late = 0;
  for (int step = 0; step < 5; ++step) {
    late = walked(trainer, nested.model).late;
    trainer.end_step();
  }
  CHECK(late == 0);
}

TEST_CASE("the gradients of a module around others have room while those compute") {
  for (const uint64_t received : {uint64_t{0}, uint64_t{3}}) {
    Nested nested;
    nested.module(0);
    nested.parameter(0, 12);
    for (int i = 0; i < 6; ++i) {
      const uint32_t layer = nested.module(0);
      nested.parameter(layer, 6);
      nested.parameter(nested.module(layer), 10);
    }
    for (sdk::Parameter& one : nested.model.parameters) one.received_bytes = received * one.bytes;
    nested.model.budget = (2 * (12 + 6 + 10) + received * 12 + 12) * kUnit;
    Trainer trainer(nested.model, {16, 2, 1024});
    for (int step = 0; step < 5; ++step) {
      CHECK_NOTHROW(walked(trainer, nested.model));
      trainer.end_step();
    }
  }
}

TEST_CASE("with room for all, parameters of modules around others are gathered once a step, too") {
  Nested nested;
  nested.module(0);
  uint64_t bytes = 0;
  for (const uint64_t units : {4U, 9U, 5U}) {
    const uint32_t layer = nested.module(0);
    nested.parameter(layer, units);
    nested.parameter(nested.module(layer), 2 * units);
    bytes += 3 * units * kUnit;
  }
  nested.model.budget = 4 * bytes;
  Trainer trainer(nested.model);
  for (int step = 0; step < 4; ++step) {
    CHECK(walked(trainer, nested.model).bytes == bytes);
    trainer.end_step();
  }
}

TEST_CASE("parameters without elements keep nothing from being gathered ahead") {
  Nested nested;
  nested.module(0);
  for (int i = 0; i < 8; ++i) nested.parameter(0, 0);
  for (int i = 0; i < 8; ++i) nested.parameter(nested.module(0), 4, true);
  nested.model.budget = 12 * kUnit;
  Trainer trainer(nested.model);
  uint64_t late = 0;
  for (int step = 0; step < 4; ++step) {
    late = walked(trainer, nested.model).late;
    trainer.end_step();
  }
  CHECK(late == 0);
}

TEST_CASE("a budget that is too small is refused with the parameter and the module") {
  Nested nested;
  nested.module(0);
  nested.model.modules.front().name = "model";
  nested.parameter(nested.module(0), 4);
  nested.model.modules.back().name = "layer.0";
  nested.model.budget = 3 * kUnit;
  Trainer trainer(nested.model);
  std::string said;
  try {
    walked(trainer, nested.model);
  } catch (const sdk::Failure& failure) {
    said = failure.what();
    CHECK(failure.status() == PLIANT_RESOURCE_EXHAUSTED);
  }
  CHECK(said.find("[coordinator] budget = 768 is too small: p0 of layer.0 needs 1024 bytes") != std::string::npos);
}

TEST_CASE("a budget that has no room for gradients is refused with the module and the largest of them") {
  Nested nested;
  nested.parameter(nested.module(0), 3, true);
  nested.model.modules.front().name = "model";
  const uint32_t layer = nested.module(0);
  nested.parameter(layer, 1);
  const uint32_t large = nested.parameter(layer, 1);
  nested.model.parameters[large].gradient_bytes = 3 * kUnit;
  nested.model.modules.back().name = "layer.0";
  nested.model.budget = 6 * kUnit;
  Trainer trainer(nested.model);
  std::string said;
  try {
    walked(trainer, nested.model);
  } catch (const sdk::Failure& failure) {
    said = failure.what();
    CHECK(failure.status() == PLIANT_RESOURCE_EXHAUSTED);
  }
  CHECK(said ==
        "[coordinator] budget = 1536 is too small: as layer.0 is entered in backward, gradients need 1024 bytes (the "
        "largest of this module: p2, 768), and entered modules already take 768; raise it");
}

TEST_CASE("after other parameters of a module what is left to gradients is counted anew") {
  Nested nested;
  nested.module(0);
  const uint32_t layer = nested.module(0);
  nested.parameter(layer, 2);
  const uint32_t large = nested.parameter(nested.module(0), 30);
  nested.model.budget = 64 * kUnit;
  Planner planner(nested.model, {16, 2, 16 * kUnit});
  std::vector<pliant_action> room(512);
  pliant_action_list list{sizeof(pliant_action_list), 0, room.size(), 0, room.data()};
  sdk::Actions actions(list);
  const std::vector<uint32_t> own{0, large};
  planner.set_parameters(layer, own, {});
  planner.drop_trace(actions);
  planner.begin_pass(true, actions);
  planner.enter({0, false, false, {}}, actions);
  planner.enter({layer, false, false, {}}, actions);
  planner.leave({layer, false, false, {}}, actions);
  planner.leave({0, false, false, {}}, actions);
  planner.enter({0, true, false, {}}, actions);
  planner.enter({layer, true, false, {}}, actions);
  const std::vector<uint32_t> complete{0, large};
  const size_t before = list.count;
  planner.leave({layer, true, false, complete}, actions);
  uint64_t reduced = 0;  // no bucket is left: they leave at once
  for (size_t i = before; i < actions.written().size(); ++i) reduced += room[i].kind == PLIANT_ACTION_REDUCE ? 1 : 0;
  CHECK(reduced == 2);
}
