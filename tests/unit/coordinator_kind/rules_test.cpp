// The rules that answers of coordinators are held against.
#include <doctest/doctest.h>

#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "pliant/abi/accelerator.h"
#include "pliant/sdk/coordinator_rules.hpp"

using namespace pliant::sdk;
using List = std::vector<pliant_action>;
using Rule = CoordinatorRule;

namespace {

pliant_action gather(uint32_t parameter, uint32_t group = 1, uint64_t place = PLIANT_ANY_PLACE) {
  return {PLIANT_ACTION_GATHER, parameter, group, 0, place};
}
pliant_action about(uint32_t kind, uint32_t parameter, uint32_t group = 0) {
  return {kind, parameter, group, 0, PLIANT_ANY_PLACE};
}
pliant_action wait(uint32_t parameter) {
  return about(PLIANT_ACTION_WAIT, parameter);
}
pliant_action release(uint32_t parameter) {
  return about(PLIANT_ACTION_RELEASE, parameter);
}
pliant_action reduce(uint32_t parameter, uint32_t group = 1) {
  return about(PLIANT_ACTION_REDUCE, parameter, group);
}

/// A root that owns parameter 0, and module 1 that owns 1 (frozen) and 2 (used unannounced) and uses 0, too.
Model family() {
  Model model;
  model.parameters = {{100, 512, false, false, false, PLIANT_F32},
                      {100, 512, true, false, false, PLIANT_F32},
                      {0, 0, false, true, true, PLIANT_F32}};
  model.modules = {{{0}, {}, {1}, false}, {{1, 2}, {0}, {}, false}};
  return model;
}

Visit visit(uint32_t module, bool backward = false) {
  Visit made;
  made.module = module;
  made.backward = backward;
  return made;
}

/// In a pass with both modules entered and everything whole.
struct Inside : CoordinatorRules {
  explicit Inside(Model model = family()) : CoordinatorRules(std::move(model)) {
    REQUIRE_FALSE(begin_pass(true, {}));
    REQUIRE_FALSE(enter(visit(0), List{gather(0), wait(0)}));
    REQUIRE_FALSE(enter(visit(1), List{gather(1), gather(2), wait(1), wait(2)}));
  }
};

void check(CoordinatorRules& rules, const CoordinatorRules::Wrong& wrong, Rule rule, const std::string& part) {
  REQUIRE(wrong.has_value());
  CAPTURE(*wrong);
  CHECK(rules.broken() == rule);
  CHECK(wrong->find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("an action of no kind, about no parameter of the model or with unknown flags is wrong in its form") {
  CoordinatorRules rules(family());
  check(rules, rules.begin_pass(true, List{about(9, 0)}), Rule::kForm, "no action of kind 9");
  check(rules, rules.begin_pass(true, List{about(0, 0)}), Rule::kForm, "no action of kind 0");
  check(rules, rules.begin_pass(true, List{gather(3)}), Rule::kForm, "no parameter 3");
  check(rules, rules.begin_pass(true, List{about(PLIANT_ACTION_DROP_TRACE, 0)}), Rule::kForm, "names one");
  pliant_action odd = gather(0);
  odd.flags = 2;
  check(rules, rules.begin_pass(true, List{odd}), Rule::kForm, "flags 2 of parameter 0");
  check(rules, rules.begin_pass(true, List{about(PLIANT_ACTION_LOAD, 0)}), Rule::kTier, "there is no tier");
  CHECK_FALSE(rules.begin_pass(true, List{about(PLIANT_ACTION_DROP_TRACE, PLIANT_NO_PARAMETER),
                                          about(PLIANT_ACTION_BOUND_WAITS, PLIANT_NO_PARAMETER)}));
}

TEST_CASE("a shard is moved to and from a tier that there is, and no other") {
  Model model = family();
  model.tiers = 1;
  CoordinatorRules rules(model);
  const auto moves = [](uint32_t kind, uint64_t tier) { return List{{kind, 0, 0, 0, tier}}; };
  CHECK_FALSE(rules.begin_pass(true, moves(PLIANT_ACTION_LOAD, 0)));
  CHECK_FALSE(rules.begin_pass(true, moves(PLIANT_ACTION_STORE, 0)));
  check(rules, rules.begin_pass(true, moves(PLIANT_ACTION_STORE, 1)), Rule::kTier, "tier 1, and there is no such tier");
}

TEST_CASE("a reduce lingers where the host offers it, and with all of its group") {
  const auto leaves = [](CoordinatorRules& rules, uint32_t first, uint32_t second) {
    const std::vector<uint32_t> complete{0, 1};
    List both{reduce(0), reduce(1)};
    both[0].flags = first;
    both[1].flags = second;
    Visit left = visit(1, true);
    left.complete = complete;
    return rules.leave(left, both);
  };
  Model model = family();
  model.parameters[1].frozen = false;
  Inside before(model);
  check(before, leaves(before, PLIANT_ACTION_LINGER, PLIANT_ACTION_LINGER), Rule::kForm, "flags 2 of parameter 0");
  model.reduce_flags = PLIANT_ACTION_LINGER;
  Inside rules(model);
  check(rules, leaves(rules, PLIANT_ACTION_LINGER, 0), Rule::kForm, "reduces of group 1 have different flags");
  CHECK_FALSE(leaves(rules, PLIANT_ACTION_LINGER, PLIANT_ACTION_LINGER));
}

TEST_CASE("a module is not entered before all that it uses is gathered and waited for") {
  CoordinatorRules rules(family());
  REQUIRE_FALSE(rules.begin_pass(true, {}));
  check(rules, rules.enter(visit(1), List{gather(0), gather(1), wait(0), wait(1)}), Rule::kUse,
        "entering module 1 forward, the module uses parameter 2, which is not gathered");
  rules.reset();
  check(rules, rules.enter(visit(0, true), List{gather(0)}), Rule::kUse,
        "entering module 0 backward, the module uses parameter 0, which nothing has waited for");
  rules.reset();
  check(rules, rules.enter(visit(0), List{wait(0), gather(0)}), Rule::kWait, "action 0: it waits for parameter 0");
}

TEST_CASE("nothing is gathered that is whole, and nothing released that is not or that is still used") {
  Inside rules;
  check(rules, rules.enter(visit(0), List{gather(0)}), Rule::kGather, "whole already");
  REQUIRE_FALSE(rules.leave(visit(0), {}));  // entered twice
  check(rules, rules.leave(visit(1), List{release(1), release(1)}), Rule::kRelease, "which is not gathered");
  check(rules, rules.end_pass(List{release(0)}), Rule::kRelease, "still entered");
  check(rules, rules.end_pass(List{release(1), gather(1), release(1)}), Rule::kRelease, "nothing has waited for");
}

TEST_CASE("what modules use unannounced stays whole until the step ends") {
  Inside rules;
  check(rules, rules.leave(visit(1), List{release(2)}), Rule::kRelease, "unannounced");
  REQUIRE_FALSE(rules.leave(visit(0), List{release(0), release(1)}));
  REQUIRE_FALSE(rules.end_pass({}));
  CHECK_FALSE(rules.end_step(List{release(2)}));
}

TEST_CASE("a list that is refused leaves everything as it was") {
  Inside rules;
  CHECK(rules.whole_bytes() == 1024);
  CHECK(rules.leave(visit(1), List{release(1), release(0)}).has_value());
  CHECK(rules.is_whole(1));
  CHECK(rules.whole_bytes() == 1024);
  CHECK_FALSE(rules.end_pass(List{release(1)}));
  CHECK_FALSE(rules.is_whole(1));
  CHECK(rules.whole_bytes() == 512);
}

TEST_CASE("at the end of a step nothing stays whole, also when a pass was given up") {
  Inside rules;
  check(rules, rules.end_step(List{release(0), release(1)}), Rule::kStepEnd, "parameter 2 is still whole");
  CHECK_FALSE(rules.end_step(List{release(0), release(1), release(2)}));
}

TEST_CASE("only complete gradients of parameters that are trained are reduced, once in a pass that has gradients") {
  Inside rules;
  Visit left = visit(1, true);
  const uint32_t complete[] = {0};
  left.complete = complete;
  check(rules, rules.leave(visit(1, true), List{reduce(0)}), Rule::kReduce, "not complete");
  check(rules, rules.leave(left, List{reduce(1)}), Rule::kReduce, "frozen");
  check(rules, rules.leave(left, List{reduce(0, 1), reduce(0, 2)}), Rule::kReduce, "second time");
  CHECK_FALSE(rules.is_reduced(0));
  REQUIRE_FALSE(rules.leave(left, List{reduce(0)}));
  CHECK(rules.is_reduced(0));
  check(rules, rules.end_pass(List{reduce(0)}), Rule::kReduce, "second time");
  REQUIRE_FALSE(rules.begin_pass(false, {}));
  CHECK_FALSE(rules.is_reduced(0));
  check(rules, rules.leave(left, List{reduce(0)}), Rule::kReduce, "without gradients");
}

TEST_CASE("the actions of one collective are adjacent") {
  CoordinatorRules rules(family());
  check(rules, rules.begin_pass(true, List{gather(0, 7), wait(0), gather(1, 7)}), Rule::kGroup, "group 7");
  check(rules, rules.begin_pass(true, List{gather(0, 7), gather(1, 3), gather(2, 7)}), Rule::kGroup, "group 7");
  CHECK_FALSE(rules.begin_pass(true, List{gather(0, 7), gather(1, 7), gather(2, 3)}));
}

TEST_CASE("more than the budget is never whole at once, and what is released first makes room") {
  Model model = family();
  model.budget = 1023;
  CoordinatorRules rules(model);
  check(rules, rules.begin_pass(true, List{gather(0), gather(1)}), Rule::kBudget, "the budget is 1023");
  CHECK_FALSE(rules.begin_pass(true, List{gather(0), wait(0), release(0), gather(1, 2), gather(2, 3)}));
  model.budget = 1024;
  CHECK_FALSE(CoordinatorRules(model).begin_pass(true, List{gather(0), gather(1)}));
}

TEST_CASE("places are multiples of 256, inside the budget, and of one parameter at a time") {
  Model model = family();
  model.budget = 2048;
  CoordinatorRules rules(model);
  check(rules, rules.begin_pass(true, List{gather(0, 1, 128)}), Rule::kPlace, "multiple of 256");
  check(rules, rules.begin_pass(true, List{gather(0, 1, 1792)}), Rule::kPlace, "past the budget");
  check(rules, rules.begin_pass(true, List{gather(0, 1, 256), gather(1, 1, 512)}), Rule::kPlace,
        "where parameter 0 lies");
  CHECK_FALSE(rules.begin_pass(true, List{gather(0, 1, 256), gather(1, 1, 768), gather(2, 1, 256)}));  // 2 has no bytes
}

TEST_CASE("other parameters of a module are what it uses from then on") {
  CoordinatorRules rules(family());
  const uint32_t own[] = {1};
  rules.set_module_parameters(0, own, {});
  CHECK(rules.used_by(0) == std::vector<uint32_t>{1});
  check(rules, rules.enter(visit(0), List{gather(0), wait(0)}), Rule::kUse, "parameter 1");
  CHECK_FALSE(rules.enter(visit(0), List{gather(1), wait(1)}));
}

TEST_CASE("of parameters that come and go each is found by its place, however many lie there") {
  std::mt19937 drawn(23);
  const auto draw = [&drawn] { return static_cast<uint32_t>(drawn()); };
  for (const uint32_t most : {3U, 40U, 300U, 5000U}) {
    CAPTURE(most);
    pliant::sdk::detail::PlacedParameters placed;
    std::map<uint64_t, uint32_t> expected;
    for (uint32_t i = 0; i < 20'000; ++i) {
      const uint64_t place = 256 * uint64_t{draw() % (2 * most)};
      if (expected.count(place) > 0) {
        expected.erase(place);
        placed.remove(place);
      } else if (expected.size() < most) {
        expected.emplace(place, i);
        placed.add(place, i);
      } else {
        placed.remove(place);  // nothing lies there
      }
      const uint64_t asked = 256 * uint64_t{draw() % (2 * most)};
      const auto after = expected.lower_bound(asked);
      const auto* const from = placed.from(asked);
      REQUIRE((from != nullptr) == (after != expected.end()));
      if (from != nullptr) REQUIRE((from->place == after->first && from->number == after->second));
      const auto* const before = placed.before(asked);
      REQUIRE((before != nullptr) == (after != expected.begin()));
      if (before != nullptr) REQUIRE(before->number == std::prev(after)->second);
    }
    placed.clear();
    CHECK(placed.from(0) == nullptr);
    CHECK(placed.before(UINT64_MAX) == nullptr);
  }
}
