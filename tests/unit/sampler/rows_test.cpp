// Sampler `rows`, through the plugin host.
#include <doctest/doctest.h>

#include "sampler_plugin.hpp"

namespace rows_test {

using namespace pliant;
using namespace pliant::test;

namespace {

using Rows = std::vector<std::vector<int64_t>>;
using Dropped = std::vector<std::pair<int64_t, std::string>>;

/// `rows` of sequences of these lengths.
Asked of(std::vector<int32_t> lengths, const Rows& rows, int64_t rows_per_batch = 1) {
  Asked asked;
  asked.lengths = std::move(lengths);
  asked.rows_per_batch = rows_per_batch;
  asked.row_offsets = {0};
  for (const auto& row : rows) {
    asked.row_ids.insert(asked.row_ids.end(), row.begin(), row.end());
    asked.row_offsets.push_back(asked.row_ids.size());
  }
  return asked;
}

Planned planned(const OptionMap& options, const Asked& asked) {
  return or_throw(OpenedSampler("rows", options).plan(asked));
}

Error refusal(const OptionMap& options, const Asked& asked) {
  auto answer = OpenedSampler("rows", options).plan(asked);
  REQUIRE_FALSE(answer.has_value());
  return answer.error();
}

bool has(const Error& error, const std::string& part) {
  INFO(error.message());
  return error.message().find(part) != std::string::npos;
}

const Rows kRows{{4, 0}, {2}, {1, 3}};

}  // namespace

TEST_CASE("rows gives the rows as they are, whole sequences in their order, the same in every epoch") {
  Asked asked = of({5, 6, 7, 8, 9}, kRows, 2);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    asked.epoch = epoch;
    const Planned plan = planned({}, asked);
    CHECK(plan.rows == kRows);
    CHECK(plan.sequence_count == 5);
    CHECK(plan.truncated_count == 0);
    CHECK(plan.dropped.empty());
    CHECK(plan.pieces[0] == std::vector<std::pair<int64_t, int64_t>>{{0, 9}, {0, 5}});
  }
}

TEST_CASE("rows shuffles rows, not what is in them, by seed and epoch as Python does") {
  Rows given;
  for (int64_t row = 0; row < 12; ++row) given.push_back({2 * row + 1, 2 * row});
  Asked asked = of(std::vector<int32_t>(24, 1), given);
  asked.seed = 42;
  const Planned plan = planned({{"order", "random"}}, asked);
  Rows python;
  for (const int64_t row : {7, 5, 2, 8, 9, 6, 11, 3, 4, 0, 1, 10}) python.push_back(given[static_cast<size_t>(row)]);
  CHECK(plan.rows == python);
  CHECK(planned({{"order", "random"}}, asked).rows == python);
  asked.epoch = 1;
  CHECK(planned({{"order", "random"}}, asked).rows != python);
}

TEST_CASE("rows keeps the tail, fills the last batch up, or drops it and says so") {
  const Asked asked = of({5, 6, 7, 8, 9}, kRows, 2);
  CHECK(planned({{"tail", "pad"}}, asked).rows == Rows{{4, 0}, {2}, {1, 3}, {}});
  const Planned dropped = planned({{"tail", "drop"}}, asked);
  CHECK(dropped.rows == Rows{{4, 0}, {2}});
  CHECK(dropped.dropped == Dropped{{1, "incomplete_batch"}, {3, "incomplete_batch"}});
  CHECK(dropped.sequence_count == 3);
  CHECK(has(refusal({{"tail", "drop"}}, of({5, 6, 7, 8, 9}, kRows, 4)), "3 rows, a batch has 4"));
}

TEST_CASE("rows refuses sequences that are in no row by name, or drops them") {
  const Asked asked = of({5, 6, 7, 8, 9, 1, 1, 1, 1}, {{4, 0}, {2}});
  const Error error = refusal({}, asked);
  CHECK(error.status() == Status::kInvalidArgument);
  CHECK(error.options() == "unused ids");
  CHECK(has(error, "6 of 9 sequences are in no row; ids: 1, 3, 5, 6, 7 and 1 more. Add rows with them, or set unused"));
  const Planned plan = planned({{"unused", "drop"}}, asked);
  CHECK(plan.rows == Rows{{4, 0}, {2}});
  CHECK(plan.dropped.size() == 6);
  CHECK(plan.dropped.front() == std::pair<int64_t, std::string>{1, "not_in_rows"});
}

TEST_CASE("rows refuses rows above the budget by number, and takes those that fill it") {
  const Asked asked = of({5, 6, 7, 8, 9}, kRows);
  CHECK(planned({{"max_tokens", int64_t{14}}}, asked).rows == kRows);
  const Error error = refusal({{"max_tokens", int64_t{13}}}, asked);
  CHECK(error.options() == "max_tokens offsets");
  CHECK(has(error,
            "2 of 3 rows have more than max_tokens = 13 tokens; rows (tokens): 0 (14), 2 (14). Pack them again, or "
            "raise max_tokens to 14"));
}

TEST_CASE("a row of the longest sequences does not overflow the budget") {
  const int32_t longest = 2147483647;
  CHECK(
      has(refusal({{"max_tokens", int64_t{longest}}}, of({longest, longest, longest}, {{0, 1, 2}})), "0 (6442450941)"));
}

TEST_CASE("rows without rows says what to set") {
  Asked asked;
  asked.lengths = {1, 2};
  const Error error = refusal({}, asked);
  CHECK(error.status() == Status::kFailedPrecondition);
  CHECK(error.options() == "offsets ids");
  CHECK(has(error, "there are no rows; set offsets and ids to .npy files"));
}

TEST_CASE("a request for some sequences takes the others out of the rows") {
  Asked asked = of({5, 6, 7, 8, 9}, kRows, 2);
  asked.has_ids = true;
  asked.ids = {3, 0, 4};
  const Planned plan = planned({}, asked);
  CHECK(plan.rows == Rows{{4, 0}, {3}});
  CHECK(plan.dropped.empty());
  asked.ids = {3, 0, 3};
  CHECK(has(refusal({}, asked), "sequence 3 is asked for twice"));
  asked.ids = {};
  CHECK(planned({}, asked).rows.empty());
}

TEST_CASE("rows are fetched from any row on, in any order") {
  const Asked asked = of({5, 6, 7, 8, 9}, kRows);
  OpenedSampler sampler("rows", {});
  const Planned plan = or_throw(sampler.plan(asked));
  const auto& slots = sampler.instance().table<pliant_batch_sampler>();
  pliant_error error = plugin::fresh_error();
  std::vector<uint64_t> offsets(3);
  std::vector<int64_t> ids(3);
  REQUIRE(slots.rows(sampler.instance().self(), 1, 2, offsets.data(), ids.data(), 3, &error) == PLIANT_OK);
  CHECK(offsets == std::vector<uint64_t>{0, 1, 3});
  CHECK(ids == std::vector<int64_t>{2, 1, 3});
}

TEST_CASE("rows reports what its rows fill of the budget") {
  const Asked asked = of({5, 6, 7, 8, 9}, kRows);
  OpenedSampler sampler("rows", {{"max_tokens", int64_t{20}}});
  REQUIRE(sampler.plan(asked).has_value());
  const pliant_packing_report report = or_throw(sampler.report());
  CHECK(report.budget == 20);
  CHECK(report.unit == PLIANT_UNIT_TOKENS);
  CHECK(report.used == 35);
  CHECK(report.least_rows == 2);
}

}  // namespace rows_test
