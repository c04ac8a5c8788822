// The contract of a plan, apart from any plugin.
#include "plan/policy.hpp"

#include <doctest/doctest.h>

using pliant::checked_plan;
using pliant::Plan;
using pliant::PlanQuestion;
using pliant::WorldRange;

TEST_CASE("adjoining ranges become one") {
  const auto plan = checked_plan({12, 0, 2, 1, {{1, 2}, {3, 3}, {4, 4}, {6, 6}}}, {}, "p");
  REQUIRE(plan.has_value());
  CHECK(plan->world_sizes == std::vector<WorldRange>{{1, 4}, {6, 6}});
}

TEST_CASE("a size that gives some rank no granule is refused") {
  const auto plan = checked_plan({12, 0, 4, 1, {{1, 4}}}, {}, "p");
  CHECK(plan.error().message() ==
        "p answered world size 4, but global batch 12 has only 3 granules of 4 rows to share out");
}

TEST_CASE("the message of a broken plan says what is allowed") {
  const auto plan = checked_plan({12, 0, 5, 1, {}}, {}, "p");
  CHECK(plan.error().message() ==
        "p answered a granule of 5, which does not divide both global batch 12 and micro-batch 0");
}
