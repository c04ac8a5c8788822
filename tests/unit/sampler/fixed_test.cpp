// Sampler `fixed`, through the plugin host.
#include <doctest/doctest.h>

#include <algorithm>

#include "sampler_plugin.hpp"

namespace fixed_test {

using namespace pliant;
using namespace pliant::test;

namespace {

using Rows = std::vector<std::vector<int64_t>>;

Asked of(std::vector<int32_t> lengths, int64_t rows_per_batch = 1) {
  Asked asked;
  asked.lengths = std::move(lengths);
  asked.rows_per_batch = rows_per_batch;
  return asked;
}

Planned planned(const OptionMap& options, const Asked& asked) {
  return or_throw(OpenedSampler("fixed", options).plan(asked));
}

}  // namespace

TEST_CASE("fixed gives one sequence a row in the given order and keeps a short last batch") {
  const Planned plan = planned({}, of({5, 9, 1}, 2));
  CHECK(plan.rows == Rows{{0}, {1}, {2}});
  CHECK(plan.dropped.empty());
}

TEST_CASE("fixed leaves the tail out when told to, and says so") {
  const Planned plan = planned({{"tail", "drop"}}, of({5, 9, 1}, 2));
  CHECK(plan.rows == Rows{{0}, {1}});
  CHECK(plan.dropped == std::vector<std::pair<int64_t, std::string>>{{2, "incomplete_batch"}});
}

TEST_CASE("fixed fills the last batch up with rows without sequences when told to") {
  CHECK(planned({{"tail", "pad"}}, of({5, 9, 1}, 2)).rows == Rows{{0}, {1}, {2}, {}});
  CHECK(planned({{"tail", "pad"}}, of({5, 9}, 2)).rows == Rows{{0}, {1}});
}

TEST_CASE("fixed refuses a set smaller than one batch when the tail is dropped") {
  auto answer = OpenedSampler("fixed", {{"tail", "drop"}}).plan(of({5, 9, 1}, 4));
  REQUIRE_FALSE(answer.has_value());
  CHECK(answer.error().status() == Status::kFailedPrecondition);
  CHECK(answer.error().message().find("3 rows, a batch has 4") != std::string::npos);
}

TEST_CASE("fixed orders by length, and at random as Python does") {
  CHECK(planned({{"order", "seqlen"}}, of({5, 3, 9, 3})).rows == Rows{{1}, {3}, {0}, {2}});
  Asked asked = of(std::vector<int32_t>(12, 1));
  asked.seed = 42;
  const Rows python{{7}, {5}, {2}, {8}, {9}, {6}, {11}, {3}, {4}, {0}, {1}, {10}};
  CHECK(planned({{"order", "random"}}, asked).rows == python);
  asked.epoch = 1;
  CHECK_FALSE(planned({{"order", "random"}}, asked).rows == python);
}

TEST_CASE("fixed has no limit on lengths unless max_tokens sets one") {
  CHECK(planned({}, of({1, 2147483647})).rows.size() == 2);
  auto answer = OpenedSampler("fixed", {{"max_tokens", int64_t{10}}}).plan(of({1, 11}));
  REQUIRE_FALSE(answer.has_value());
  CHECK(answer.error().message().find("1 of 2 sequences are longer than max_tokens = 10; ids (tokens): 1 (11)") !=
        std::string::npos);
  const Planned plan = planned({{"max_tokens", int64_t{10}}, {"over_long", "drop"}}, of({1, 11}));
  CHECK(plan.rows == Rows{{0}});
  CHECK(plan.dropped == std::vector<std::pair<int64_t, std::string>>{{1, "too_long"}});
}

TEST_CASE("fixed plans an empty epoch for no sequences") {
  CHECK(planned({}, of({}, 4)).rows.empty());
}

}  // namespace fixed_test
