// Saved positions of row streams: what is refused, and that a refusal changes nothing.
#include <doctest/doctest.h>

#include "sampler_plugin.hpp"

namespace stream_state_test {

using namespace pliant;
using namespace pliant::test;

namespace {

const OptionMap kOptions{
    {"max_tokens", int64_t{10}}, {"open_packs", int64_t{4}}, {"max_wait", int64_t{40}}, {"window", int64_t{12}}};

Asked some_sequences() {
  Asked asked;
  for (int32_t i = 0; i < 200; ++i) asked.lengths.push_back(1 + i * 7 % 9);
  return asked;
}

/// A streaming sampler that has given out 20 rows of `asked`.
void advance(OpenedSampler& sampler, const Asked& asked) {
  or_throw(sampler.open(asked));
  Planned rows;
  REQUIRE(or_throw(sampler.next(20, rows)) == 20);
}

std::vector<std::vector<int64_t>> next_rows(OpenedSampler& sampler) {
  Planned rows;
  (void)or_throw(sampler.next(5, rows));
  return rows.rows;
}

}  // namespace

TEST_CASE("a truncated, flipped or lengthened position is refused and the open stream goes on as if nothing was") {
  const Asked asked = some_sequences();
  OpenedSampler sampler("streaming", kOptions);
  advance(sampler, asked);
  const std::string saved = or_throw(sampler.instance().save());
  OpenedSampler untouched("streaming", kOptions);
  advance(untouched, asked);
  for (size_t size = 0; size < saved.size(); ++size) {
    CAPTURE(size);
    CHECK_FALSE(sampler.instance().load(saved.substr(0, size)).has_value());
    std::string flipped = saved;
    flipped[size] = static_cast<char>(flipped[size] ^ 0x10);
    CHECK_FALSE(sampler.instance().load(flipped).has_value());
  }
  CHECK_FALSE(sampler.instance().load(saved + "x").has_value());
  CHECK_FALSE(sampler.instance().load("").has_value());
  CHECK(or_throw(sampler.instance().save()) == saved);
  CHECK(next_rows(sampler) == next_rows(untouched));
}

TEST_CASE("the size of a position depends on what is open, not on how far the stream is") {
  Asked asked;
  asked.lengths.assign(100000, 4);
  OpenedSampler sampler("streaming", kOptions);
  or_throw(sampler.open(asked));
  Planned rows;
  (void)or_throw(sampler.next(100, rows));
  const size_t early = or_throw(sampler.instance().save()).size();
  (void)or_throw(sampler.next(40000, rows, 100000));
  CHECK(or_throw(sampler.instance().save()).size() == early);
  CHECK(early < 2000);
}

TEST_CASE("a position of another sampler, version or set of options is refused") {
  const Asked asked = some_sequences();
  OpenedSampler sampler("streaming", kOptions);
  advance(sampler, asked);
  const std::string saved = or_throw(sampler.instance().save());
  CHECK(OpenedSampler("next_fit", {{"max_tokens", int64_t{10}}}).instance().load(saved).error().status() ==
        Status::kDataLoss);
  OptionMap other = kOptions;
  other["max_tokens"] = int64_t{11};
  CHECK(OpenedSampler("streaming", other).instance().load(saved).error().status() == Status::kFailedPrecondition);
  std::string newer = saved;
  newer[newer.find("state 2") + 6] = '3';
  CHECK(OpenedSampler("streaming", kOptions).instance().load(newer).error().status() == Status::kDataLoss);
}

TEST_CASE("a position goes on in its own epoch, seed and data set only") {
  const Asked asked = some_sequences();
  OpenedSampler sampler("streaming", kOptions);
  advance(sampler, asked);
  const std::string saved = or_throw(sampler.instance().save());
  OpenedSampler restored("streaming", kOptions);
  or_throw(restored.instance().load(saved));
  Asked other = asked;
  other.epoch = 1;
  CHECK(restored.open(other).error().status() == Status::kFailedPrecondition);
  other = asked;
  other.seed = 9;
  CHECK(restored.open(other).error().status() == Status::kFailedPrecondition);
  other = asked;
  other.lengths.pop_back();
  CHECK(restored.open(other).error().status() == Status::kFailedPrecondition);
  other.lengths.assign(asked.lengths.size(), 1);
  CHECK(restored.open(other).error().message().find("that the data set lacks") != std::string::npos);
  or_throw(restored.open(asked));
  CHECK(next_rows(restored) == next_rows(sampler));
}

TEST_CASE("a row that does not fit the caller's arrays stays the next one") {
  Asked asked;
  asked.lengths = {4, 3, 2, 8};
  OpenedSampler sampler("next_fit", {{"max_tokens", int64_t{10}}});
  or_throw(sampler.open(asked));
  Planned rows;
  CHECK(sampler.next(4, rows, 2).error().status() == Status::kOutOfRange);
  CHECK(or_throw(sampler.next(4, rows, 3)) == 1);
  CHECK(or_throw(sampler.next(4, rows, 3)) == 1);
  CHECK(or_throw(sampler.next(4, rows, 3)) == 0);
  CHECK(rows.rows == std::vector<std::vector<int64_t>>{{0, 1, 2}, {3}});
}

TEST_CASE("options that need the whole epoch are named, and samplers that plan it whole have no stream") {
  const Asked asked = some_sequences();
  for (const OptionMap& more : {OptionMap{{"order", "random"}}, OptionMap{{"tail", "fill"}},
                                OptionMap{{"over_long", "drop"}}, OptionMap{{"min_sequences", int64_t{2}}}}) {
    OptionMap options = more;
    options["max_tokens"] = int64_t{10};
    OpenedSampler sampler("next_fit", options);
    const auto opened = sampler.open(asked);
    REQUIRE_FALSE(opened.has_value());
    CHECK(opened.error().status() == Status::kUnimplemented);
    CHECK(opened.error().message().find(more.begin()->first) != std::string::npos);
  }
  OpenedSampler whole("best_fit", {{"max_tokens", int64_t{10}}});
  const auto& record = whole.instance().plugin().record();
  const bool none = record.extension == nullptr || whole.stream() == nullptr;
  CHECK(none);
}

TEST_CASE("a stream names the sequence that it cannot use") {
  Asked asked;
  asked.lengths = {4, 11, 2};
  OpenedSampler sampler("next_fit", {{"max_tokens", int64_t{10}}});
  or_throw(sampler.open(asked));
  Planned rows;
  CHECK(sampler.next(4, rows).error().message().find("sequence 1 has 11 tokens, 10 fit a pack") != std::string::npos);
  asked.lengths = {4, 0, 2};
  or_throw(sampler.open(asked));
  CHECK(sampler.next(4, rows).error().message().find("sequence 1 has a length of 0 tokens") != std::string::npos);
}

}  // namespace stream_state_test
