// What a sequence counts against the budget: tokens, padded tokens, loss tokens or cost.
#include <doctest/doctest.h>

#include <limits>

#include "sampler_plugin.hpp"

namespace budget_unit_test {

using namespace pliant;
using namespace pliant::test;

namespace {

using Rows = std::vector<std::vector<int64_t>>;

const std::vector<std::string> kSumming{"next_fit", "best_fit", "streaming"};

Asked of(std::vector<int32_t> lengths, std::vector<int32_t> loss_tokens = {}) {
  Asked asked;
  asked.lengths = std::move(lengths);
  asked.loss_tokens = std::move(loss_tokens);
  return asked;
}

OptionMap loss(int64_t max_tokens, OptionMap more = {}) {
  more["max_tokens"] = max_tokens;
  more["budget_unit"] = "loss_tokens";
  more.try_emplace("order", "dataloader");
  return more;
}

std::string refused(const std::string& name, const OptionMap& options) {
  const auto made = OpenedSampler::try_make(name, options);
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().status() == Status::kOutOfRange);
  return made.error().message();
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a budget of loss tokens counts them, and at least one a sequence") {
  const Asked asked = of({900, 7, 7, 50, 3}, {4, 6, 0, 9, 0});
  CHECK(or_throw(OpenedSampler("next_fit", loss(10)).plan(asked)).rows == Rows{{0, 1}, {2, 3}, {4}});
  OpenedSampler best("best_fit", loss(10));
  CHECK(or_throw(best.plan(asked)).rows == Rows{{0, 1}, {2, 3}, {4}});
  const auto report = or_throw(best.report());
  CHECK(report.unit == PLIANT_UNIT_LOSS_TOKENS);
  CHECK(report.used == 21);
  CHECK(report.least_rows == 3);
}

TEST_CASE("where no loss tokens are given every token has a loss") {
  for (const std::string& name : kSumming) {
    CAPTURE(name);
    const Asked asked = of({4, 6, 7, 3, 1});
    OpenedSampler sampler(name, loss(10));
    const Planned plan = or_throw(sampler.plan(asked));
    CHECK(plan == or_throw(OpenedSampler(name, {{"max_tokens", int64_t{10}}, {"order", "dataloader"}}).plan(asked)));
    CHECK(or_throw(sampler.report()).used == 21);
  }
}

TEST_CASE("sequences of too many loss tokens are refused by name or dropped, however long they are") {
  for (const std::string& name : kSumming) {
    CAPTURE(name);
    const Asked asked = of({900, 30, 25}, {4, 11, 25});
    const auto plan = OpenedSampler(name, loss(10)).plan(asked);
    REQUIRE_FALSE(plan.has_value());
    CHECK(mentions(plan.error().message(),
                   "2 of 3 sequences have more than 10 loss tokens, the most that fit max_tokens = 10; ids (loss "
                   "tokens): 1 (11), 2 (25). Raise max_tokens, or set over_long = \"drop\""));
    const Planned dropped = or_throw(OpenedSampler(name, loss(10, {{"over_long", "drop"}})).plan(asked));
    CHECK(dropped.rows == Rows{{0}});
    CHECK(dropped.dropped == std::vector<std::pair<int64_t, std::string>>{{1, "too_long"}, {2, "too_long"}});
  }
}

TEST_CASE("loss tokens below zero or above the length are refused by their sequence") {
  for (const std::string& name : kSumming) {
    for (const int32_t bad : {-1, 6, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}) {
      CAPTURE(name);
      CAPTURE(bad);
      const Asked asked = of({4, 5}, {4, bad});
      const auto plan = OpenedSampler(name, loss(10)).plan(asked);
      REQUIRE_FALSE(plan.has_value());
      CHECK(mentions(plan.error().message(),
                     "sequence 1 has " + std::to_string(bad) + " loss tokens; with a length of 5 it can have 0 to 5"));
    }
    for (const int32_t bad : {0, -3}) {
      const auto plan = OpenedSampler(name, loss(10)).plan(of({4, bad}, {4, 0}));
      REQUIRE_FALSE(plan.has_value());
      CHECK(mentions(plan.error().message(), "sequence 1 has a length of " + std::to_string(bad)));
    }
  }
}

TEST_CASE("a stream refuses loss tokens that cannot be, or are too many, at their sequence") {
  for (const auto& bad : std::vector<std::pair<int32_t, std::string>>{
           {-1, "sequence 1 has -1 loss tokens; with a length of 50"},
           {51, "sequence 1 has 51 loss tokens; with a length of 50"},
           {11, "sequence 1 has 11 loss tokens, 10 fit a pack. Raise max_tokens"}}) {
    const Asked asked = of({4, 50}, {4, bad.first});
    OpenedSampler sampler("next_fit", loss(10));
    or_throw(sampler.open(asked));
    Planned rows;
    const auto next = sampler.next(4, rows);
    REQUIRE_FALSE(next.has_value());
    CHECK(mentions(next.error().message(), bad.second));
  }
}

TEST_CASE("a position saved under loss tokens does not go on with others") {
  for (const std::string& name : {std::string("next_fit"), std::string("streaming")}) {
    CAPTURE(name);
    Asked asked;
    for (int32_t i = 0; i < 200; ++i) {
      asked.lengths.push_back(50);
      asked.loss_tokens.push_back(1 + i * 7 % 9);
    }
    const OptionMap options =
        name == "next_fit" ? loss(10) : loss(10, {{"open_packs", int64_t{4}}, {"max_wait", int64_t{8}}});
    OpenedSampler sampler(name, options);
    or_throw(sampler.open(asked));
    Planned rows;
    REQUIRE(or_throw(sampler.next(1, rows)) == 1);
    OpenedSampler restored(name, options);
    or_throw(restored.instance().load(or_throw(sampler.instance().save())));
    Asked other = asked;
    for (int32_t& one : other.loss_tokens) ++one;
    const auto opened = restored.open(other);
    REQUIRE_FALSE(opened.has_value());
    CHECK(opened.error().status() == Status::kFailedPrecondition);
    CHECK(restored.open(asked).has_value());
  }
}

TEST_CASE("cost is what quadratic_length alone means, for sums and for padding") {
  for (const char* name : {"next_fit", "best_fit", "streaming", "padded_budget", "bucketed"}) {
    CAPTURE(name);
    const Asked asked = of({4, 2, 4, 4, 1, 3});
    const OptionMap alone{{"max_tokens", int64_t{12}}, {"quadratic_length", int64_t{8}}};
    OptionMap named = alone;
    named["budget_unit"] = "cost";
    OpenedSampler sampler(name, named);
    CHECK(or_throw(sampler.plan(asked)) == or_throw(OpenedSampler(name, alone).plan(asked)));
    CHECK(or_throw(sampler.report()).unit == PLIANT_UNIT_COST);
    CHECK(OpenedSampler(name, alone).instance().load(or_throw(sampler.instance().save())).has_value());
  }
}

TEST_CASE("units that make no sense with other options are refused when the sampler is made") {
  for (const std::string& name : kSumming) {
    CAPTURE(name);
    CHECK(mentions(refused(name, {{"max_tokens", int64_t{9}}, {"budget_unit", "cost"}}), "needs quadratic_length"));
    CHECK(mentions(refused(name, loss(9, {{"quadratic_length", int64_t{4}}})), "has no cost"));
    for (const char* over_long : {"truncate", "split"}) {
      CHECK(mentions(refused(name, loss(9, {{"over_long", over_long}})), "use over_long = \"error\" or \"drop\""));
    }
  }
  for (const char* name : {"padded_budget", "bucketed"}) {
    CHECK(mentions(refused(name, {{"max_tokens", int64_t{9}}, {"budget_unit", "cost"}}), "needs quadratic_length"));
  }
}

TEST_CASE("the units that a sampler has are in its table, so that the host names them") {
  const auto units = [](const std::string& name) {
    std::vector<std::string> words;
    const auto instance = or_throw(OpenedSampler::try_make(name, {{"max_tokens", int64_t{9}}}));
    for (const pliant_option& option : instance.plugin().options()) {
      if (std::string(option.key) != "budget_unit") continue;
      for (uint32_t i = 0; i < option.choice_count; ++i) words.emplace_back(option.choices[i]);
    }
    return words;
  };
  for (const std::string& name : kSumming) {
    CHECK(units(name) == std::vector<std::string>{"tokens", "loss_tokens", "cost"});
  }
  CHECK(units("padded_budget") == std::vector<std::string>{"padded_tokens", "cost"});
  CHECK(units("bucketed") == std::vector<std::string>{"padded_tokens", "cost"});
}

}  // namespace budget_unit_test
