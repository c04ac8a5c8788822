// What gathers were measured to take: it says which sizes are worth keeping, and no chance says which layers.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "trainer.hpp"

using namespace pliant::coordinator::planned;
using namespace pliant::coordinator::planned::test;

namespace {

constexpr int kSteps = 6;

/// Layers of two sizes by turns, with room for a part of them: answers from that step on, costs told after the second
/// step.
std::vector<uint64_t> answers_with(const std::vector<uint64_t>& costs, int from = 0) {
  constexpr size_t kLayers = 12;
  std::vector<uint64_t> bytes;
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < kLayers; ++i) {
    bytes.push_back(kUnit * (i % 2 == 0 ? 3 : 1));
    order.push_back(i + 1);
  }
  Trainer trainer(layers_of(bytes, 14 * kUnit));
  for (int step = 0; step < kSteps; ++step) {
    if (step == from) trainer.forget();
    trainer.pass(order);
    trainer.end_step();
    if (step == 1 && !costs.empty()) trainer.planner().set_costs(costs);
  }
  return trainer.said();
}

/// Of the larger layers and of the smaller ones so many nanoseconds, and what chance adds.
std::vector<uint64_t> measured(uint64_t large, uint64_t small, uint32_t seed) {
  std::mt19937 drawn(seed);
  std::vector<uint64_t> costs;
  for (size_t i = 0; i < 12; ++i) costs.push_back((i % 2 == 0 ? large : small) + drawn() % (large / 2));
  // Of each size the middle one is known, so that the median is.
  costs[0] = costs[2] = costs[4] = costs[6] = large;
  costs[1] = costs[3] = costs[5] = costs[7] = small;
  return costs;
}

/// In the last step.
struct Gathers {
  int large = 0;
  int small = 0;
};
Gathers gathers_with(const std::vector<uint64_t>& costs) {
  const std::vector<uint64_t> said = answers_with(costs, kSteps - 1);
  Gathers made;
  for (size_t i = 0; i < said.size(); i += Trainer::kNumbersOfAction) {
    if (said[i] == PLIANT_ACTION_GATHER) ++(said[i + 1] % 2 == 0 ? made.large : made.small);
  }
  return made;
}

}  // namespace

TEST_CASE("layers of one size are kept alike, whatever chance made their gathers take") {
  const std::vector<uint64_t> steady = answers_with(measured(3000, 1000, 1));
  for (uint32_t seed = 2; seed < 40; ++seed) {
    CAPTURE(seed);
    CHECK(answers_with(measured(3000, 1000, seed)) == steady);
  }
}

TEST_CASE("layers that take long for their bytes are kept, so that the gathers of a step take the least in all") {
  constexpr int kLarge = 3000;
  std::vector<std::pair<int, Gathers>> made;  // by what a smaller one takes
  for (const int small : {10, 1500, 100000})
    made.emplace_back(small, gathers_with(measured(kLarge, static_cast<uint64_t>(small), 1)));
  CHECK(made.back().second.small == 6);  // once each
  CHECK(made.back().second.large > 6);
  CHECK(made.front().second.small > 6);
  CHECK(made.front().second.large < made.back().second.large);
  const auto in_all = [](int small, const Gathers& gathers) { return gathers.large * kLarge + gathers.small * small; };
  for (const auto& one : made) {
    const int small = one.first;
    CAPTURE(small);
    for (const auto& other : made) CHECK(in_all(small, one.second) <= in_all(small, other.second));
  }
}

TEST_CASE("a layer that was not gathered in the measured step costs what its like do") {
  std::vector<uint64_t> costs = measured(3000, 1000, 1);
  const std::vector<uint64_t> all = answers_with(costs);
  costs[8] = costs[11] = 0;
  CHECK(answers_with(costs) == all);
}
