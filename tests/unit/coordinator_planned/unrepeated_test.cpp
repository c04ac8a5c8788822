// Passes of which none comes again: what was expected is wrong each time, and costs nothing for long.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "trainer.hpp"

using namespace pliant::coordinator::planned;
using namespace pliant::coordinator::planned::test;

namespace {

constexpr int kRandomSteps = 40;

struct Counted {
  uint64_t gathered = 0;   ///< groups
  uint64_t by_demand = 0;  ///< visits: each gathers what it uses
};

/// Visits of random layers, one after the other.
Counted counted(uint32_t seed, uint32_t layers, uint64_t budget, bool within_a_module) {
  std::mt19937 drawn(seed);
  const auto draw = [&drawn] { return static_cast<uint32_t>(drawn()); };
  std::vector<uint64_t> bytes;
  for (uint32_t i = 0; i < layers; ++i) bytes.push_back((1 + draw() % 8) * kUnit);
  Trainer trainer(layers_of(bytes, budget * kUnit));
  Counted made;
  for (int step = 0; step < kRandomSteps; ++step) {
    const uint32_t visits = 4 + draw() % 30;
    trainer.begin_pass(false);
    if (within_a_module) trainer.enter(0);
    for (uint32_t visit = 0; visit < visits; ++visit) {
      const uint32_t layer = 1 + draw() % layers;
      trainer.enter(layer);
      trainer.leave(layer);
    }
    if (within_a_module) trainer.leave(0);
    made.gathered += trainer.end_pass().groups;
    made.by_demand += visits;
    trainer.end_step();
    REQUIRE(trainer.most_whole() <= budget * kUnit);
  }
  return made;
}

}  // namespace

TEST_CASE("passes that never come again are played within the budget, with no more gathers than by demand") {
  std::mt19937 drawn(23);
  uint64_t gathered = 0;
  uint64_t by_demand = 0;
  for (uint32_t program = 0; program < 200; ++program) {
    const uint32_t layers = 2 + static_cast<uint32_t>(drawn()) % 40;
    const uint64_t budget = 8 + drawn() % 30;
    CAPTURE(program);
    const Counted made = counted(program, layers, budget, program % 2 == 0);
    CHECK(made.gathered <= made.by_demand);
    gathered += made.gathered;
    by_demand += made.by_demand;
  }
  MESSAGE(gathered, " gathers, ", by_demand, " by demand");
}

TEST_CASE("orders that are known and come in no order of their own are followed once they have begun") {
  std::mt19937 drawn(5);
  constexpr uint32_t kMany = 24;
  std::vector<std::vector<uint32_t>> orders(3);
  for (auto& order : orders) {
    for (uint32_t i = 0; i < kMany; ++i) order.push_back(i + 1);
    std::shuffle(order.begin(), order.end(), drawn);
  }
  Trainer trainer(layers_of(std::vector<uint64_t>(kMany, 4 * kUnit), 12 * kUnit));
  uint64_t late = 0;
  uint64_t groups = 0;
  for (int step = 0; step < 60; ++step) {
    const Gathered made = trainer.pass(orders[drawn() % 3]);
    trainer.end_step();
    if (step < 20) continue;
    late += made.late;
    groups += made.groups;
  }
  MESSAGE(late, " of ", groups, " gathers were late");
  CHECK(late * 6 <= groups);
}
