// Large and small modules in alternation, where gaps of one size meet parameters of the other.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "trainer.hpp"

using namespace pliant::coordinator::planned;
using namespace pliant::coordinator::planned::test;

namespace {

constexpr uint32_t kTurns = 12;

}  // namespace

TEST_CASE(
    "of large and small layers in turn no budget is refused that has room for one, and with room for two few are "
    "late") {
  for (const uint64_t small : {1U, 3U, 7U}) {
    const uint64_t large = 10;
    std::vector<uint64_t> bytes;
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < kTurns; ++i) {
      bytes.push_back((i % 2 == 0 ? large : small) * kUnit);
      order.push_back(i + 1);
    }
    const uint64_t all = kTurns / 2 * (large + small) * kUnit;
    double most_lost = 0;
    int budgets = 0;
    int with_late = 0;
    for (uint64_t budget = large * kUnit; budget <= all; budget += kUnit) {
      CAPTURE(small);
      CAPTURE(budget / kUnit);
      Trainer trainer(layers_of(bytes, budget));
      Gathered made;
      for (int step = 0; step < 4; ++step) {
        made = trainer.pass(order);
        trainer.end_step();
      }
      REQUIRE(trainer.most_whole() <= budget);
      CHECK(made.bytes <= 2 * all - small * kUnit);  // the last layer serves its backward
      CHECK(made.late <= (budget >= (large + small) * kUnit ? 3 : 2 * kTurns));
      ++budgets;
      with_late += budget >= (large + small) * kUnit && made.late > 0 ? 1 : 0;
      const uint64_t lost = trainer.planner().counts().lost_to_gaps;
      most_lost = std::max(most_lost, static_cast<double>(lost) / static_cast<double>(budget));
      if (budget == all) CHECK(made.bytes == all);
    }
    CHECK(with_late * 5 <= budgets);
    MESSAGE(with_late, " of ", budgets, " budgets have a late gather; layers of ", large, " and ", small, ": at most ",
            most_lost, " of a budget is lost to gaps");
  }
}
