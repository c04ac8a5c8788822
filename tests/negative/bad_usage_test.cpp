// Wrong command lines, and results that cannot be delivered.
#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

#include "negative/pliant_process.hpp"

namespace {

using pliant::test::Outcome;
using pliant::test::run_pliant;
using pliant::test::ScratchFolder;

}  // namespace

TEST_CASE("a wrong command line ends with 2, the near word and where to read more") {
  const ScratchFolder folder;
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{}, "pliant: error: a command is missing; commands: plan, "},
      {{"plam"}, "unknown command 'plam'; did you mean 'plan'?"},
      {{"plugin"}, "a command is missing; commands: list, info, check"},
      {{"plugin", "lst"}, "unknown command 'lst'; did you mean 'list'?"},
      {{"bogus", "--help"}, "unknown command 'bogus'\n  see pliant --help"},
      {{"plam", "-h"}, "unknown command 'plam'; did you mean 'plan'?"},
      {{"--help", "plam"}, "unknown command 'plam'; did you mean 'plan'?"},
      {{"plam", "--version"}, "unknown command 'plam'; did you mean 'plan'?"},
      {{"plugin", "lst", "--help"}, "unknown command 'lst'; did you mean 'list'?\n  see pliant plugin --help"},
      {{"plan"}, "CONFIG is required"},
      {{"plan", "a.toml", "--jsn"}, "unknown option '--jsn'; did you mean '--json'?"},
      {{"plan", "a.toml", "--world-sise=4"}, "did you mean '--world-size'?"},
      {{"plan", "a.toml", "--pluginn-dir", "x"}, "did you mean '--plugin-dir'?"},
      {{"plan", "a.toml", "b.toml"}, "unexpected argument 'b.toml'"},
      {{"plan", "a.toml", "--world-size", "four"}, "--world-size"},
      {{"plan", "a.toml", "--world-size", "0"}, "--world-size"},
      {{"version", "--color", "blue"}, "--color"},
  };
  for (const auto& one : cases) {
    const std::string wanted = one.second;
    const Outcome outcome = run_pliant(folder, one.first);
    CAPTURE(wanted);
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.out.empty());
    CHECK(outcome.err.find("pliant: error: ") == 0);
    CHECK(outcome.err.find(wanted) != std::string::npos);
    CHECK(outcome.err.find("--help") != std::string::npos);
  }
}

TEST_CASE("help goes to stdout, ends with 0 and has an example for every command") {
  const ScratchFolder folder;
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{{},
                                                                                       {"plan"},
                                                                                       {"plugin", "list"},
                                                                                       {"plugin", "info"},
                                                                                       {"plugin", "check"},
                                                                                       {"config", "show"},
                                                                                       {"config", "check"},
                                                                                       {"config", "defaults"},
                                                                                       {"config", "import"},
                                                                                       {"version"}}) {
    std::vector<std::string> args = command;
    args.emplace_back("--help");
    const Outcome outcome = run_pliant(folder, args);
    CHECK(outcome.exit_code == 0);
    CHECK(outcome.err.empty());
    const bool one = outcome.out.find("Example:\n  pliant ") != std::string::npos;
    CHECK((one || outcome.out.find("Examples:\n  pliant ") != std::string::npos));
  }
}

TEST_CASE("help wraps what it says, below its column, and has conflicts of options as sentences") {
  const ScratchFolder folder;
  const std::string plan = run_pliant(folder, {"plan", "--help"}).out;
  const std::string config = "\n  CONFIG" + std::string(22, ' ') + "The config file, often pliant.toml\n";
  CHECK(plan.find(config) != std::string::npos);
  const std::string nodes = "\n  --nodes N" + std::string(19, ' ') +
                            "Plan for this many whole nodes of num_gpus_per_node devices. Not with\n" +
                            std::string(30, ' ') + "--world-size\n";
  CHECK(plan.find(nodes) != std::string::npos);
  CHECK(plan.find("Excludes") == std::string::npos);
  for (const char* const command : {"plan", "pack", "run", "trace", "audit"}) {
    CAPTURE(command);
    std::istringstream lines(run_pliant(folder, {command, "--help"}).out);
    for (std::string line; std::getline(lines, line);) {
      CAPTURE(line);
      CHECK(line.size() <= 100);
    }
  }
}

TEST_CASE("options that exclude each other are refused with a sentence") {
  const ScratchFolder folder;
  const Outcome outcome = run_pliant(folder, {"plan", "x.toml", "--world-size", "2", "--nodes", "1"});
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.err.find(" cannot be combined with --") != std::string::npos);
  CHECK(run_pliant(folder, {"plan", "x.toml", "--layer-order"}).err.find("--layer-order needs --memory") !=
        std::string::npos);
}

TEST_CASE("config defaults of what is neither section nor plugin names the sections") {
  const ScratchFolder folder;
  const Outcome outcome = run_pliant(folder, {"config", "defaults", "nothing-of-the-kind"});
  CHECK(outcome.exit_code == 3);
  CHECK(outcome.err.find("pliant: error: there is no section or plugin 'nothing-of-the-kind'\n  sections: ") == 0);
  CHECK(outcome.err.find(", run") != std::string::npos);
  CHECK(run_pliant(folder, {"config", "defaults", "rnu"}).err.find("did you mean 'run'?") != std::string::npos);
}

TEST_CASE("an unknown plugin ends with 3 and the near names") {
  const ScratchFolder folder;
  const Outcome outcome = run_pliant(folder, {"plugin", "info", "goood", "--plugin-dir", NEGATIVE_PLUGIN_DIR});
  CHECK(outcome.exit_code == 3);
  CHECK(outcome.err.find("pliant: error: there is no plugin 'goood'\n  did you mean 'good'?") == 0);
}

TEST_CASE("a level that PLIANT_LOG does not have is a usage error") {
  const ScratchFolder folder;
  const Outcome outcome = run_pliant(folder, {"version"}, {"PLIANT_LOG=loud"});
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.err.find("PLIANT_LOG: error: it must be debug, info, warning, error or off") != std::string::npos);
}

TEST_CASE("colour is used only when it is asked for") {
  const ScratchFolder folder;
  CHECK(run_pliant(folder, {"plan", "nowhere.toml"}).err.find('\033') == std::string::npos);
  CHECK(run_pliant(folder, {"--color", "always", "plan", "nowhere.toml"}).err.find("\033[1;31merror:\033[0m") !=
        std::string::npos);
}
