// The extension pliant.packing/0 on sets whose numbers are plain to see.
#include <doctest/doctest.h>

#include <limits>

#include "sampler_plugin.hpp"

namespace packing_report_test {

using namespace pliant;
using namespace pliant::test;

namespace {

struct Told {
  int64_t budget;
  int32_t unit;
  uint64_t used;
  uint64_t least_rows;
  uint64_t rows;
  bool operator==(const Told&) const = default;
};

Told told(const std::string& name, OptionMap options, std::vector<int32_t> lengths, int64_t rows_per_batch = 1) {
  Asked asked;
  asked.lengths = std::move(lengths);
  asked.rows_per_batch = rows_per_batch;
  OpenedSampler sampler(name, options);
  const Planned plan = or_throw(sampler.plan(asked));
  const auto report = or_throw(sampler.report());
  return {report.budget, report.unit, report.used, report.least_rows, plan.rows.size()};
}

constexpr int32_t kTokens = PLIANT_UNIT_TOKENS;
constexpr int32_t kPadded = PLIANT_UNIT_PADDED_TOKENS;
constexpr int32_t kCost = PLIANT_UNIT_COST;

}  // namespace

TEST_CASE("samplers that add tokens up report their budget, the tokens in rows and a lower bound") {
  const OptionMap ten{{"max_tokens", int64_t{10}}, {"order", "dataloader"}};
  // 6, 7 and 8 need a row each; 4 + 3 + 2 fit beside them.
  CHECK(told("next_fit", ten, {6, 7, 8, 4, 3, 2}) == Told{10, kTokens, 30, 3, 4});
  CHECK(told("best_fit", ten, {6, 7, 8, 4, 3, 2}) == Told{10, kTokens, 30, 3, 3});
  CHECK(told("streaming", ten, {6, 7, 8, 4, 3, 2}) == Told{10, kTokens, 30, 3, 3});
  CHECK(told("seqlen", {{"max_tokens", int64_t{10}}, {"strict", true}}, {6, 7, 8, 4, 3, 2}) ==
        Told{10, kTokens, 30, 3, 4});
  CHECK(told("fixed", {{"max_tokens", int64_t{10}}}, {6, 7, 8, 4, 3, 2}) == Told{0, kTokens, 30, 6, 6});
  CHECK(told("concat", ten, {6, 7, 8, 4, 3, 3}) == Told{10, kTokens, 31, 4, 4});
}

TEST_CASE("a limit of sequences raises the lower bound") {
  CHECK(told("best_fit", {{"max_tokens", int64_t{10}}, {"max_sequences", int64_t{2}}}, {1, 1, 1, 1, 1}) ==
        Told{10, kTokens, 5, 3, 3});
  CHECK(told("seqlen", {{"max_tokens", int64_t{10}}, {"max_batch_size", int64_t{2}}, {"strict", true}},
             {1, 1, 1, 1, 1}) == Told{10, kTokens, 5, 3, 3});
}

TEST_CASE("pieces count as the pieces that they are, dropped sequences not at all") {
  const auto options = [](const char* over_long) {
    return OptionMap{{"max_tokens", int64_t{10}}, {"over_long", over_long}, {"order", "dataloader"}};
  };
  CHECK(told("next_fit", options("split"), {25, 4}) == Told{10, kTokens, 29, 3, 3});
  CHECK(told("next_fit", options("truncate"), {25, 4}) == Told{10, kTokens, 14, 2, 2});
  CHECK(told("next_fit", options("drop"), {25, 4}) == Told{10, kTokens, 4, 1, 1});
  CHECK(told("concat", {{"max_tokens", int64_t{10}}, {"tail", "drop"}}, {25, 4, 6}, 3) == Told{10, kTokens, 30, 3, 3});
}

TEST_CASE("padding counts, to multiples and to shapes too") {
  const OptionMap twelve{{"max_tokens", int64_t{12}}, {"order", "dataloader"}};
  // 6 + 4 in one row of 2 x 6, then 3 x 4 at most
  CHECK(told("padded_budget", twelve, {4, 1, 6, 4, 4}) == Told{12, kPadded, 24, 2, 3});
  CHECK(told("bucketed", twelve, {4, 4, 4, 6, 1}) == Told{12, kPadded, 19, 2, 3});
  OptionMap multiple = twelve;
  multiple["length_multiple"] = int64_t{4};
  CHECK(told("padded_budget", multiple, {3, 3, 3, 5}) == Told{12, kPadded, 20, 2, 2});
  const OptionMap shapes{{"max_tokens", int64_t{16}}, {"shapes", std::vector<std::string>{"8x2", "4x4"}}};
  CHECK(told("padded_budget", shapes, {3, 5, 1}) == Told{16, kPadded, 32, 2, 2});
}

TEST_CASE("the quadratic term makes the unit cost") {
  const OptionMap options{{"max_tokens", int64_t{12}}, {"quadratic_length", int64_t{8}}, {"order", "dataloader"}};
  // 4 + 4 * 4 / 8 = 6
  CHECK(told("next_fit", options, {4, 4, 4}) == Told{12, kCost, 18, 2, 2});
  CHECK(told("best_fit", options, {4, 4, 4}) == Told{12, kCost, 18, 2, 2});
  CHECK(told("padded_budget", options, {4, 1, 4}) == Told{12, kCost, 18, 2, 2});
}

TEST_CASE("without a budget there is no lower bound, and of nothing nothing is reported") {
  CHECK(told("fixed", {}, {5, 6}) == Told{0, kTokens, 11, 2, 2});
  CHECK(told("fixed", {{"max_tokens", int64_t{6}}}, {0, 0}) == Told{0, kTokens, 0, 2, 2});
  CHECK(told("seqlen", {{"max_tokens", int64_t{0}}, {"strict", true}}, {0, 0}) == Told{0, kTokens, 0, 0, 1});
  for (const char* name : {"next_fit", "best_fit", "streaming", "concat"}) {
    CAPTURE(name);
    CHECK(told(name, {{"max_tokens", int64_t{6}}}, {}) == Told{6, kTokens, 0, 0, 0});
  }
  for (const char* name : {"padded_budget", "bucketed"}) {
    CAPTURE(name);
    CHECK(told(name, {{"max_tokens", int64_t{6}}}, {}) == Told{6, kPadded, 0, 0, 0});
  }
}

TEST_CASE("an epoch of many rows is reported whole") {
  const std::vector<int32_t> lengths(20001, 7);
  for (const char* name : {"next_fit", "best_fit", "streaming"}) {
    CAPTURE(name);
    CHECK(told(name, {{"max_tokens", int64_t{10}}}, lengths) == Told{10, kTokens, 140007, 20001, 20001});
  }
  CHECK(told("fixed", {{"max_tokens", int64_t{10}}}, lengths) == Told{0, kTokens, 140007, 20001, 20001});
  CHECK(told("seqlen", {{"max_tokens", int64_t{14}}, {"strict", true}}, lengths) ==
        Told{14, kTokens, 140007, 10001, 10001});
  CHECK(told("concat", {{"max_tokens", int64_t{10}}}, lengths) == Told{10, kTokens, 140007, 14001, 14001});
  CHECK(told("padded_budget", {{"max_tokens", int64_t{15}}}, lengths) == Told{15, kPadded, 140007, 10001, 10001});
}

TEST_CASE("sums past 64 bits are reported as the most that there is") {
  const OptionMap huge{{"max_tokens", std::numeric_limits<int64_t>::max()}, {"length_multiple", int64_t{1} << 62U}};
  const Told of_all = told("padded_budget", huge, std::vector<int32_t>(8, 1));
  CHECK(of_all.used == std::numeric_limits<uint64_t>::max());
  CHECK(of_all.least_rows == 8);
}

TEST_CASE("there is nothing to report before an epoch and after one that was refused") {
  for (const char* name :
       {"fixed", "seqlen", "next_fit", "best_fit", "streaming", "concat", "padded_budget", "bucketed"}) {
    CAPTURE(name);
    OpenedSampler sampler(name, {{"max_tokens", int64_t{10}}});
    CHECK(sampler.report().error().status() == Status::kFailedPrecondition);
    Asked asked;
    asked.lengths = {3, 4};
    or_throw(sampler.plan(asked));
    CHECK(sampler.report().has_value());
    asked.rows_per_batch = 0;
    CHECK_FALSE(sampler.plan(asked).has_value());
    CHECK(sampler.report().error().status() == Status::kFailedPrecondition);
  }
}

}  // namespace packing_report_test
