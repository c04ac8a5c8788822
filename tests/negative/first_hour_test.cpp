// What a new user stumbles over in the first hour: each is said where it stands, with what to write instead.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "negative/pliant_process.hpp"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using pliant::test::Outcome;
using pliant::test::run_pliant;
using pliant::test::ScratchFolder;
using Words = std::vector<std::string>;

const std::string kVersion = "config_version = 1\n";
const std::string kPlan =
    "[elasticity]\nuse = \"v0.1\"\n[elasticity.\"v0.1\"]\nmax_train_batch_size = 12\nmicro_batch_sizes = [1, 2, 3]\n";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// `pliant config check` of `text` behind config_version.
Outcome check(const ScratchFolder& folder, const std::string& text) {
  folder.write("pliant.toml", kVersion + text);
  return run_pliant(folder, {"config", "check", "pliant.toml"});
}

/// It is refused with 2 and each of `wanted`.
void refused(const std::string& text, const Words& wanted) {
  const ScratchFolder folder;
  const Outcome outcome = check(folder, text);
  CAPTURE(text);
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 2);
  for (const std::string& part : wanted) {
    CAPTURE(part);
    CHECK(has(outcome.err, part));
  }
}

void write_program(const ScratchFolder& folder, const std::string& name, const std::string& text) {
  ::chmod(folder.write(name, "#!/bin/sh\n" + text).c_str(), 0700);
}

json parsed(const Outcome& outcome) {
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return json::parse(outcome.out);
}

/// Of config check, in which each of `places` must occur, in this order.
void refused_at(const std::string& text, const Words& places, size_t errors) {
  const ScratchFolder folder;
  const Outcome outcome = check(folder, text);
  CAPTURE(text);
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 2);
  size_t from = 0;
  for (const std::string& place : places) {
    CAPTURE(place);
    const size_t at = outcome.err.find("pliant.toml:" + place, from);
    CHECK(at != std::string::npos);
    from = at == std::string::npos ? from : at + 1;
  }
  size_t found = 0;
  for (size_t at = 0; (at = outcome.err.find(": error: ", at)) != std::string::npos; ++at) ++found;
  CHECK(found == errors);
}

}  // namespace

TEST_CASE("a name with a dot that lacks its quotes is said to, and what to write") {
  refused("[elasticity]\nuse = \"v0.1\"\n[elasticity.v0.1]\nmax_train_batch_size = 12\nmicro_batch_sizes = [1]\n",
          {"pliant.toml:4:", "error: 'v0.1' contains a dot and must be quoted", "note: write [elasticity.\"v0.1\"]"});
  const ScratchFolder folder;
  const Outcome once = check(
      folder, "[elasticity]\nuse = \"v0.1\"\n[elasticity.v0.1]\nmax_train_batch_size = 12\nmicro_batch_sizes = [1]\n");
  CHECK_FALSE(has(once.err, "is missing"));  // they are there
  const Outcome idle = check(folder,
                             "[elasticity]\nuse = 'exact'\n[elasticity.exact]\nmax_train_batch_size = 12\n"
                             "micro_batch_sizes = [1]\n[elasticity.v0.1]\nmax_train_batch_size = 12\n");
  CAPTURE(idle.err);
  CHECK(idle.exit_code == 0);
  CHECK(has(idle.err, "note: write [elasticity.\"v0.1\"]"));
}

TEST_CASE("text without quotes is said to be text, and words for true and false what they are in TOML") {
  refused("[elasticity]\nuse = v0.1\n", {"pliant.toml:3:", "note: text must be quoted: write use = \"v0.1\""});
  refused("[elasticity]\nuse = v0.1\n", {"pliant.toml:3:7: error: invalid value: "});
  refused("[sampler]\nuse = best_fit # the fewest packs\n", {"write use = \"best_fit\""});
  refused("[data]\ntext = texts/mine.txt\n", {"write text = \"texts/mine.txt\""});
  refused("[run]\ndeterministic = True\n", {"note: write deterministic = true"});
  refused("[run]\nworkers = 9223372036854775808\n",
          {"not representable in 64 bits", "note: whole numbers go from -9223372036854775808 to 9223372036854775807"});
  refused("[run]\nmax_restarts = 1e309 # for ever\n",
          {"pliant.toml:3:16: error: the number 1e309 is too large", "note: run.max_restarts must be at least 0\n",
           "note: numbers go from -1.7976931348623157e+308 to 1.7976931348623157e+308"});
  refused("[run] # a job\n\nworkers = 9223372036854775808\n", {"note: run.workers must be 1..4096"});
  refused("[app]\nrate = -1e400\n", {"pliant.toml:3:9: error: the number 1e400 is too large"});
  refused("[run]\ndeterministic = no\n", {"note: write deterministic = false"});
}

TEST_CASE("a misspelt table of a plugin that waits for its options is named, and what to write") {
  refused("[elasticity]\nuse = 'exact'\n[elasticity.exatc]\nmax_train_batch_size = 12\nmicro_batch_sizes = [1]\n",
          {"pliant.toml:4:13: error: [elasticity.exatc] is not the section of an installed plugin",
           "note: write [elasticity.exact]"});
}

TEST_CASE("a misspelt section hides nothing of what is wrong in it and because of it") {
  const std::string exact = "max_train_batch_size = 12\nmicro_batch_sizes = [2]\n";
  const std::string run = "[run]\nworkers = 7\n";  // 12 rows in granules of 2 are 6 at most
  refused_at("[elastcity]\nuse = 'exact'\n[elastcity.exact]\n" + exact + run,
             {"2:2: error: unknown section [elastcity]", "8:11: error: run.workers: "}, 2);
  refused_at("[elasticity]\nuse = 'exact'\n[elasticty.exact]\n" + exact + run,
             {"4:2: error: unknown section [elasticty]", "8:11: error: run.workers: "}, 2);
  refused_at("[elasticity]\nuse = 'exact'\n[elasticity.exatc]\n" + exact + run,
             {"4:13: error: [elasticity.exatc] is not", "8:11: error: run.workers: "}, 2);
  refused_at("[elasticity]\nuse = 'v0.1'\n[elasticity.v0.1]\n" + exact + run, {"4:", "8:11: error: run.workers: "}, 2);
  refused_at("[elastcity]\nuse = 'exact'\n[elastcity.exact]\nmax_train_batch_size = 0\nmicro_batch_sizes = [2]\n" + run,
             {"2:2: error: unknown section", "5:24: error: elasticity.exact.max_train_batch_size must be"}, 2);
  refused_at("[elastcity]\nuse = 'exact'\n[elastcity.exact]\nmicro_batch_sizes = [2]\n",
             {"2:2: error: unknown section", "4:12: error: max_train_batch_size is missing"}, 2);
  refused_at(kPlan + "[rnu]\nworkers = 5\nsed = 1\ncommand = ['no-such-program']\n",
             {"7:2: error: unknown section [rnu]", "8:11: error: run.workers: ", "9:1: error: unknown key 'sed'",
              "10:11: error: [run] command: 'no-such-program'"},
             4);
  refused_at("[dta]\ntext = 'no.txt'\n[samplr]\nuse = 'seqlen'\n[samplr.seqlen]\nmax_tokenz = 3\n",
             {"2:2: error: unknown section [dta]", "3:8: error: data.text: there is no",
              "4:2: error: unknown section [samplr]", "6:", "7:1: error: unknown key 'max_tokenz'"},
             5);
}

TEST_CASE("what a misspelt section says besides the right one counts only where that is silent") {
  refused_at(kPlan + "[run]\nworkers = 4\n[runn]\nworkers = 5\nseed = -1\n",
             {"9:2: error: unknown section [runn]", "11:8: error: run.seed must be at least 0"}, 2);
}

TEST_CASE("a section of somebody else is not read as the one whose name is near") {
  refused_at("[meta]\nauthor = 'I'\n", {"2:2: error: unknown section [meta]"}, 1);
  refused_at("[rum]\n", {"2:2: error: unknown section [rum]"}, 1);
}

TEST_CASE("a command that needs a misspelt section names it, and does not miss it") {
  const ScratchFolder folder;
  folder.write("pliant.toml", kVersion + "[elastcity]\nuse = 'exact'\n[elastcity.exact]\nmax_train_batch_size = 12\n" +
                                  "micro_batch_sizes = [2]\n");
  const Outcome outcome = run_pliant(folder, {"plan", "pliant.toml"});
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 2);
  CHECK(has(outcome.err, "unknown section [elastcity]"));
  CHECK(has(outcome.err, "note: did you mean 'elasticity'?"));
  CHECK_FALSE(has(outcome.err, "there is no [elasticity] section"));
}

TEST_CASE("characters that no keyboard shows are called what they are") {
  refused("[run]\nworkers\xc2\xa0= 2\n", {"pliant.toml:3:8: error: U+00A0 is a blank that TOML does not know"});
  refused("[run]\nworkers\xe2\x80\x8b = 2\n", {"U+200B is a blank"});
  refused("[run]\nname = \xe2\x80\x9cmine\xe2\x80\x9d\n", {"U+201C is a typographic quote; write \" or '"});
  refused("[run]\n\xc2\x85workers = 2\n", {"control character U+0085 is not allowed"});
  refused(
      "[run]\nname = \"a\x01"
      "b\"\n",
      {"control character 0x01 is not allowed"});
}

TEST_CASE("config check finds workers that the plan has no place for, where they are given") {
  refused(kPlan + "[run]\nworkers = 5\n", {"pliant.toml:8:11: error: run.workers: ",
                                           "world size 5 is not valid for global batch 12; nearest valid: 4, 6",
                                           "\n    8 | workers = 5\n", "\n  help: --set "});
  const ScratchFolder folder;
  CHECK(check(folder, kPlan + "[run]\nworkers = 4\n").exit_code == 0);
  CHECK(check(folder, kPlan + "[run]\nseed = 4\n").exit_code == 0);
}

TEST_CASE("config check finds a cap below every micro-batch, whatever the policy") {
  for (const std::string policy : {"v0.1", "v0.2", "exact"}) {
    CAPTURE(policy);
    refused("[elasticity]\nuse = '" + policy + "'\n[elasticity.'" + policy +
                "']\nmax_train_batch_size = 1\nmicro_batch_sizes = [2, 3]\n",
            {"pliant.toml:", "max_train_batch_size"});
  }
}

TEST_CASE("config check finds files and programs that are not there, all at once") {
  refused(
      "[data]\ntext = 'no.txt'\nlengths = 'no.npy'\nloss_tokens = 'none.npy'\n[run]\nworking_dir = 'nowhere'\n"
      "command = ['./train.sh']\n",
      {"pliant.toml:3:8: error: data.text: there is no /", "pliant.toml:4:11: error: data.lengths: there is no /",
       "pliant.toml:5:15: error: data.loss_tokens: there is no /", "pliant.toml:7:15: error: run.working_dir: /",
       "pliant.toml:8:11: error: [run] command: ./train.sh is not an "
       "executable program: there is no /"});
  refused("[run]\ncommand = ['no-such-program']\n", {"pliant.toml:3:11: error: [run] command: 'no-such-program' is "});
  const ScratchFolder folder;
  folder.write("text.txt", "words");
  CHECK(check(folder, "[data]\ntext = 'text.txt'\n[run]\ncommand = ['sh']\n").exit_code == 0);
}

TEST_CASE("config check finds what is misspelt and what is not there at once, in the order of the lines") {
  const ScratchFolder folder;
  const Outcome outcome =
      check(folder,
            "[sampler]\nuse = 'seqlen'\n[sampler.seqlen]\nmax_tokenz = 5\n[lr]\nuse = 'linear'\noptimizer = 'adamw'\n" +
                kPlan + "[run]\nworkers = 5\nsed = 3\ncommand = ['no-such-program']\n[data]\ntext = 'no.txt'\n");
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 2);
  size_t from = 0;
  for (const std::string place : {"4:", "5:1: error: unknown key 'max_tokenz'",
                                  "8:13: error: ", "15:11: error: run.workers: ", "16:1: error: unknown key 'sed'",
                                  "17:11: error: [run] command: ", "19:8: error: data.text: there is no"}) {
    CAPTURE(place);
    const size_t at = outcome.err.find("pliant.toml:" + place, from);
    CHECK(at != std::string::npos);
    from = at == std::string::npos ? from : at + 1;
  }
  const json whole = json::parse(run_pliant(folder, {"config", "check", "pliant.toml", "--json"}).out);
  CHECK(has(whole["message"], "unknown key 'sed'"));
  CHECK(has(whole["message"], "data.text: there is no"));
}

TEST_CASE("config check does not look at what needs a section that has errors") {
  const ScratchFolder folder;
  const Outcome outcome = check(folder, kPlan + "max_gpuz = 4\n[run]\nworkers = 5\ncommand = ['no-such-program']\n");
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 2);
  CHECK(has(outcome.err, "unknown key 'max_gpuz'"));
  CHECK(has(outcome.err, "[run] command: 'no-such-program'"));
  CHECK_FALSE(has(outcome.err, "run.workers"));
  const Outcome worded = check(folder, kPlan + "[run]\nworkers = 'five'\n[data]\ntext = 5\n");
  CHECK(has(worded.err, "run.workers must be an integer"));
  CHECK_FALSE(has(worded.err, "world size"));
  CHECK_FALSE(has(worded.err, "there is no /"));
}

TEST_CASE("a relative command is looked up in working_dir, and runs there") {
  const ScratchFolder folder;
  write_program(folder, "job/train.sh", "pwd\n");
  const std::string config = "[run]\nattach = 'never'\nworking_dir = 'job'\ncommand = ['./train.sh']\n";
  const Outcome checked = check(folder, config);
  CAPTURE(checked.err);
  CHECK(checked.exit_code == 0);
  const Outcome ran = run_pliant(folder, {"run", "pliant.toml", "--show-logs"});
  CAPTURE(ran.err);
  CHECK(ran.exit_code == 0);
  CHECK(has(ran.err, (folder / "job").string() + "\n"));
  // What is typed counts from where it is typed.
  write_program(folder, "here.sh", "echo typed\n");
  const Outcome typed = run_pliant(folder, {"run", "pliant.toml", "--show-logs", "--", "./here.sh"});
  CHECK(typed.exit_code == 0);
  CHECK(has(typed.err, "typed"));
  const Outcome bare = check(folder, "[run]\nworking_dir = 'job'\ncommand = ['train.sh']\n");
  CHECK(bare.exit_code == 2);
  CHECK(has(bare.err, "; write ./train.sh for " + (folder / "job" / "train.sh").string()));
}

TEST_CASE("a flag out of its range says the range, and a word that is no number as well") {
  const ScratchFolder folder;
  folder.write("pliant.toml", kVersion + kPlan);
  const std::vector<std::pair<Words, std::string>> cases{
      {{"run", "pliant.toml", "--workers", "0"}, "--workers: must be 1..4096, not '0'"},
      {{"run", "pliant.toml", "--workers", "5000"}, "--workers: must be 1..4096, not '5000'"},
      {{"run", "pliant.toml", "--workers", "four"}, "--workers: must be a whole number (1..4096), not 'four'"},
      {{"plan", "pliant.toml", "--world-size", "0"}, "--world-size: must be 1..1099511627776, not '0'"},
      {{"plan", "pliant.toml", "--world-size", "99999999999999999999"}, "--world-size: must be "},
      {{"accel", "bench", "host", "--min-time", "-1"}, "--min-time: must be 1e-06..3600, not '-1'"},
      {{"version", "--color", "blue"}, "--color: must be auto, always or never, not 'blue'"},
  };
  for (const auto& [args, wanted] : cases) {
    const Outcome outcome = run_pliant(folder, args);
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code == 2);
    CHECK(has(outcome.err, wanted));
    CHECK(outcome.err.size() < 200);  // no number of 309 digits
  }
}

TEST_CASE("a program without its -- is recognised, and the whole line shown") {
  const ScratchFolder folder;
  folder.write("job.toml", kVersion);
  const Outcome outcome = run_pliant(folder, {"run", "job.toml", "python", "train.py", "--lr", "0.1", "two words"});
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 2);
  CHECK(has(outcome.err,
            "unexpected argument 'python'; write the program to run after --:\n"
            "  pliant run job.toml -- python train.py --lr 0.1 'two words'\n"));
  CHECK(has(run_pliant(folder, {"run", "python", "train.py"}).err, "  pliant run -- python train.py\n"));
  CHECK(has(run_pliant(folder, {"run", "job.toml", "--workers", "2", "a.sh"}).err,
            "  pliant run job.toml --workers 2 -- a.sh\n"));
  CHECK_FALSE(has(run_pliant(folder, {"plan", "job.toml", "python"}).err, " -- "));
  CHECK_FALSE(has(run_pliant(folder, {"run", "job.toml", "--resum"}).err, " -- "));
}

TEST_CASE("--compare takes policies whose file the config or the command line names") {
  const ScratchFolder folder;
  const fs::path mine = folder / "mine.so";
  fs::copy_file(fs::path(PLIANT_PLUGIN_DIR) / "elasticity-exact.pliant.so", mine);
  ::chmod(mine.c_str(), 0755);
  folder.write("pliant.toml", kVersion +
                                  "[elasticity]\nuse = 'exact'\npath = 'mine.so'\n[elasticity.exact]\n"
                                  "max_train_batch_size = 24\nmicro_batch_sizes = [2, 3, 4]\n");
  const auto names = [&](const std::string& list) {
    const json compared = parsed(run_pliant(folder, {"plan", "pliant.toml", "--json", "--compare", list}));
    Words found;
    for (const json& one : compared["policies"]) {
      CHECK_FALSE(one.contains("error"));
      found.push_back(one["policy"]);
    }
    return found;
  };
  CHECK(names("v0.1,exact") == Words{"v0.1", "exact"});
  folder.write("pliant.toml", kVersion + kPlan);
  CHECK(names("v0.1,./mine.so") == Words{"v0.1", "exact"});
  const Outcome none = run_pliant(folder, {"plan", "pliant.toml", "--compare", "v0.1,./none.so"});
  CHECK(none.exit_code == 3);
  CHECK(has(none.err, "none.so"));
}

TEST_CASE("plan and --compare show one figure for one thing, and exact is not behind v0.1 over what it counts") {
  const ScratchFolder folder;
  folder.write("pliant.toml", kVersion +
                                  "[elasticity]\nuse = 'exact'\n[elasticity.exact]\n"
                                  "max_train_batch_size = 24\nmicro_batch_sizes = [2, 3, 4]\n");
  const json plan = parsed(run_pliant(folder, {"plan", "pliant.toml", "--json"}));
  CHECK(plan["global_batch"] == 20);
  CHECK(plan["world_size_ranges"] == json{{1, 20}});
  CHECK(plan["largest_counted"] == 24);
  CHECK(plan["mean_efficiency"] == doctest::Approx(0.836).epsilon(0.001));
  const json compared = parsed(run_pliant(folder, {"plan", "pliant.toml", "--json", "--compare", "v0.1,exact"}));
  CHECK(compared["cluster_sizes"] == json{1, 24});
  const json& even = compared["policies"][0];
  const json& exact = compared["policies"][1];
  CHECK(exact["mean_efficiency"] == plan["mean_efficiency"]);
  CHECK(exact["mean_efficiency_of_clusters"] == plan["mean_efficiency"]);
  CHECK(exact["mean_efficiency_of_clusters"] > even["mean_efficiency_of_clusters"]);
  const json v01 = parsed(run_pliant(folder, {"plan", "pliant.toml", "--json", "--set", "elasticity.use=\"v0.1\"",
                                              "--set", "elasticity.\"v0.1\".max_train_batch_size=24", "--set",
                                              "elasticity.\"v0.1\".micro_batch_sizes=[2,3,4]"}));
  CHECK(even["mean_efficiency"] == v01["mean_efficiency"]);
  const Outcome text = run_pliant(folder, {"plan", "pliant.toml", "--compare", "v0.1,exact"});
  CHECK(has(text.out, "mean efficiency  over 1 to 24 ranks\n"));
  CHECK(has(run_pliant(folder, {"plan", "pliant.toml"}).out,
            "83.6 % of the device time, averaged over clusters of 1 to 24 ranks"));
}
