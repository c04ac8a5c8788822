// pliant plugin new: the folder that it writes, and what it refuses.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "negative/pliant_process.hpp"

namespace {

using pliant::test::Outcome;
using pliant::test::run_pliant;
using pliant::test::ScratchFolder;

Outcome make(const ScratchFolder& folder, std::vector<std::string> args) {
  args.insert(args.begin(), {"plugin", "new"});
  return run_pliant(folder, args);
}

std::string content(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST_CASE("plugin new: the name stands wherever the template had its own") {
  const ScratchFolder scratch;
  const std::string folder = (scratch.path() / "made").string();
  const Outcome outcome = make(scratch, {"elasticity", "v3.fast", "--dir", folder, "--json"});
  CHECK(outcome.err == "");
  REQUIRE(outcome.exit_code == 0);
  const auto told = nlohmann::json::parse(outcome.out);
  CHECK(told["schema"] == "pliant.plugin_new/1");
  CHECK(told["folder"] == folder);
  CHECK(told["files"] == std::vector<std::string>{"CMakeLists.txt", "pliant.toml", "v3_fast_elasticity.cpp"});
  CHECK(told["plugin_file"] == "build/elasticity-v3.fast.pliant.so");
  const std::string toml = content(folder + "/pliant.toml");
  CHECK(toml.find("use = \"v3.fast\"") != std::string::npos);
  CHECK(toml.find("path = \"build/elasticity-v3.fast.pliant.so\"") != std::string::npos);
  CHECK(toml.find("[elasticity.\"v3.fast\"]") != std::string::npos);
  const std::string source = content(folder + "/v3_fast_elasticity.cpp");
  CHECK(source.find("struct V3FastElasticity {") != std::string::npos);
  CHECK(source.find("(V3FastElasticity, \"v3.fast\", ") != std::string::npos);
  CHECK(content(folder + "/CMakeLists.txt").find("v3_fast_elasticity KIND elasticity NAME v3.fast") !=
        std::string::npos);
  for (const char* file : {"/pliant.toml", "/v3_fast_elasticity.cpp", "/CMakeLists.txt"}) {
    const std::string text = content(folder + file);
    for (const char* old : {"my-elasticity", "my_elasticity", "MyElasticity"})
      CHECK(text.find(old) == std::string::npos);
  }
}

TEST_CASE("plugin new: every kind that its help lists has a template") {
  const ScratchFolder scratch;
  const Outcome help = run_pliant(scratch, {"plugin", "new", "--help"});
  const size_t list = help.out.find("Kinds:\n");
  REQUIRE(list != std::string::npos);
  std::istringstream lines(help.out.substr(list));
  int made = 0;
  for (std::string line; std::getline(lines, line) && !line.empty();) {
    if (line.compare(0, 2, "  ") != 0) continue;
    const std::string kind = line.substr(2, line.find(' ', 2) - 2);
    const std::string folder = (scratch.path() / kind).string();
    const Outcome outcome = make(scratch, {kind, "mine", "--dir", folder});
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code == 0);
    CHECK(content(folder + "/CMakeLists.txt").find(" KIND " + kind + " NAME mine ") != std::string::npos);
    CHECK(content(folder + "/pliant.toml").find("use = \"mine\"") != std::string::npos);
    ++made;
  }
  CHECK(made >= 6);
}

TEST_CASE("plugin new: a build folder, which has no package of the SDK, is not named as one") {
  const ScratchFolder scratch;
  const Outcome outcome = make(scratch, {"lr", "mine"});
  REQUIRE(outcome.exit_code == 0);
  CHECK(outcome.out.find("\n  cmake --install ") != std::string::npos);
  CHECK(outcome.out.find("-DCMAKE_PREFIX_PATH=PREFIX\n") != std::string::npos);
}

TEST_CASE("plugin new: bad names, unknown kinds and folders that exist end with 2 and leave nothing") {
  const ScratchFolder scratch;
  const std::string there = (scratch.path() / "there").string();
  std::filesystem::create_directory(there);
  const std::string fresh = (scratch.path() / "fresh").string();
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"elasticity", "My Policy", "--dir", fresh}, "'My Policy' cannot be the name of a plugin: up to 64 of a-z"},
      {{"elasticity", ".hidden", "--dir", fresh}, "'.hidden' cannot be the name of a plugin"},
      {{"elasticity", "../up", "--dir", fresh}, "'../up' cannot be the name of a plugin"},
      {{"elasticity", "", "--dir", fresh}, "'' cannot be the name of a plugin"},
      {{"smapler", "fine", "--dir", fresh},
       "no template for the kind 'smapler'; did you mean 'sampler'?; kinds: accelerator, balancer, coordinator, "
       "elasticity, lr, rendezvous, sampler"},
      {{"lr", "fine", "--dir", there}, there + " exists already; name another folder with --dir"},
  };
  for (const auto& [args, wanted] : cases) {
    const Outcome outcome = make(scratch, args);
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.out == "");
    CHECK(outcome.err.find(wanted) != std::string::npos);
    CHECK(!std::filesystem::exists(fresh));
  }
  CHECK(std::filesystem::is_empty(there));
}

TEST_CASE("plugin new: a folder that cannot be made ends with 1 and the system's words") {
  const ScratchFolder scratch;
  const std::string deep = (scratch.path() / "no" / "such").string();
  const Outcome outcome = make(scratch, {"lr", "fine", "--dir", deep});
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.err.find("cannot create " + deep + ": No such file or directory") != std::string::npos);
}

}  // namespace
