// What the gaps of the arena cost, as the counters have it.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "room.hpp"
#include "trainer.hpp"

using namespace pliant::coordinator::planned;
using namespace pliant::coordinator::planned::test;

namespace {

/// Of the pass that was played last once passes are known.
uint64_t lost_of(const std::vector<uint64_t>& units, uint64_t budget, const std::vector<uint32_t>& order) {
  std::vector<uint64_t> bytes(units);
  for (uint64_t& one : bytes) one *= kUnit;
  Trainer trainer(layers_of(bytes, budget * kUnit));
  for (int step = 0; step < 4; ++step) {
    trainer.pass(order);
    trainer.end_step();
  }
  return trainer.planner().counts().lost_to_gaps;
}

std::vector<uint32_t> in_order(size_t layers) {
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < layers; ++i) order.push_back(i + 1);
  return order;
}

}  // namespace

TEST_CASE("layers of one size lose nothing to gaps, whatever the budget") {
  for (uint64_t budget = 4; budget <= 34; ++budget) {
    CAPTURE(budget);
    CHECK(lost_of(std::vector<uint64_t>(8, 4), budget, in_order(8)) == 0);
  }
}

TEST_CASE("with room for all nothing is lost to gaps, and without an arena there are none") {
  CHECK(lost_of({3, 9, 1, 4, 7}, 24, in_order(5)) == 0);
  CHECK(lost_of({3, 9, 1, 4, 7}, 0, in_order(5)) == UINT64_MAX);
}

TEST_CASE("what fits to the last byte where all places are known beforehand loses nothing to gaps") {
  // Three large layers and, in backward, a small one fill the budget: each where it comes to lie one after the other,
  // one of the large ones would find no piece.
  const std::vector<uint64_t> units{10, 1, 50, 2, 5, 10, 5, 10, 10, 100, 100, 1, 100};
  uint64_t all = 0;
  std::vector<uint64_t> bytes(units);
  for (uint64_t& one : bytes) {
    all += one;
    one *= kUnit;
  }
  Trainer trainer(layers_of(bytes, 302 * kUnit));
  uint64_t gathered = 0;
  for (int step = 0; step < 4; ++step) {
    gathered = trainer.pass(in_order(units.size())).bytes;
    trainer.end_step();
  }
  CHECK(gathered == (all + 102) * kUnit);  // all but what fills it: 302 are whole at the middle
  CHECK(trainer.planner().counts().lost_to_gaps == 0);
}

TEST_CASE("a pass that leaves an order whose places were all known goes on from where everything lies") {
  const std::vector<uint64_t> units{10, 1, 50, 2, 5, 10, 5, 10, 10, 100, 100, 1, 100};
  std::vector<uint64_t> bytes(units);
  for (uint64_t& one : bytes) one *= kUnit;
  const auto count = static_cast<uint32_t>(units.size());
  for (uint32_t visits = 0; visits <= 2 * count; ++visits) {
    CAPTURE(visits);
    Trainer trainer(layers_of(bytes, 302 * kUnit));
    for (int step = 0; step < 3; ++step) {
      trainer.pass(in_order(units.size()));
      trainer.end_step();
    }
    trainer.begin_pass();
    trainer.enter(0);
    for (uint32_t visit = 0; visit < visits; ++visit) {
      if (visit == count) {
        trainer.leave(0);
        trainer.enter(0, true);
      }
      const bool backward = visit >= count;
      const uint32_t layer = backward ? 2 * count - visit : visit + 1;
      trainer.enter(layer, backward);
      trainer.leave(layer, backward);
    }
    const bool backward = visits > count;
    for (const uint32_t layer : {12U, 3U, 10U, 13U}) {  // in no order that is known
      trainer.enter(layer, backward);
      trainer.leave(layer, backward);
    }
    trainer.leave(0, backward);
    trainer.end_pass();
    trainer.end_step();
  }
}

TEST_CASE("what lies idle below a line is all that nothing with a use to come holds") {
  std::mt19937 drawn(3);
  const auto draw = [&drawn] { return static_cast<uint32_t>(drawn()); };
  std::vector<uint64_t> bytes;
  for (int i = 0; i < 12; ++i) bytes.push_back(kUnit * (1 + draw() % 4));
  const Layout layout(layers_of(bytes, 16 * kUnit));
  for (int round = 0; round < 300; ++round) {
    Room room(layout);
    for (uint32_t parameter = 0; parameter < bytes.size(); ++parameter) {
      if (draw() % 3 != 0) {
        const auto spot = room.find({bytes[parameter], 16 * kUnit, 0, kNever, false, Weighing::kCost}, bytes);
        if (spot && spot->goes.empty()) room.take(parameter, spot->place, bytes[parameter]);
      }
      const uint32_t other = draw() % static_cast<uint32_t>(bytes.size());
      if (!room.at(other).whole) continue;
      const uint32_t does = draw() % 5;
      if (does == 0) room.drop(other);
      if (does == 1) room.set_next(other, draw() % 7);
      if (does == 2) room.enter(other, kNever);
      if (does == 3) room.leave(other);
      if (does == 4) room.set_next(other, kNever);
    }
    const uint64_t line = (draw() % 17) * kUnit;
    uint64_t idle = line;
    for (uint32_t parameter = 0; parameter < bytes.size(); ++parameter) {
      const Room::Held& one = room.at(parameter);
      if (!one.whole || (one.users == 0 && one.next == kNever)) continue;
      idle -= std::min(line, one.place + one.bytes) - std::min(line, one.place);
    }
    REQUIRE(room.idle_below(line) == idle);
  }
}

TEST_CASE("a model of blocks loses less than a twentieth of most budgets to gaps") {
  // An embedding, blocks of six parameters in two modules, a head that shares the embedding.
  sdk::Model model;
  const auto add_module = [&](uint32_t around) {
    model.modules.emplace_back();
    const auto number = static_cast<uint32_t>(model.modules.size() - 1);
    if (number > 0) model.modules[around].children.push_back(number);
    return number;
  };
  uint64_t all = 0;
  const auto add_parameter = [&](uint32_t module, uint64_t units) {
    sdk::Parameter one;
    one.bytes = units * kUnit;
    one.elements = one.bytes / 4;
    one.gradient_bytes = one.bytes;
    all += one.bytes;
    model.modules[module].own.push_back(static_cast<uint32_t>(model.parameters.size()));
    model.parameters.push_back(one);
  };
  add_module(0);
  add_parameter(add_module(0), 96);
  for (int layer = 0; layer < 12; ++layer) {
    const uint32_t block = add_module(0);
    add_parameter(block, 1);
    const uint32_t attention = add_module(block);
    for (const uint64_t units : {12U, 4U}) add_parameter(attention, units);
    const uint32_t mlp = add_module(block);
    for (const uint64_t units : {16U, 1U, 16U}) add_parameter(mlp, units);
  }
  const uint32_t head = add_module(0);
  model.modules[head].external.push_back(0);
  std::vector<double> lost;
  for (uint64_t budget = all / 8; budget <= 2 * all; budget += all / 24) {
    CAPTURE(budget);
    model.budget = budget / kUnit * kUnit;
    Trainer trainer(model);
    const auto walk = [&](const auto& self, uint32_t module, bool backward) -> void {
      trainer.enter(module, backward);
      std::vector<uint32_t> children = model.modules[module].children;
      if (backward) std::reverse(children.begin(), children.end());
      for (const uint32_t child : children) self(self, child, backward);
      trainer.leave(module, backward);
    };
    try {
      for (int step = 0; step < 3; ++step) {
        trainer.begin_pass();
        for (const bool backward : {false, true}) walk(walk, 0, backward);
        trainer.end_pass();
        trainer.end_step();
      }
    } catch (const sdk::Failure& failure) {
      REQUIRE(failure.status() == PLIANT_RESOURCE_EXHAUSTED);
      REQUIRE(budget < 2 * (96 + 40) * kUnit);
      continue;
    }
    lost.push_back(static_cast<double>(trainer.planner().counts().lost_to_gaps) / static_cast<double>(budget));
  }
  CHECK(lost.size() > 30);
  std::sort(lost.begin(), lost.end());
  MESSAGE("of the budget: median ", lost[lost.size() / 2], ", nine tenths below ", lost[lost.size() * 9 / 10],
          ", worst ", lost.back());
  CHECK(lost[lost.size() / 2] < 0.05);
}

TEST_CASE("layers of many sizes lose less than a twentieth of the budget to gaps, in the median") {
  std::mt19937 drawn(17);
  const auto draw = [&drawn] { return static_cast<uint32_t>(drawn()); };
  std::vector<double> lost;
  double sum = 0;
  for (int model = 0; model < 300; ++model) {
    std::vector<uint64_t> units;
    const uint32_t count = 4 + draw() % 12;
    uint64_t all = 0;
    for (uint32_t i = 0; i < count; ++i) {
      units.push_back(1 + draw() % 16);
      all += units.back();
    }
    std::vector<uint64_t> sorted = units;
    std::sort(sorted.rbegin(), sorted.rend());
    const uint64_t two = sorted[0] + sorted[1];
    const uint64_t budget = two + draw() % (all - two + 1);
    std::vector<uint32_t> order = in_order(count);
    if (draw() % 2 == 0) std::shuffle(order.begin(), order.end(), drawn);
    const uint64_t of_it = lost_of(units, budget, order);
    REQUIRE(of_it <= budget * kUnit);
    lost.push_back(static_cast<double>(of_it) / static_cast<double>(budget * kUnit));
    sum += lost.back();
  }
  std::sort(lost.begin(), lost.end());
  const auto over = lost.end() - std::upper_bound(lost.begin(), lost.end(), 0.05);
  MESSAGE("of the budget: median ", lost[lost.size() / 2], ", mean ", sum / static_cast<double>(lost.size()),
          ", nine tenths below ", lost[lost.size() * 9 / 10], ", worst ", lost.back(), "; ", over,
          " of 300 above a twentieth");
  CHECK(lost[lost.size() / 2] < 0.05);
  CHECK(sum / static_cast<double>(lost.size()) < 0.06);
}
