// The packing samplers on sets that show one thing each, and at extremes.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "sampler_plugin.hpp"

namespace packing_test {

using namespace pliant;
using namespace pliant::test;

namespace {

using Rows = std::vector<std::vector<int64_t>>;
using Drops = std::vector<std::pair<int64_t, std::string>>;

const std::vector<std::string> kPackers{"next_fit", "best_fit", "streaming", "padded_budget", "bucketed"};

Asked of(std::vector<int32_t> lengths, int64_t rows_per_batch = 1) {
  Asked asked;
  asked.lengths = std::move(lengths);
  asked.rows_per_batch = rows_per_batch;
  return asked;
}

OptionMap budget(int64_t max_tokens, OptionMap more = {}) {
  more["max_tokens"] = max_tokens;
  if (more.count("order") == 0) more["order"] = "dataloader";
  return more;
}

Planned planned(const std::string& name, const OptionMap& options, const Asked& asked) {
  return or_throw(OpenedSampler(name, options).plan(asked));
}

std::string refusal(const std::string& name, const OptionMap& options, const Asked& asked) {
  const auto plan = OpenedSampler(name, options).plan(asked);
  REQUIRE_FALSE(plan.has_value());
  CHECK((plan.error().status() == Status::kInvalidArgument || plan.error().status() == Status::kOutOfRange));
  return plan.error().message();
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("next_fit closes a pack when the next sequence does not fit") {
  CHECK(planned("next_fit", budget(10), of({4, 6, 7, 3, 1})).rows == Rows{{0, 1}, {2, 3}, {4}});
  CHECK(planned("next_fit", budget(10, {{"max_sequences", int64_t{2}}}), of({1, 1, 1})).rows == Rows{{0, 1}, {2}});
}

TEST_CASE("best_fit puts each sequence into the fullest pack that has room") {
  CHECK(planned("best_fit", budget(10), of({4, 7, 6, 3, 2, 8})).rows == Rows{{0, 2}, {1, 3}, {4, 5}});
  CHECK(planned("best_fit", budget(10, {{"order", "seqlen"}}), of({4, 7, 6, 3, 2, 8})).rows ==
        Rows{{5, 4}, {1, 3}, {2, 0}});
}

TEST_CASE("streaming fills several packs side by side, packs a window at once, and keeps the emptiest packs open") {
  const auto streamed = [](int64_t window, std::vector<int32_t> lengths) {
    const OptionMap two =
        budget(10, {{"open_packs", int64_t{2}}, {"max_wait", int64_t{100}}, {"window", int64_t{window}}});
    return planned("streaming", two, of(std::move(lengths))).rows;
  };
  CHECK(streamed(1, {6, 7, 3, 5, 4}) == Rows{{1, 2}, {0, 4}, {3}});
  CHECK(streamed(5, {6, 7, 3, 5, 4}) == Rows{{4, 0}, {2, 1}, {3}});
  CHECK(streamed(3, {6, 7, 3, 4, 9, 8, 5, 5, 2}) == Rows{{2, 1}, {0, 3}, {6, 7}, {5, 8}, {4}});
}

TEST_CASE("concat cuts sequences where a row is full") {
  const Planned plan = planned("concat", budget(10), of({4, 13, 5}));
  CHECK(plan.rows == Rows{{0, 1}, {1, 2}, {2}});
  CHECK(plan.pieces == decltype(plan.pieces){{{0, 4}, {0, 6}}, {{6, 7}, {0, 3}}, {{3, 2}}});
  CHECK(plan.sequence_count == 3);
  const Planned cut = planned("concat", budget(10, {{"tail", "drop"}}), of({4, 13, 5, 30}, 4));
  CHECK(cut.rows == Rows{{0, 1}, {1, 2}, {2, 3}, {3}});
  CHECK(cut.sequence_count == 4);
  CHECK(cut.truncated_count == 1);
}

TEST_CASE("padded_budget counts padding, rounds lengths up and keeps multiples of sequences") {
  CHECK(planned("padded_budget", budget(12), of({4, 4, 3, 6, 1})).rows == Rows{{0, 1, 2}, {3, 4}});
  CHECK(planned("padded_budget", budget(16, {{"length_multiple", int64_t{8}}}), of({3, 3, 3})).rows ==
        Rows{{0, 1}, {2}});
  CHECK(planned("padded_budget", budget(10, {{"sequences_multiple", int64_t{2}}}), of({2, 2, 2, 2, 2, 2, 2})).rows ==
        Rows{{0, 1, 2, 3}, {4, 5}, {6}});
  const std::vector<std::string> shapes{"8x2", "4x4"};
  CHECK(planned("padded_budget", budget(16, {{"shapes", shapes}}), of({3, 2, 4, 1, 1, 5, 1, 1})).rows ==
        Rows{{0, 1, 2, 3}, {4, 5}, {6, 7}});
}

TEST_CASE("shapes that are no shapes, or too large, are refused") {
  for (const char* text : {"", "8", "8x", "x8", "8x0", "0x8", "-1x8", "8x8x8", "8 x 8", "17x1", "8x3"}) {
    CAPTURE(text);
    const auto made =
        OpenedSampler::try_make("padded_budget", budget(16, {{"shapes", std::vector<std::string>{text}}}));
    REQUIRE_FALSE(made.has_value());
    CHECK(mentions(made.error().message(), "shapes: '" + std::string(text) + "'"));
  }
}

TEST_CASE("bucketed packs sequences of like length together") {
  const OptionMap two = budget(8, {{"bucket_edges", std::vector<int64_t>{2}}});
  CHECK(planned("bucketed", two, of({1, 4, 2, 3, 1, 8, 2, 1})).rows == Rows{{1, 3}, {0, 2, 4, 6}, {7}, {5}});
  const auto made = OpenedSampler::try_make("bucketed", budget(8, {{"bucket_edges", std::vector<int64_t>{4, 4}}}));
  REQUIRE_FALSE(made.has_value());
  CHECK(mentions(made.error().message(), "4 is followed by 4"));
}

TEST_CASE("a quadratic term makes long sequences count more") {
  // 4 + 4*4/8 = 6; 2 + ceil(4/8) = 3
  const OptionMap options = budget(9, {{"quadratic_length", int64_t{8}}});
  CHECK(planned("next_fit", options, of({4, 2, 4, 4})).rows == Rows{{0, 1}, {2}, {3}});
  CHECK(mentions(refusal("next_fit", options, of({6})), "more than 5 tokens, the most that fit max_tokens = 9"));
}

TEST_CASE("sequences that are too long are refused by name, dropped, truncated or split") {
  for (const std::string& name : kPackers) {
    CAPTURE(name);
    CHECK(
        mentions(refusal(name, budget(10), of({4, 25, 11})),
                 "2 of 3 sequences have more than 10 tokens, the most that fit max_tokens = 10; ids (tokens): 1 (25), "
                 "2 (11)"));
    const Planned dropped = planned(name, budget(10, {{"over_long", "drop"}}), of({4, 25, 11}));
    CHECK(dropped.rows == Rows{{0}});
    CHECK(dropped.dropped == Drops{{1, "too_long"}, {2, "too_long"}});
    const Planned truncated = planned(name, budget(10, {{"over_long", "truncate"}}), of({4, 25, 11}));
    CHECK(truncated.sequence_count == 3);
    CHECK(truncated.truncated_count == 2);
    const Planned split = planned(name, budget(10, {{"over_long", "split"}}), of({4, 25, 11}));
    CHECK(split.sequence_count == 3);
    CHECK(split.truncated_count == 0);
    int64_t tokens = 0;
    for (const auto& row : split.pieces) {
      for (const auto& piece : row) tokens += piece.second;
    }
    CHECK(tokens == 40);
  }
}

TEST_CASE("a split that could lose pieces is refused when the sampler is made") {
  for (const OptionMap& more : {OptionMap{{"tail", "drop"}}, OptionMap{{"min_sequences", int64_t{2}}}}) {
    OptionMap options = budget(10, more);
    options["over_long"] = "split";
    const auto made = OpenedSampler::try_make("next_fit", options);
    REQUIRE_FALSE(made.has_value());
    CHECK(made.error().status() == Status::kOutOfRange);
  }
}

TEST_CASE("lengths of zero and below are refused by their id") {
  std::vector<std::string> all = kPackers;
  all.push_back("concat");
  for (const std::string& name : all) {
    for (const int32_t bad : {0, -1, std::numeric_limits<int32_t>::min()}) {
      CAPTURE(name);
      CAPTURE(bad);
      CHECK(mentions(refusal(name, budget(10), of({4, bad, 5})), "sequence 1 has a length of " + std::to_string(bad)));
    }
  }
}

TEST_CASE("the tail is kept, filled by parting packs, or dropped and listed") {
  const Asked asked = of({3, 3, 3, 3, 3, 3, 3, 3}, 3);
  CHECK(planned("next_fit", budget(6), asked).rows.size() == 4);
  const Planned filled = planned("next_fit", budget(6, {{"tail", "fill"}}), asked);
  CHECK(filled.rows == Rows{{0, 1}, {2, 3}, {4, 5}, {6}, {7}});
  const Planned whole = planned("next_fit", budget(12, {{"tail", "fill"}}), asked);
  CHECK(whole.rows == Rows{{0, 1}, {2, 3}, {4, 5, 6, 7}});
  const Planned dropped = planned("next_fit", budget(6, {{"tail", "drop"}}), asked);
  CHECK(dropped.rows.size() == 3);
  CHECK(dropped.dropped == Drops{{6, "incomplete_batch"}, {7, "incomplete_batch"}});
}

TEST_CASE("no sequences make no rows, and one makes one") {
  std::vector<std::string> all = kPackers;
  all.push_back("concat");
  for (const std::string& name : all) {
    CAPTURE(name);
    CHECK(planned(name, budget(10), of({})).rows.empty());
    CHECK(planned(name, budget(10), of({10})).rows == Rows{{0}});
  }
}

TEST_CASE("a million sequences of one token in a budget of a thousand million make one pack") {
  for (const std::string& name : kPackers) {
    CAPTURE(name);
    const Planned plan = planned(name, budget(1000000000), of(std::vector<int32_t>(1000000, 1)));
    REQUIRE(plan.rows.size() == 1);
    CHECK(plan.rows[0].size() == 1000000);
  }
}

TEST_CASE("sequences of exactly the budget have a pack each, the longest that there can be too") {
  constexpr int32_t kHuge = std::numeric_limits<int32_t>::max();
  for (const std::string& name : kPackers) {
    for (const int32_t most : {1, 8192, kHuge}) {
      CAPTURE(name);
      CAPTURE(most);
      CHECK(planned(name, budget(most), of({most, most, most})).rows.size() == 3);
    }
    const Planned mixed = planned(name, budget(kHuge, {{"quadratic_length", int64_t{1}}}), of({1, 2, 3}));
    CHECK(mixed.sequence_count == 3);
    CHECK(mentions(refusal(name, budget(kHuge, {{"quadratic_length", int64_t{1}}}), of({kHuge})), "1 of 1 sequences"));
  }
}

TEST_CASE("options that cannot go together are refused when the sampler is made") {
  const auto refused = [](const std::string& name, OptionMap options) {
    const auto made = OpenedSampler::try_make(name, options);
    REQUIRE_FALSE(made.has_value());
    CHECK(made.error().status() == Status::kOutOfRange);
    return made.error().message();
  };
  CHECK(mentions(refused("next_fit", budget(8, {{"min_sequences", int64_t{4}}, {"max_sequences", int64_t{2}}})),
                 "min_sequences = 4 is above max_sequences = 2"));
  CHECK(mentions(refused("next_fit", budget(1, {{"quadratic_length", int64_t{5}}})), "has no room for one token"));
  CHECK(mentions(refused("streaming", budget(8, {{"open_packs", int64_t{8}}, {"max_wait", int64_t{15}}})),
                 "raise it to 16"));
  CHECK(mentions(refused("padded_budget", budget(7, {{"length_multiple", int64_t{8}}})), "no sequence fits"));
}

TEST_CASE("after a refused epoch there are no rows, and the next epoch is as from a new sampler") {
  for (const std::string& name : kPackers) {
    CAPTURE(name);
    OpenedSampler sampler(name, budget(10));
    const Planned plan = or_throw(sampler.plan(of({4, 6, 7})));
    CHECK_FALSE(sampler.plan(of({4, 11})).has_value());
    uint64_t offsets[2] = {};
    pliant_error error = plugin::fresh_error();
    const auto& slots = sampler.instance().table<pliant_batch_sampler>();
    CHECK(slots.rows(sampler.instance().self(), 0, 1, offsets, nullptr, 0, &error) == PLIANT_OUT_OF_RANGE);
    CHECK(or_throw(sampler.plan(of({4, 6, 7}))) == plan);
  }
}

TEST_CASE("the number of threads changes neither rows nor saved states") {
  Asked asked;
  for (int32_t i = 0; i < 200000; ++i) asked.lengths.push_back(1 + (i * 7919) % 300);
  asked.seed = 5;
  for (const std::string name : {"next_fit", "best_fit", "streaming"}) {
    for (const std::string order : {"dataloader", "random", "seqlen"}) {
      CAPTURE(name);
      CAPTURE(order);
      OpenedSampler one(name, budget(1000, {{"order", order}}));
      const Planned plan = or_throw(one.plan(asked));
      CHECK(plan.sequence_count == asked.lengths.size());
      for (const int64_t threads : {0, 2, 5, 8}) {
        OpenedSampler several(name, budget(1000, {{"order", order}, {"threads", threads}}));
        or_throw(several.instance().load(or_throw(one.instance().save())));
        CHECK((or_throw(several.plan(asked)) == plan));
      }
    }
  }
}

TEST_CASE("rows are fetched in portions, with offsets alone or with ids, and room is checked") {
  for (const std::string& name : kPackers) {
    CAPTURE(name);
    OpenedSampler sampler(name, budget(10));
    const Planned plan = or_throw(sampler.plan(of({4, 6, 7, 3, 1, 9, 2, 8, 5, 5})));
    const auto& slots = sampler.instance().table<pliant_batch_sampler>();
    pliant_error error = plugin::fresh_error();
    for (uint64_t first = 0; first < plan.rows.size(); ++first) {
      uint64_t offsets[3] = {};
      std::vector<int64_t> ids(10, -1);
      const uint64_t count = std::min<uint64_t>(2, plan.rows.size() - first);
      CHECK(slots.rows(sampler.instance().self(), first, count, offsets, nullptr, 0, &error) == PLIANT_OK);
      CHECK(slots.rows(sampler.instance().self(), first, count, offsets, ids.data(), offsets[count] - 1, &error) ==
            PLIANT_OUT_OF_RANGE);
      CHECK(slots.rows(sampler.instance().self(), first, count, offsets, ids.data(), offsets[count], &error) ==
            PLIANT_OK);
      CHECK(std::vector<int64_t>(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(offsets[1])) ==
            plan.rows[first]);
      CHECK(std::count(ids.begin(), ids.end(), -1) == static_cast<std::ptrdiff_t>(10 - offsets[count]));
    }
  }
}

TEST_CASE("a request for no sequence of a data set has no rows") {
  for (const char* name : {"fixed", "next_fit", "best_fit", "streaming", "padded_budget", "bucketed", "concat"}) {
    CAPTURE(name);
    Asked asked;
    asked.lengths = {3, 4};
    asked.has_ids = true;
    const Planned plan = or_throw(OpenedSampler(name, {{"max_tokens", int64_t{10}}}).plan(asked));
    CHECK(plan.rows.empty());
    CHECK(plan.dropped.empty());
  }
}

}  // namespace packing_test
