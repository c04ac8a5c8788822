// Plan's questions about world sizes.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <cstdint>

#include "pliant/plan.hpp"

using pliant::Plan;

namespace {

Plan plan_of(int64_t global_batch, std::vector<pliant::WorldRange> sizes) {
  Plan plan;
  plan.global_batch = global_batch;
  plan.world_sizes = std::move(sizes);
  return plan;
}

const Plan kPlan = plan_of(12, {{2, 3}, {6, 6}});

}  // namespace

TEST_CASE("a size is valid when a range holds it") {
  CHECK_FALSE(kPlan.valid(1));
  CHECK(kPlan.valid(2));
  CHECK(kPlan.valid(3));
  CHECK_FALSE(kPlan.valid(4));
  CHECK(kPlan.valid(6));
  CHECK_FALSE(kPlan.valid(7));
  CHECK_FALSE(kPlan.valid(0));
  CHECK_FALSE(kPlan.valid(-2));
  CHECK_FALSE(Plan{}.valid(1));
}

TEST_CASE("the largest valid size is found from any side") {
  CHECK(kPlan.largest_valid(1) == 0);
  CHECK(kPlan.largest_valid(2) == 2);
  CHECK(kPlan.largest_valid(5) == 3);
  CHECK(kPlan.largest_valid(100) == 6);
  CHECK(kPlan.largest_valid(INT64_MAX) == 6);
  CHECK(kPlan.count() == 3);
}

TEST_CASE("the message names the nearest valid sizes") {
  CHECK(kPlan.explain_invalid(1) == "world size 1 is not valid for global batch 12; nearest valid: 2");
  CHECK(kPlan.explain_invalid(4) == "world size 4 is not valid for global batch 12; nearest valid: 3, 6");
  CHECK(kPlan.explain_invalid(INT64_MAX) ==
        "world size 9223372036854775807 is not valid for global batch 12; nearest valid: 6");
  CHECK(kPlan.explain_invalid(-5) == "world size -5 is not valid for global batch 12; nearest valid: 2");
  CHECK(Plan{}.explain_invalid(3) == "world size 3 is not valid for global batch 0; no world size is");
}

TEST_CASE("the nearest sizes are what a search step by step finds") {
  CHECK(rc::check([] {
    Plan plan = plan_of(1000, {});
    int64_t last = 0;
    const auto ranges = *rc::gen::inRange(1, 6);
    for (int i = 0; i < ranges; ++i) {
      const int64_t first = last + *rc::gen::inRange<int64_t>(2, 9);
      last = first + *rc::gen::inRange<int64_t>(0, 5);
      plan.world_sizes.push_back({first, last});
    }
    const auto size = *rc::gen::inRange<int64_t>(1, 80);
    if (plan.valid(size)) return;
    int64_t below = size;
    while (below > 0 && !plan.valid(below)) --below;
    int64_t above = size;
    while (above < 200 && !plan.valid(above)) ++above;
    std::string expected = below > 0 ? std::to_string(below) : "";
    if (above < 200) expected += (expected.empty() ? "" : ", ") + std::to_string(above);
    const std::string text = plan.explain_invalid(size);
    RC_ASSERT(text.substr(text.find("valid: ") + 7) == expected);
    RC_ASSERT(plan.largest_valid(size) == below);
  }));
}
