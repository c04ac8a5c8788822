// same_sequences and cost_window on sets that show one thing each, and what they are refused with.
#include <doctest/doctest.h>

#include <limits>

#include "sampler_plugin.hpp"

namespace batch_shape_test {

using namespace pliant;
using namespace pliant::test;

namespace {

using Rows = std::vector<std::vector<int64_t>>;
using Drops = std::vector<std::pair<int64_t, std::string>>;

Planned planned(const std::string& name, OptionMap options, std::vector<int32_t> lengths, int64_t rows_per_batch) {
  Asked asked;
  asked.lengths = std::move(lengths);
  asked.rows_per_batch = rows_per_batch;
  options.try_emplace("max_tokens", int64_t{10});
  return or_throw(OpenedSampler(name, options).plan(asked));
}

std::string refused(const std::string& name, OptionMap options) {
  options.try_emplace("max_tokens", int64_t{10});
  const auto made = OpenedSampler::try_make(name, options);
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().status() == Status::kOutOfRange);
  return made.error().message();
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("rows of like number meet in a batch, and what is left over is parted") {
  const OptionMap equal{{"same_sequences", true}};
  // {0 1} {2} {3 4} {5}: pairs meet, then singles
  CHECK(planned("next_fit", equal, {5, 5, 9, 5, 5, 9}, 2).rows == Rows{{0, 1}, {3, 4}, {2}, {5}});
  // {0 1 2} {3} are left over: two rows of one, and what is left of the first
  CHECK(planned("next_fit", equal, {3, 3, 3, 9}, 2).rows == Rows{{3}, {0}, {1, 2}});
  // {0 1 2 3} {4 5}: two parts of two and two
  CHECK(planned("next_fit", equal, {2, 2, 2, 2, 5, 5}, 2).rows == Rows{{4, 5}, {0, 1}, {2, 3}});
}

TEST_CASE("equal batches keep, fill or drop the tail as they are told") {
  const std::vector<int32_t> lengths{5, 5, 5, 5, 5, 5};
  CHECK(planned("next_fit", {{"same_sequences", true}}, lengths, 2).rows == Rows{{0, 1}, {2, 3}, {4, 5}});
  CHECK(planned("next_fit", {{"same_sequences", true}, {"tail", "fill"}}, lengths, 2).rows ==
        Rows{{0, 1}, {2, 3}, {4}, {5}});
  const Planned dropped = planned("next_fit", {{"same_sequences", true}, {"tail", "drop"}}, lengths, 2);
  CHECK(dropped.rows == Rows{{0, 1}, {2, 3}});
  CHECK(dropped.dropped == Drops{{4, "incomplete_batch"}, {5, "incomplete_batch"}});
}

TEST_CASE("rows of like cost meet in a batch, in the order that they had") {
  // One sequence per row; the costs are 10, 90, 20, 80; one window of two batches.
  const OptionMap options{{"max_tokens", int64_t{90}},
                          {"max_sequences", int64_t{1}},
                          {"cost_window", int64_t{2}},
                          {"cost_window_length", int64_t{100}}};
  const Rows rows = planned("next_fit", options, {10, 90, 20, 80}, 2).rows;
  CHECK((rows == Rows{{0}, {2}, {1}, {3}} || rows == Rows{{1}, {3}, {0}, {2}}));
  // The short batch is the last and has the rows of least cost.
  const Rows odd = planned("next_fit", options, {90, 80, 10}, 2).rows;
  CHECK(odd == Rows{{0}, {1}, {2}});
}

TEST_CASE("the cost of a row grows with the squares of its lengths, by cost_window_length or quadratic_length") {
  // Rows of 8 tokens: {8}, {4 4}, {8}, {4 4}. By tokens they are alike.
  OptionMap options{{"max_tokens", int64_t{8}}, {"cost_window", int64_t{2}}, {"cost_window_length", int64_t{8}}};
  const std::vector<int32_t> lengths{8, 4, 4, 8, 4, 4};
  const Rows like{{0}, {3}, {1, 2}, {4, 5}};
  const Rows other{{1, 2}, {4, 5}, {0}, {3}};
  const Rows rows = planned("next_fit", options, lengths, 2).rows;
  CHECK((rows == like || rows == other));
  options.erase("cost_window_length");
  options["quadratic_length"] = int64_t{8};
  options["max_tokens"] = int64_t{16};
  const Rows by_quadratic = planned("next_fit", options, lengths, 2).rows;
  CHECK(by_quadratic.size() == 4);
  const Rows cut =
      planned("concat", {{"max_tokens", int64_t{8}}, {"cost_window", int64_t{2}}, {"cost_window_length", int64_t{8}}},
              lengths, 2)
          .rows;
  CHECK((cut == like || cut == other));
}

TEST_CASE("a window of any size, and a batch of more rows than there are, are fine") {
  const int64_t most = std::numeric_limits<int64_t>::max();
  const OptionMap options{{"cost_window", most}, {"cost_window_length", most}};
  CHECK(planned("next_fit", options, {5, 9, 4}, 1).rows.size() == 3);
  CHECK(planned("next_fit", options, {5, 9, 4}, most).rows == Rows{{0}, {1}, {2}});
  CHECK(planned("next_fit", options, {}, 2).rows.empty());
  CHECK(planned("next_fit", {{"same_sequences", true}}, {5, 4, 9}, most).rows == Rows{{2}, {0}, {1}});
  CHECK(planned("next_fit", {{"same_sequences", true}}, {}, 2).rows.empty());
}

TEST_CASE("options of batches that cannot go together are refused when the sampler is made") {
  for (const char* name : {"next_fit", "best_fit", "streaming", "padded_budget", "bucketed"}) {
    CAPTURE(name);
    CHECK(mentions(refused(name, {{"same_sequences", true}, {"min_sequences", int64_t{2}}}), "min_sequences = 2"));
    CHECK(mentions(
        refused(name, {{"same_sequences", true}, {"cost_window", int64_t{2}}, {"cost_window_length", int64_t{9}}}),
        "use one of them"));
    CHECK(mentions(refused(name, {{"cost_window", int64_t{2}}}), "set cost_window_length"));
    CHECK(mentions(refused(name, {{"cost_window_length", int64_t{2}}}), "has an effect only with cost_window"));
  }
  CHECK(mentions(refused("concat", {{"cost_window", int64_t{2}}}), "set cost_window_length"));
  CHECK(mentions(refused("concat", {{"cost_window_length", int64_t{2}}}), "has an effect only with cost_window"));
  CHECK(mentions(refused("padded_budget", {{"same_sequences", true}, {"sequences_multiple", int64_t{2}}}),
                 "sequences_multiple = 2 cannot be kept"));
}

TEST_CASE("streams have no batches to choose rows for") {
  Asked asked;
  asked.lengths = {1, 2};
  for (const char* name : {"next_fit", "streaming", "concat"}) {
    CAPTURE(name);
    const OptionMap windows{
        {"max_tokens", int64_t{9}}, {"cost_window", int64_t{2}}, {"cost_window_length", int64_t{9}}};
    OpenedSampler sampler(name, windows);
    const auto opened = sampler.open(asked);
    REQUIRE_FALSE(opened.has_value());
    CHECK(opened.error().status() == Status::kUnimplemented);
    CHECK(mentions(opened.error().message(), "cost_window = 0"));
    if (std::string(name) == "concat") continue;
    OpenedSampler equal(name, {{"max_tokens", int64_t{9}}, {"same_sequences", true}});
    const auto other = equal.open(asked);
    REQUIRE_FALSE(other.has_value());
    CHECK(mentions(other.error().message(), "same_sequences = false"));
  }
}

}  // namespace batch_shape_test
