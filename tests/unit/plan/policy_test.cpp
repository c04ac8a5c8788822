// The contract of a plan, apart from any plugin.
#include "plan/policy.hpp"

#include <doctest/doctest.h>

using pliant::checked_plan;
using pliant::Plan;
using pliant::PlanQuestion;
using pliant::WorldRange;

namespace {

Plan plan_of(int64_t granule, std::vector<WorldRange> sizes) {
  Plan plan;
  plan.global_batch = 12;
  plan.granule = granule;
  plan.world_sizes = std::move(sizes);
  return plan;
}

}  // namespace

TEST_CASE("sizes in steps are valid where the step lands") {
  const auto plan = checked_plan(plan_of(1, {{2, 2}, {4, 10, 3}}), {}, "p");
  REQUIRE(plan.has_value());
  CHECK(plan->count() == 4);
  CHECK(plan->valid(7));
  CHECK_FALSE(plan->valid(6));
  CHECK(plan->largest_valid(9) == 7);
  CHECK(plan->smallest_valid(5) == 7);
  CHECK(plan->smallest_valid(11) == 0);
  CHECK(plan->explain_invalid(8) == "world size 8 is not valid for global batch 12; nearest valid: 7, 10");
}

TEST_CASE("more devices than 63 bits count are refused") {
  Plan plan = plan_of(1, {{1, 3}});
  plan.model_parallel_size = INT64_MAX / 2;
  CHECK(checked_plan(plan, {}, "p").error().message().find("do not fit 63 bits") != std::string::npos);
}

TEST_CASE("a step that does not reach the last size is refused") {
  const auto plan = checked_plan(plan_of(1, {{1, 6, 2}}), {}, "p");
  CHECK(plan.error().message() ==
        "p returned world sizes 1..6 in steps of 2; the step must be at least 1 and divide 5");
}

TEST_CASE("adjoining ranges become one") {
  const auto plan = checked_plan(plan_of(2, {{1, 2}, {3, 3}, {4, 4}, {6, 6}}), {}, "p");
  REQUIRE(plan.has_value());
  CHECK(plan->world_sizes == std::vector<WorldRange>{{1, 4}, {6, 6}});
}

TEST_CASE("a size that gives some rank no granule is refused") {
  const auto plan = checked_plan(plan_of(4, {{1, 4}}), {}, "p");
  CHECK(plan.error().message() == "p returned world size 4, but global batch 12 has only 3 granules of 4 rows");
}

TEST_CASE("the message of a broken plan says what is allowed") {
  const auto plan = checked_plan(plan_of(5, {}), {}, "p");
  CHECK(plan.error().message() ==
        "p returned a granule of 5, which does not divide both global batch 12 and micro-batch 0");
}
