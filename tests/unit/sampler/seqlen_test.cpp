// Sampler `seqlen`, example by example, through the plugin host.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "sampler_plugin.hpp"

namespace seqlen_test {

using namespace pliant;
using namespace pliant::test;

namespace {

using Rows = std::vector<std::vector<int64_t>>;

OptionMap budget(int64_t max_tokens, OptionMap more = {}) {
  more.emplace("max_tokens", max_tokens);
  return more;
}

Planned planned(const OptionMap& options, const Asked& asked) {
  return or_throw(OpenedSampler("seqlen", options).plan(asked));
}

Asked of(std::vector<int32_t> lengths, int64_t rows_per_batch = 1) {
  Asked asked;
  asked.lengths = std::move(lengths);
  asked.rows_per_batch = rows_per_batch;
  return asked;
}

Error refused(const OptionMap& options, const Asked& asked) {
  auto answer = OpenedSampler("seqlen", options).plan(asked);
  REQUIRE_FALSE(answer.has_value());
  return answer.error();
}

bool mentions(const Error& error, const std::string& text) {
  return error.message().find(text) != std::string::npos;
}

std::vector<std::string> reasons(const Planned& plan) {
  std::vector<std::string> words;
  for (const auto& [id, word] : plan.dropped) words.push_back(word);
  return words;
}

}  // namespace

TEST_CASE("seqlen packs in the given order and, as the reference, never uses the last sequence") {
  const Planned plan = planned(budget(30), of(std::vector<int32_t>(10, 10)));
  CHECK(plan.rows == Rows{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}});
  CHECK(plan.dropped == std::vector<std::pair<int64_t, std::string>>{{9, "last_sequence"}});
}

TEST_CASE("seqlen in strict mode keeps the last sequence and a short last batch") {
  const Planned plan = planned(budget(30, {{"strict", true}}), of(std::vector<int32_t>(10, 10), 3));
  CHECK(plan.rows == Rows{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9}});
  CHECK(plan.dropped.empty());
}

TEST_CASE("seqlen reports packs that do not fill the last batch") {
  const Planned plan = planned(budget(10), of(std::vector<int32_t>(8, 10), 3));
  CHECK(plan.rows == Rows{{0}, {1}, {2}, {3}, {4}, {5}});
  CHECK(plan.dropped == std::vector<std::pair<int64_t, std::string>>{{7, "last_sequence"}, {6, "incomplete_batch"}});
}

TEST_CASE("seqlen sorts by length, equal lengths by id") {
  const Planned plan =
      planned(budget(12, {{"sequence_picking_order", "seqlen"}}), of({5, 3, 9, 1, 1, 7, 2, 8, 3, 3, 6, 4}));
  CHECK(plan.rows == Rows{{3, 4, 6, 1, 8}, {9, 11, 0}, {10}, {5}, {7}});
}

TEST_CASE("seqlen deals sequences out in turn when packs of a batch must have the same size") {
  const OptionMap options =
      budget(12, {{"sequence_picking_order", "seqlen"}, {"required_microbatches_of_same_size", true}});
  CHECK(planned(options, of({5, 3, 9, 1, 1, 7, 2, 8, 3, 3, 6, 4}, 2)).rows ==
        Rows{{3, 6, 8, 11}, {4, 1, 9, 0}, {10}, {5}});
}

TEST_CASE("seqlen's random order is Python's, and another one in each epoch") {
  const OptionMap options = budget(12, {{"sequence_picking_order", "random"}});
  Asked asked = of({5, 3, 9, 1, 1, 7, 2, 8, 3, 3, 6, 4});
  asked.seed = 7;
  CHECK(planned(options, asked).rows == Rows{{7, 11}, {3, 10, 8, 4}, {9, 1, 0}, {6, 2}});
  const Planned first = planned(options, asked);
  CHECK(first == planned(options, asked));
  asked.epoch = 1;
  CHECK_FALSE(first == planned(options, asked));
}

TEST_CASE("a pack below min_batch_size ends the epoch, and the rest is reported") {
  const Planned plan =
      planned(budget(100, {{"min_batch_size", int64_t{3}}}), of({10, 10, 10, 90, 90, 10, 10, 10, 10, 10, 10}));
  CHECK(plan.rows == Rows{{0, 1, 2}});
  CHECK(reasons(plan) == std::vector<std::string>(8, "below_min_batch_size"));
}

TEST_CASE("in strict mode a pack below min_batch_size is left out and packing goes on") {
  const Planned plan = planned(budget(100, {{"min_batch_size", int64_t{3}}, {"strict", true}}),
                               of({10, 10, 10, 90, 90, 10, 10, 10, 10, 10, 10}));
  CHECK(plan.rows == Rows{{0, 1, 2}, {6, 7, 8, 9, 10}});
  CHECK(plan.dropped.size() == 3);
  CHECK(reasons(plan) == std::vector<std::string>(3, "below_min_batch_size"));
}

TEST_CASE("an over-long sequence is an error that names it and says what to do") {
  const Error error = refused(budget(40), of({10, 1000, 10, 41, 10}));
  CHECK(error.status() == Status::kInvalidArgument);
  CHECK(error.origin() == Origin::kInput);
  CHECK(error.message() ==
        "sampler 'seqlen': 2 of 5 sequences are longer than max_tokens = 40; ids (tokens): 1 (1000), 3 (41). Split "
        "them, raise "
        "max_tokens to 1000, or set over_long = \"drop\" to leave them out");
}

TEST_CASE("the error for very many over-long sequences stays short") {
  const Error error = refused(budget(1), of(std::vector<int32_t>(5000, std::numeric_limits<int32_t>::max())));
  CHECK(mentions(error, "5000 of 5000"));
  CHECK(mentions(error, "4 (2147483647) and 4995 more. Split them"));
  CHECK(mentions(error, "to leave them out"));
}

TEST_CASE("over_long drop leaves them out by name") {
  const Planned plan = planned(budget(40, {{"over_long", "drop"}}), of({10, 1000, 10, 10, 1000, 10, 10, 10}));
  CHECK(plan.rows == Rows{{0, 2, 3, 5}, {6}});
  CHECK(reasons(plan) == std::vector<std::string>{"too_long", "too_long", "last_sequence"});
}

TEST_CASE("ids given twice are used twice and counted twice") {
  Asked asked = of({10, 50, 20});
  asked.has_ids = true;
  asked.ids = {2, 2, 1, 0, 1, 2};
  const Planned plan = planned(budget(40, {{"over_long", "drop"}, {"strict", true}}), asked);
  CHECK(plan.rows == Rows{{2, 2}, {0, 2}});
  CHECK(plan.dropped == std::vector<std::pair<int64_t, std::string>>{{1, "too_long"}, {1, "too_long"}});
}

TEST_CASE("an id outside the data set is refused with its position") {
  Asked asked = of({10, 10});
  asked.has_ids = true;
  asked.ids = {0, 99};
  const Error error = refused(budget(30), asked);
  CHECK(error.status() == Status::kOutOfRange);
  CHECK(mentions(error, "sequence id 99 at position 1: the data set has 2 sequences"));
  asked.ids = {-1};
  CHECK(refused(budget(30), asked).status() == Status::kOutOfRange);
}

TEST_CASE("a negative length and a batch without rows are refused") {
  CHECK(mentions(refused(budget(30), of({10, -3})), "sequence 1 has a length of -3"));
  CHECK(refused(budget(30), of({10, 10}, 0)).status() == Status::kInvalidArgument);
}

TEST_CASE("too few sequences for one batch is an error in reference mode and a short batch in strict mode") {
  for (const std::vector<int32_t>& lengths : {std::vector<int32_t>{}, std::vector<int32_t>{10}}) {
    const Error error = refused(budget(30), of(lengths));
    CHECK(error.status() == Status::kFailedPrecondition);
    CHECK(mentions(error, "strict = true"));
  }
  CHECK(planned(budget(30, {{"strict", true}}), of({10}, 8)).rows == Rows{{0}});
  CHECK(planned(budget(30, {{"strict", true}}), of({}, 8)).rows.empty());
}

TEST_CASE("strict mode with packs of the same size keeps what does not go round, one sequence a pack") {
  const OptionMap options = budget(20, {{"strict", true}, {"required_microbatches_of_same_size", true}});
  const Planned plan = planned(options, of(std::vector<int32_t>(9, 10), 3));
  CHECK(plan.rows == Rows{{0, 3}, {1, 4}, {2, 5}, {6}, {7}, {8}});
  CHECK(planned(options, of(std::vector<int32_t>(8, 10), 3)).rows == Rows{{0, 3}, {1, 4}, {2, 5}, {6}, {7}});
}

TEST_CASE("the longest sequences and the largest budgets do not overflow the sum of a pack") {
  const int32_t huge = std::numeric_limits<int32_t>::max();
  const Asked asked = of({huge, huge - 1, 1, 1, huge});
  CHECK(planned(budget(huge, {{"strict", true}}), asked).rows == Rows{{0}, {1, 2}, {3}, {4}});
  const int64_t most = std::numeric_limits<int64_t>::max();
  CHECK(planned(budget(most, {{"strict", true}}), asked).rows == Rows{{0, 1, 2, 3, 4}});
}

TEST_CASE("a minimum above the maximum is refused when the sampler is made") {
  const auto made =
      OpenedSampler::try_make("seqlen", budget(10, {{"min_batch_size", int64_t{4}}, {"max_batch_size", int64_t{2}}}));
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().status() == Status::kOutOfRange);
  CHECK(mentions(made.error(), "min_batch_size = 4 is above max_batch_size = 2"));
}

TEST_CASE("every drop reason has a word and the next one has none") {
  OpenedSampler sampler("seqlen", budget(10));
  const auto& slots = sampler.instance().table<pliant_batch_sampler>();
  int32_t reason = 0;
  for (const char* word : {"too_long", "below_min_batch_size", "last_sequence", "incomplete_batch"}) {
    CHECK(std::string(slots.drop_reason(sampler.instance().self(), reason++)) == word);
  }
  CHECK(slots.drop_reason(sampler.instance().self(), 4) == nullptr);
  CHECK(slots.drop_reason(sampler.instance().self(), -1) == nullptr);
}

}  // namespace seqlen_test
