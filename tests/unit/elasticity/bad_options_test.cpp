// What no plan can be made of is refused with one message that names the option, under every policy.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "pliant/config.hpp"
#include "pliant/error.hpp"
#include "pliant/plan.hpp"

using pliant::Error;
using pliant::Origin;

namespace {

using Options = std::map<std::string, std::string>;

const Options kGood{{"max_train_batch_size", "2000"}, {"micro_batch_sizes", "[2, 4, 6]"}, {"max_gpus", "100"}};

/// The message that the options are refused with, less position; "planned" if they are not.
std::string refusal(const std::string& policy, const Options& change) {
  Options options = kGood;
  for (const auto& [key, value] : change) options[key] = value;
  std::string toml = "config_version = 1\n[elasticity]\nuse = \"" + policy + "\"\n[elasticity.\"" + policy + "\"]\n";
  for (const auto& [key, value] : options) toml += key + " = " + value + "\n";
  pliant::ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
  overrides.read_environment = false;
  try {
    const pliant::Config config = pliant::Config::parse(toml, {"elasticity"}, overrides);
    static_cast<void>(pliant::Planner(config).plan(0, "8"));
  } catch (const Error& error) {
    CHECK(error.origin() == Origin::kInput);
    return error.what();
  }
  return "planned";
}

struct Bad {
  Options change;
  std::vector<std::string> words;
};

void check(const std::vector<std::string>& policies, const std::vector<Bad>& all) {
  for (const std::string& policy : policies) {
    for (const Bad& bad : all) {
      const std::string message = refusal(policy, bad.change);
      CAPTURE(policy);
      CAPTURE(message);
      for (const std::string& word : bad.words) CHECK(message.find(word) != std::string::npos);
      CHECK(message.find("error:") == message.rfind("error:"));  // one finding
    }
  }
}

}  // namespace

TEST_CASE("zero, negative, huge, fractional and other numbers that are none are refused by name") {
  for (const char* key : {"max_train_batch_size", "min_gpus", "max_gpus", "model_parallel_size", "num_gpus_per_node"}) {
    for (const char* value :
         {"0", "-1", "-9223372036854775808", "2.0", "2.5", "nan", "inf", "1e6", "true", "\"8\"", "[8]", "1979-05-27"}) {
      CAPTURE(value);
      check({"v0.1", "v0.2", "exact"}, {{{{key, value}}, {key}}});
    }
    check({"v0.1", "v0.2", "exact"}, {{{{key, "9223372036854775808"}}, {}}});  // no TOML integer: the parser names it
  }
}

TEST_CASE("lists that are empty, or hold what no micro-batch can be, are refused by name") {
  for (const char* value : {"[]", "[0]", "[2, -4]", "[2, 4.0]", "[2, nan]", "[2, \"4\"]", "[[2]]", "[true]", "4"}) {
    CAPTURE(value);
    check({"v0.1", "v0.2", "exact"}, {{{{"micro_batch_sizes", value}}, {"micro_batch_sizes"}}});
  }
}

TEST_CASE("the same micro-batch twice is the same micro-batch") {
  for (const char* policy : {"v0.1", "v0.2", "exact"}) {
    CHECK(refusal(policy, {{"micro_batch_sizes", "[2, 2, 4, 4]"}}) == "planned");
  }
}

TEST_CASE("limits that exclude each other are refused with both") {
  check({"v0.1", "v0.2", "exact"}, {{{{"min_gpus", "101"}}, {"min_gpus is 101, more than max_gpus, which is 100"}}});
}

TEST_CASE("model parallelism that splits a node is refused with both numbers") {
  const Options split{{"model_parallel_size", "3"}, {"num_gpus_per_node", "8"}};
  check({"v0.2"}, {{split, {"model_parallel_size 3 does not divide num_gpus_per_node 8"}}});
  Options whole = split;
  whole["whole_nodes"] = "true";
  check({"exact"}, {{whole, {"model_parallel_size 3 does not divide num_gpus_per_node 8"}}});
  check({"v0.1"}, {{split, {"model_parallel_size"}}});
}

TEST_CASE("a cap below the micro-batch sizes is refused with the size and the cap") {
  check({"v0.1", "v0.2"},
        {{{{"max_train_batch_size", "5"}}, {"micro_batch_sizes has 6, but a global batch may have at most 5 rows"}}});
  check({"exact"}, {{{{"max_train_batch_size", "1"}}, {"every micro-batch size is above max_train_batch_size 1"}}});
  CHECK(refusal("exact", {{"max_train_batch_size", "5"}}) == "planned");  // it chooses 4
}

TEST_CASE("numbers whose products pass 63 bits are refused by name") {
  check({"v0.1", "v0.2"}, {{{{"max_train_batch_size", "4611686018427387904"},
                             {"micro_batch_sizes", "[4611686018427387901, 4611686018427387903]"}},
                            {"least common multiple of micro_batch_sizes does not fit 63 bits"}}});
  check({"exact"}, {{{{"max_train_batch_size", "4611686018427387904"},
                      {"micro_batch_sizes", "[1, 4611686018427387904]"},
                      {"cost", "\"calls\""}},
                     {"micro-batch times world size does not fit 63 bits"}}});
}

TEST_CASE("exact says where world sizes end when max_gpus asks for more") {
  const std::string toml =
      "config_version = 1\n[elasticity]\nuse = \"exact\"\n[elasticity.exact]\nmax_train_batch_size = 64\n"
      "micro_batch_sizes = [2]\nmax_gpus = ";
  pliant::ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
  const auto warnings = [&](const std::string& max_gpus) {
    return pliant::Planner(pliant::Config::parse(toml + max_gpus, {"elasticity"}, overrides)).plan().warnings;
  };
  CHECK(warnings("32").empty());
  CHECK(warnings("10000").empty());  // the default
  REQUIRE(warnings("40").size() == 1);
  CHECK(warnings("40").front() ==
        "max_gpus 40 gives room for 40 ranks, but a global batch of 48 rows has only 24 granules of 2 rows; the "
        "largest world size is 24");
}
