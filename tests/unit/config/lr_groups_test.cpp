// [lr.groups]: base rates by name from every layer, beside rules of their own, and what is refused.
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "unit/config/config_file.hpp"

using pliant::Config;
using pliant::ConfigOverrides;
using pliant::test::ConfigFile;
using pliant::test::contains;
using pliant::test::ScratchFolder;
using pliant::test::Variable;
using Groups = std::map<std::string, double>;

TEST_CASE("base rates of groups come from file, environment and --set, and are in the resolved config") {
  CHECK(ConfigFile("[lr]\nbase_lr = 1\n").open().lr().groups.empty());
  ConfigFile file("[lr]\nbase_lr = 0.5\n[lr.groups]\nhead = 1\n\"no decay\" = 0.25\n");
  file.overrides.sets = {"lr.groups.head=0.75", "lr.groups.tail=2"};
  const Variable variable("PLIANT__LR__GROUPS__EMBEDDING", "0.125");
  const Config first = file.open();
  const Groups all{{"embedding", 0.125}, {"head", 0.75}, {"no decay", 0.25}, {"tail", 2}};
  CHECK(first.lr().groups == all);
  CHECK(first.lr().base_lr == 0.5);
  const ScratchFolder elsewhere;
  ConfigOverrides nothing;
  nothing.read_environment = false;
  const Config second = Config::open(elsewhere.write("copy.toml", first.resolved_toml()), {}, nothing);
  CHECK(second.lr().groups == all);
  CHECK(second.resolved_toml() ==
        Config::open(elsewhere.write("again.toml", second.resolved_toml()), {}, nothing).resolved_toml());
}

TEST_CASE("groups are no rule: the section has its default rule with them, and nothing calls them unused") {
  const ConfigFile file("[lr.groups]\nhead = 1\n");
  const ConfigFile empty("[lr]\n");
  CHECK(file.refusal({"lr"}) == empty.refusal({"lr"}));
  CHECK(file.open().lr().groups == Groups{{"head", 1}});
}

TEST_CASE("base rates that are none are refused where they stand, all at once") {
  const std::string said =
      ConfigFile("[lr.groups]\na = 0\nb = -1\nc = 'x'\nd = inf\ne = 2e6\nf = [1]\ngood = 1\n").refusal();
  for (const char* const one :
       {":3:5: error: lr.groups.a must be above 0 and at most 1000000, not 0",
        ":4:5: error: lr.groups.b must be above 0 and at most 1000000, not -1",
        ":5:5: error: lr.groups.c must be a number, not the string \"x\"", ":6:5: error: lr.groups.d must be above 0",
        ":7:5: error: lr.groups.e must be above 0", ":8:5: error: lr.groups.f must be a number, not "}) {
    CAPTURE(one);
    CHECK_MESSAGE(contains(said, one), said);
  }
  CHECK_FALSE(contains(said, "good"));
  const std::string scalar = ConfigFile("[lr]\ngroups = 3\n").refusal();
  CHECK_MESSAGE(contains(scalar, "[lr.groups] must be a table, not "), scalar);
  CHECK_FALSE(contains(scalar, "unknown"));
}

TEST_CASE("a rule called groups is refused, whose options would be there") {
  for (const char* const text : {"use = 'groups'", "schedule = ['groups']", "then = ['x', 'groups']"}) {
    CAPTURE(text);
    CHECK(contains(ConfigFile(std::string("[lr]\n") + text + "\n").refusal(), "cannot name a rule 'groups'"));
  }
}
