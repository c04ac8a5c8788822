// pliant plugin check: wrong command lines, files that are no plugins, and what it writes of a small run.
#include <doctest/doctest.h>

#include <algorithm>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "negative/pliant_process.hpp"

namespace {

using nlohmann::json;
using pliant::test::Outcome;
using pliant::test::run_pliant;
using pliant::test::ScratchFolder;

const std::string kHost = std::string(PLIANT_PLUGIN_DIR) + "/accelerator-host.pliant.so";

Outcome check_plugin(const ScratchFolder& folder, std::vector<std::string> args) {
  args.insert(args.begin(), {"plugin", "check"});
  return run_pliant(folder, args);
}

TEST_CASE("plugin check: a wrong command line ends with 2, what is allowed, and where to read more") {
  const ScratchFolder folder;
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{}, "the plugin FILE is missing"},
      {{kHost, "--only", "nonsense"}, "--only 'nonsense': no check of this plugin matches; subjects: plugin, device"},
      {{kHost, "--only", "*"}, "--only '*': not a regular expression such as memory or 'copy|fill'"},
      {{kHost, "--seed", "many"}, "--seed 'many': a whole number from 0 to 18446744073709551615"},
      {{kHost, "--seed", "-1"}, "--seed '-1': a whole number"},
      {{kHost, "--seed", "18446744073709551616"}, "--seed '18446744073709551616': a whole number"},
      {{kHost, "--reproduce", "memory.aligned"}, "--reproduce 'memory.aligned': CHECK:SEED"},
      {{kHost, "--reproduce", "memory.aligned:x"}, "the seed 'x': a whole number"},
      {{kHost, "--reproduce", "memory.algned:1"}, "--reproduce 'memory.algned': no check of this plugin matches"},
      {{kHost, "--set", "colour=red"},
       "--set colour: the plugin has no such option; it has: memory_bytes, chunk_bytes"},
      {{kHost, "--set", "memory_bytes=much"}, "--set memory_bytes=much: 'much' is not an integer"},
      {{kHost, "--time-limit", "0"}, "--time-limit '0': a whole number from 1"},
  };
  for (const auto& one : cases) {
    const std::string wanted = one.second;
    const Outcome outcome = check_plugin(folder, one.first);
    CAPTURE(wanted);
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.out.empty());
    CHECK(outcome.err.find("pliant: error: ") == 0);
    CHECK(outcome.err.find(wanted) != std::string::npos);
    CHECK(outcome.err.find("see pliant plugin check --help") != std::string::npos);
  }
}

TEST_CASE("plugin check: what cannot be opened as a plugin ends with 3 and the loader's words") {
  const ScratchFolder folder;
  std::ofstream(folder.path() / "text.so") << "no library\n";
  const std::vector<std::pair<std::string, std::string>> cases{
      {"nowhere.so", "cannot open shared object file: No such file or directory"},
      {"text.so", "file too short"},
      {std::string(NEGATIVE_PLUGIN_DIR) + "/elasticity-no-symbol.pliant.so", "has no entry symbol"},
      {std::string(NEGATIVE_PLUGIN_DIR) + "/elasticity-null-record.pliant.so", "returned no record"},
      {std::string(NEGATIVE_PLUGIN_DIR) + "/elasticity-undefined-symbol.pliant.so", "undefined symbol"},
  };
  for (const auto& one : cases) {
    const Outcome outcome = check_plugin(folder, {one.first});
    CAPTURE(one.first);
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code == 3);
    CHECK(outcome.out.empty());
    // A line of its own; ASan may say before it that a thread ended as it looked for leaks.
    CHECK(("\n" + outcome.err).find("\npliant: error: " + one.first + " cannot be opened as a plugin: ") !=
          std::string::npos);
    CHECK(outcome.err.find(one.second) != std::string::npos);
  }
}

TEST_CASE("plugin check: what is neither a file nor a plugin ends with 3 and the name that may be meant") {
  const ScratchFolder folder;
  for (const auto& [given, meant] : {std::pair<std::string, std::string>{"accelerator/hots", "accelerator/host"},
                                     std::pair<std::string, std::string>{"host", "accelerator/host"}}) {
    const Outcome outcome = check_plugin(folder, {given});
    CHECK(outcome.exit_code == 3);
    CHECK(outcome.out.empty());
    CHECK(outcome.err == "pliant: error: " + given + ": no such file and no such plugin; did you mean '" + meant +
                             "'? pliant plugin list shows the installed plugins\n");
  }
}

TEST_CASE("plugin check: with --json an error is an object, too") {
  const ScratchFolder folder;
  const Outcome outcome = check_plugin(folder, {"nowhere.so", "--json"});
  CHECK(outcome.exit_code == 3);
  const json object = json::parse(outcome.out);
  CHECK(object["schema"] == "pliant.error/1");
  CHECK(object["exit_code"] == 3);
}

TEST_CASE("plugin check: the object of a run has counts, and every check its name, sentence, result and time") {
  const ScratchFolder folder;
  const Outcome outcome = check_plugin(folder, {kHost, "--only", "^memory", "--seed", "7", "--json"});
  CHECK(outcome.exit_code == 0);
  const json object = json::parse(outcome.out);
  CHECK(object["schema"] == "pliant.plugin_check/1");
  CHECK(object["exit_code"] == 0);
  CHECK(object["name"] == "host");
  CHECK(object["kind"] == "pliant.accelerator/0");
  CHECK(object["seed"] == 7);
  CHECK(object["counts"]["pass"] == object["checks"].size());
  for (const json& one : object["checks"]) {
    CHECK(one["subject"] == "memory");
    CHECK(one["result"] == "pass");
    CHECK(one["seconds"].get<double>() > 0);
    CHECK(one.contains("demands"));
  }
}

TEST_CASE("plugin check: a failure ends with 1, and what it prints to reproduce it does") {
  const ScratchFolder folder;
  const Outcome failed =
      check_plugin(folder, {kHost, "--set", "memory_bytes=4096", "--only", "memory.recovers", "--json"});
  CHECK(failed.exit_code == 1);
  const json finding = json::parse(failed.out)["checks"][0];
  CHECK(finding["result"] == "fail");
  CHECK(finding["reproduce"] ==
        "pliant plugin check " + kHost + " --set memory_bytes=4096 --reproduce 'memory.recovers:1'");
  const Outcome again = check_plugin(folder, {kHost, "--set", "memory_bytes=4096", "--reproduce", "memory.recovers:1"});
  CHECK(again.exit_code == 1);
  CHECK(again.out.find("FAIL   memory.recovers") != std::string::npos);
  CHECK(again.out.find("0 pass, 1 fail, 0 crash, 0 warn, 0 skip") != std::string::npos);
}

TEST_CASE("plugin check: what failed stands once more at the end, where other checks came after it") {
  const ScratchFolder folder;
  const Outcome failed =
      check_plugin(folder, {kHost, "--set", "memory_bytes=4096", "--only", "memory.recovers|fill.empty"});
  CHECK(failed.exit_code == 1);
  const size_t first = failed.out.find("FAIL   memory.recovers");
  const size_t end = failed.out.find("\nfailed checks\n  FAIL   memory.recovers");
  REQUIRE(first != std::string::npos);
  REQUIRE(end != std::string::npos);
  CHECK(first < failed.out.find("fill.empty"));
  CHECK(failed.out.find("fill.empty") < end);
  CHECK(failed.out.find("--reproduce 'memory.recovers:1'\n\n1 pass, 1 fail", end) != std::string::npos);
}

TEST_CASE("plugin check: every kind has the checks of every plugin and its own, and those of no other kind") {
  const ScratchFolder folder;
  const std::vector<std::pair<std::string, std::string>> kinds{
      {"elasticity/v0.1", "plan.granule"},    {"sampler/fixed", "rows.once"},
      {"balancer/lpt", "balance.ranks"},      {"lr/sqrt", "rate.numbers"},
      {"accelerator/host", "memory.aligned"}, {"coordinator/planned", "actions.used"},
      {"rendezvous/local", "join.generation"}};
  for (const auto& plugin : kinds) {
    const Outcome outcome = check_plugin(folder, {plugin.first, "--list"});
    CAPTURE(plugin.first);
    CHECK(outcome.exit_code == 0);
    CHECK(outcome.out.find("plugin.exports ") != std::string::npos);
    for (const auto& kind : kinds) {
      CAPTURE(kind.second);
      CHECK((outcome.out.find(kind.second + " ") != std::string::npos) == (kind.first == plugin.first));
    }
  }
}

TEST_CASE(
    "plugin check: a policy that answers its sizes in descending order fails that check, and says under which "
    "options") {
  const ScratchFolder folder;
  const Outcome outcome =
      check_plugin(folder, {BROKEN_POLICY, "--set", "fault=descending", "--only", "^(plan|requests)", "--json"});
  CHECK(outcome.exit_code == 1);
  const json object = json::parse(outcome.out);
  CHECK(object["kind"] == "pliant.elasticity_policy/0");
  CHECK(object["counts"]["fail"] == 1);
  for (const json& one : object["checks"]) {
    if (one["id"] != "plan.world_sizes") continue;
    CHECK(one["subject"] == "plan");
    CHECK(one["result"] == "fail");
    const std::string reason = one["reason"];
    CHECK(reason.find("at world size ") == 0);
    CHECK(reason.find("ranges must ascend and not overlap") != std::string::npos);
    CHECK(one["reproduce"].get<std::string>().find("--reproduce 'plan.world_sizes:1'") != std::string::npos);
  }
}

TEST_CASE("plugin check: checks of a policy run as others do, by name and by seed") {
  const ScratchFolder folder;
  const Outcome outcome = check_plugin(folder, {"elasticity/exact", "--only", "^plan", "--seed", "9"});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out.find("\nplan\n  pass   plan.numbers ") != std::string::npos);
  CHECK(outcome.out.find("5 pass, 0 fail, 0 crash, 0 warn, 0 skip") != std::string::npos);
}

TEST_CASE("plugin check: --list names every check once, with and without a file") {
  const ScratchFolder folder;
  const Outcome all = check_plugin(folder, {"--list", "--json"});
  CHECK(all.exit_code == 0);
  const json object = json::parse(all.out);
  CHECK(object["schema"] == "pliant.plugin_check_list/1");
  std::vector<std::string> names;
  for (const json& one : object["checks"]) names.push_back(one["id"]);
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  CHECK(names.size() > 180);
  CHECK(check_plugin(folder, {"elasticity/v0.1", "--list"}).out.find("memory.") == std::string::npos);
}

}  // namespace
