// The option mechanism, end to end: what TOML says is what the plugin's members hold.
#include <doctest/doctest.h>

#include "config/instances.hpp"
#include "pliant/abi/elasticity_policy.h"
#include "plugin/plugin.hpp"
#include "unit/config/config_file.hpp"

using pliant::test::ConfigFile;
using pliant::test::contains;
using pliant::test::needs_elasticity;

namespace {

/// What the policy `every` was given: it puts its members into its refusal.
std::string seen(const std::string& options) {
  const ConfigFile file("[elasticity]\nuse = 'every'\n[elasticity.every]\n" + options);
  auto instance = pliant::config::instantiate(file.open(needs_elasticity()), "elasticity");
  REQUIRE(instance);
  const auto& slots = instance->table<pliant_elasticity_policy>();
  const pliant_plan_request request{sizeof(pliant_plan_request), 0, 0, {nullptr, 0}};
  pliant_plan plan{};
  pliant_error error = pliant::plugin::fresh_error();
  CHECK(slots.plan(instance->self(), &request, &plan, nullptr, &error) == PLIANT_FAILED_PRECONDITION);
  return error.message;
}

std::string refusal(const std::string& options) {
  return ConfigFile("[elasticity]\nuse = 'every'\n[elasticity.every]\n" + options).refusal(needs_elasticity());
}

}  // namespace

TEST_CASE("defaults are those of the class") {
  CHECK(seen("must = 1\n") == "flag 8 0.500000 fast t f 2 4 0.250000 a b no-cap must 1");
}

TEST_CASE("values of every type reach the plugin") {
  CHECK(seen("flag = false\nrows = 9\nrate = 1\nmode = 'slow'\nflags = [false]\nsizes = [7, 8, 9]\nrates = [1, 2.5]\n"
             "words = ['x', 'y z']\ncap = 5\nmust = -4\n") ==
        "no-flag 9 1.000000 slow f 7 8 9 1.000000 2.500000 x y z cap 5 must -4");
  CHECK(seen("flags = []\nrates = []\nwords = []\nmust = 1\n") == "flag 8 0.500000 fast 2 4 no-cap must 1");
}

TEST_CASE("limits are inclusive and hold for each element") {
  CHECK(contains(seen("rows = 1\nmust = 1\n"), "flag 1 "));
  CHECK(contains(seen("rows = 100\nrate = 0\nmust = 1\n"), "flag 100 0.000000"));
  CHECK(contains(refusal("rows = 0\nmust = 1\n"), ":5:8: error: elasticity.every.rows must be 1..100 rows, not 0"));
  CHECK(contains(refusal("rows = 101\nmust = 1\n"), "must be 1..100 rows, not 101"));
  CHECK(contains(refusal("rate = 1.01\nmust = 1\n"), "elasticity.every.rate must be 0..1, not 1.01"));
  CHECK(contains(refusal("sizes = [1, 0]\nmust = 1\n"),
                 ":5:13: error: elasticity.every.sizes[1] must be at least 1, not 0"));
  CHECK(contains(refusal("sizes = []\nmust = 1\n"), "elasticity.every.sizes must have 1 to 3 elements, not 0"));
  CHECK(contains(refusal("sizes = [1, 2, 3, 4]\nmust = 1\n"), "must have 1 to 3 elements, not 4"));
  CHECK(contains(refusal("mode = 'Fast'\nmust = 1\n"), "did you mean \"fast\"?"));
}

TEST_CASE("an integer may stand for a float, a float never for an integer") {
  CHECK(contains(seen("rate = 1\nmust = 1\n"), "1.000000"));
  CHECK(contains(refusal("rows = 8.0\nmust = 1\n"), "must be an integer (1..100 rows), not the float 8.0"));
  CHECK(contains(refusal("sizes = [1.0]\nmust = 1\n"), "sizes[0] must be an integer"));
  CHECK(contains(refusal("flag = 1\nmust = 1\n"), "must be true or false"));
}

TEST_CASE("a required option that is missing is asked for with its meaning") {
  const std::string said = refusal("rows = 8\n");
  CHECK(contains(said, ":4:13: error: must is missing from [elasticity.every]: What cannot be guessed."));
  CHECK(contains(said, "note: write must = <int> in [elasticity.every]"));
  CHECK(contains(ConfigFile("[elasticity]\nuse = 'every'\n").refusal(needs_elasticity()),
                 ":3:7: error: must is missing"));
}

TEST_CASE("the table of an installed plugin that is not in use is checked, too") {
  const std::string text = "[elasticity]\nuse = 'v0.9'\n[elasticity.every]\n";
  CHECK(contains(ConfigFile(text + "rowz = 1\nmust = 1\n").refusal(needs_elasticity()),
                 "unknown key 'rowz' in [elasticity.every]"));
  CHECK(ConfigFile(text + "rows = 1\nmust = 1\n").refusal(needs_elasticity()).empty());
}
