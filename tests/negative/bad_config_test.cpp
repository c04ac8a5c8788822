// Configs that must be refused: every error at once, sorted, with position, source line, caret and a hint; exit code 2.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <chrono>
#include <string>
#include <vector>

#include "negative/pliant_process.hpp"

namespace {

namespace fs = std::filesystem;
using pliant::test::Outcome;
using pliant::test::run_pliant;
using pliant::test::ScratchFolder;

Outcome check(const ScratchFolder& folder, const std::string& text, const std::vector<std::string>& more = {}) {
  folder.write("pliant.toml", text);
  std::vector<std::string> args{"config", "check", "pliant.toml", "--plugin-dir", NEGATIVE_PLUGIN_DIR};
  args.insert(args.end(), more.begin(), more.end());
  return run_pliant(folder, args);
}

struct BadConfig {
  const char* text;    ///< after `config_version = 1`, so that its first line is line 2
  const char* wanted;  ///< must be in stderr
};

void check_all(const std::vector<BadConfig>& cases) {
  const ScratchFolder folder;
  for (const BadConfig& bad : cases) {
    const Outcome outcome = check(folder, std::string("config_version = 1\n") + bad.text);
    CAPTURE(bad.text);
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.out.empty());
    CHECK(outcome.err.find(bad.wanted) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("unknown and misspelt sections, keys, plugins and values get a position and the near word") {
  check_all({
      {"[elasticitty]\nuse = 'good'", "pliant.toml:2:2: error: unknown section [elasticitty]"},
      {"[elasticitty]\nuse = 'good'", "note: did you mean 'elasticity'?"},
      {"version = 1", "pliant.toml:2:1: error: unknown key 'version'"},
      {"[run]\nworker = 2", "pliant.toml:3:1: error: unknown key 'worker' in [run]"},
      {"[run]\nworker = 2", "note: did you mean 'workers'?"},
      {"[run]\nzzz = 2", "note: its keys are: workers, command, seed"},
      {"[lr]\nbase_lrr = 2", "unknown key 'base_lrr' in [lr]"},
      {"[plugins]\ndir = []", "did you mean 'dirs'?"},
      {"[elasticity]\nuse = 'good'\nfirst = 3",
       "note: it is an option of plugin 'good': write it below [elasticity.good]"},
      {"[elasticity]\nuse = 'good'\n[elasticity.good]\nfrst = 3",
       "pliant.toml:5:1: error: unknown key 'frst' in [elasticity.good]"},
      {"[run]\non_loss = 'replac'", "must be one of \"replace\", \"shrink\", \"stop\", not the string \"replac\""},
      {"[run]\non_loss = 'replac'", "note: did you mean \"replace\"?"},
  });
}

TEST_CASE("wrong types say what was expected and what was found") {
  check_all({
      {"[run]\nworkers = '4'",
       "pliant.toml:3:11: error: run.workers must be an integer (1..4096), not the string \"4\""},
      {"[coordinator]\nbudget = '1GiB'",
       "coordinator.budget must be an integer (at least 0 bytes), not the string \"1GiB\"; write 1073741824"},
      {"[coordinator]\nbudget = '64 MB'", "not the string \"64 MB\"; write 64000000"},
      {"[coordinator]\nbudget = '99999999999 GiB'", "not the string \"99999999999 GiB\"\n"},
      {"[run]\nseed = '1KiB'", "not the string \"1KiB\"\n"},
      {"[run]\nseed = 1.0", "run.seed must be an integer (at least 0), not the float 1.0"},
      {"[run]\ndeterministic = 1", "run.deterministic must be true or false, not the integer 1"},
      {"[run]\nname = 3", "run.name must be a string in quotes, not the integer 3"},
      {"[run]\ncommand = 'train'",
       "run.command must be a list, each element a string in quotes, not the string \"train\""},
      {"[run]\ncommand = ['train', 3]", "run.command[1] must be a string in quotes, not the integer 3"},
      {"[run]\nstart_timeout_s = inf", "run.start_timeout_s must be a finite number, not inf"},
      {"[lr]\nbase_lr = nan", "lr.base_lr must be a finite number, not nan"},
      {"[run]\nworkers = 2026-01-01", "not the date or time 2026-01-01"},
      {"[run]\nworkers = {}", "not a table"},
      {"run = 3", "pliant.toml:2:1: error: 'run' must be a section (a table), not the integer 3"},
      {"[[run]]\nworkers = 2", "'run' must be a section (a table), not a list"},
      {"[elasticity]\nuse = 7", "elasticity.use must be the name of a plugin, not the integer 7"},
      {"[elasticity]\nuse = '../x'", "elasticity.use must be the name of a plugin, not the string \"../x\""},
      {"[elasticity]\nuse = 'good'\npath = 7", "elasticity.path must be the path of a plugin file, not the integer 7"},
      {"[elasticity]\nuse = 'good'\ngood = 7", "[elasticity.good] must be a table, not the integer 7"},
  });
}

TEST_CASE("values out of range say the range") {
  check_all({
      {"[run]\nworkers = 0", "pliant.toml:3:11: error: run.workers must be 1..4096, not 0"},
      {"[run]\nworkers = 4097", "run.workers must be 1..4096, not 4097"},
      {"[run]\nmax_steps = -1", "run.max_steps must be at least 0 steps, not -1"},
      {"[run]\nstart_timeout_s = 0", "run.start_timeout_s must be 0.1..1000000 s, not 0.0"},
      {"[run]\nworkers = 9223372036854775808", "pliant.toml:3:"},
      {"[run]\nname = 'a/b'", "run.name must be made of letters, digits, '.', '_' and '-', not the string \"a/b\""},
      {"[elasticity]\nuse = 'good'\n[elasticity.good]\nfirst = 101",
       "elasticity.good.first must be 1..100 rows, not 101"},
  });
}

TEST_CASE("a key that is there twice is reported where its second copy begins") {
  check_all({
      {"[run]\nseed = 1\nseed = 2", "pliant.toml:4:1: error: "},
      {"[run]\nseed = 1\nseed = 2", "    4 | seed = 2\n      | ^~~~\n"},
      {"[run]\nseed = 1\n[run]\nname = 'a'", "pliant.toml:4:"},
  });
}

TEST_CASE("config_version must be there and be 1") {
  const ScratchFolder folder;
  CHECK(check(folder, "[run]\nworkers = 2\n").err.find("pliant.toml:1:1: error: config_version is missing") == 0);
  CHECK(check(folder, "config_version = 2\n")
            .err.find("config_version 2 is newer than this pliant, which reads version 1") != std::string::npos);
  CHECK(check(folder, "config_version = 0\n").err.find("config_version must be 1, not 0") != std::string::npos);
  CHECK(check(folder, "config_version = '1'\n").err.find("config_version must be the integer 1") != std::string::npos);
  const Outcome empty = check(folder, "");
  CHECK(empty.exit_code == 2);
  CHECK(empty.err.find("pliant.toml: error: the file is empty\n  note: write config_version = 1 on the first line") ==
        0);
  CHECK(check(folder, "# only a comment\n").exit_code == 2);
}

TEST_CASE("all errors come at once, sorted by position, overrides last") {
  const ScratchFolder folder;
  const Outcome outcome = check(folder, "config_version = 1\n[run]\nworkers = 0\nsed = 1\n[data]\ntext = 5\n[zzz]\n",
                                {"--set", "run.seed=x", "--set", "nonsense"});
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 2);
  size_t before = 0;
  for (const std::string where : {"pliant.toml:3:11: error: ", "pliant.toml:4:1: error: ", "pliant.toml:6:8: error: ",
                                  "pliant.toml:7:2: error: ", "--set run.seed=x: error: ", "--set nonsense: error: "}) {
    const size_t at = outcome.err.find(where);
    CAPTURE(where);
    CHECK(at != std::string::npos);
    if (where.rfind("pliant", 0) == 0) CHECK(at >= before);
    before = at;
  }
  CHECK(outcome.err.find("    3 | workers = 0\n      |           ^\n") != std::string::npos);
}

TEST_CASE("a table whose name does not begin behind its bracket is refused with the place") {
  const ScratchFolder folder;
  const std::string first = "config_version = 1\n";
  for (const char* header : {"[=run]", "[ =run]", "[[=run]]", "\t[ =run]"}) {
    CAPTURE(header);
    const Outcome outcome = check(folder, first + header + "\nworkers = 1\n");
    CHECK(outcome.exit_code == 2);
    const auto column = std::string(header).find('=') + 1;
    CHECK(outcome.err.find("pliant.toml:2:" + std::to_string(column) +
                           ": error: the name of a table cannot begin with '='") == 0);
  }
  for (const char* header : {"[", "[ ", "[[", "[ \r"}) {
    CAPTURE(header);
    const Outcome outcome = check(folder, first + header + "\nrun]\n");
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.err.find("pliant.toml:2:1: error: the name of a table must stand behind its bracket") == 0);
  }
  CHECK(check(folder, first + "[#run]\n").exit_code == 2);
  CHECK(check(folder, first + "[[#run]]\n").exit_code == 2);
  CHECK(check(folder, first + "[.run]\n").exit_code == 2);
  CHECK(check(folder, "[").exit_code == 2);
  // Not where values are.
  CHECK(check(folder, first + "[app]\nx = [\n  [\n    1,\n  ],\n]\n").err.find("table") == std::string::npos);
}

TEST_CASE("files that are no text, no file, or too large are refused at once") {
  const ScratchFolder folder;
  const Outcome missing = run_pliant(folder, {"plan", "nowhere.toml"});
  CHECK(missing.exit_code == 2);
  CHECK(missing.err.find("nowhere.toml: error: there is no such file") == 0);
  CHECK(run_pliant(folder, {"plan", "."}).err.find(".: error: this is a directory; name the file in it") == 0);

  CHECK(check(folder, std::string("\x7f"
                                  "ELF\x02\x01\0\0\0",
                                  9))
            .err.find("is this a binary file?") != std::string::npos);
  CHECK(check(folder, "config_version = 1\nx = \"\xff\xfe\"\n")
            .err.find("pliant.toml:2:6: error: byte 0xff is not UTF-8") == 0);
  CHECK(
      check(folder, "config_version = 1\nna\xc3\xafve = 1\n").err.find("a letter outside ASCII must stand in quotes") !=
      std::string::npos);
  CHECK(check(folder, "config_version = 1\n\xef\xbb\x9f`\n").exit_code == 2);

  folder.write("huge.toml", "");
  fs::resize_file(folder.path() / "huge.toml", 100 << 20);
  const Outcome huge = run_pliant(folder, {"plan", "huge.toml"});
  CHECK(huge.exit_code == 2);
  CHECK(huge.err.find("huge.toml: error: the file has 104857600 bytes; a config may have at most 4 MiB") == 0);
  CHECK(run_pliant(folder, {"plan", "/dev/zero"}).err.find("bytes or more; a config may have at most 4 MiB") !=
        std::string::npos);
}

TEST_CASE("nesting of any kind and depth ends in an error, not in a crash") {
  const ScratchFolder folder;
  const size_t deep = 300000;
  std::string dotted = "a";
  for (size_t i = 0; i < deep; ++i) dotted += ".a";
  const std::string inline_tables = [&] {
    std::string text;
    for (size_t i = 0; i < deep; ++i) text += "{a=";
    return text;
  }();
  for (const std::string& text :
       {"x = " + std::string(deep, '['), "x = " + inline_tables, dotted + " = 1", "[" + dotted + "]",
        "[[" + dotted + "]]", "x = " + std::string(deep, '[') + std::string(deep, ']')}) {
    const Outcome outcome = check(folder, "config_version = 1\n" + text + "\n");
    CAPTURE(outcome.err.substr(0, 200));
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.err.find("nesting deeper than 64 levels") != std::string::npos);
  }
  const std::string brackets = "[app]\nx = \"" + std::string(1000, '[') + "\" # " + std::string(1000, '.') + "\n";
  CHECK(check(folder, "config_version = 1\n" + brackets).exit_code == 0);
}

TEST_CASE("syntax errors point at the line") {
  check_all({
      {"[run\nworkers = 1", "pliant.toml:2:"},
      {"[run]\nworkers = ", "pliant.toml:3:"},
      {"[run]\nname = \"open", "pliant.toml:3:"},
      {"[run]\nworkers 4", "pliant.toml:3:"},
      {"[run]\n= 4", "pliant.toml:3:"},
  });
}

TEST_CASE("a section that a command needs but that chooses no plugin lists what there is") {
  const ScratchFolder folder;
  folder.write("pliant.toml", "config_version = 1\n");
  const Outcome none = run_pliant(folder, {"plan", "pliant.toml", "--plugin-dir", NEGATIVE_PLUGIN_DIR});
  CHECK(none.exit_code == 2);
  CHECK(none.err.find("pliant.toml: error: there is no [elasticity] section, and this command needs one") == 0);
  CHECK(none.err.find("installed: ") != std::string::npos);
  folder.write("pliant.toml", "config_version = 1\n[elasticity]\n");
  const Outcome no_use = run_pliant(folder, {"plan", "pliant.toml", "--plugin-dir", NEGATIVE_PLUGIN_DIR});
  CHECK(no_use.exit_code == 2);
  CHECK(no_use.err.find("pliant.toml:2:2: error: [elasticity] does not name the plugin to use") == 0);
}

TEST_CASE("overrides that are wrong are named as they were typed") {
  const ScratchFolder folder;
  const std::string text = "config_version = 1\n[run]\nworkers = 2\n";
  const auto says = [&](const std::string& set, const std::string& wanted) {
    const Outcome outcome = check(folder, text, {"--set", set});
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.err.find(wanted) != std::string::npos);
  };
  says("run.workers=x", "--set run.workers=x: error: run.workers must be an integer (1..4096), not the string \"x\"");
  says("run.workers=0", "--set run.workers=0: error: run.workers must be 1..4096, not 0");
  says("run.wrkers=2", "--set run.wrkers=2: error: unknown key 'wrkers' in [run]\n  note: did you mean 'workers'?");
  says("run.workers", "--set run.workers: error: this does not have the form key=value");
  says("=3", "--set =3: error: this does not have the form key=value");
  says("run.workers.x=3", "run.workers is not a table, so run.workers.x cannot be set");
  says("elasticity.v0.1.max_gpus=3", "put a plugin name that has a dot in quotes");
  says("runn.workers=3", "--set runn.workers=3: error: unknown section [runn]\n  note: did you mean 'run'?");

  folder.write("pliant.toml", text);
  const Outcome variable = run_pliant(folder, {"config", "check", "pliant.toml"}, {"PLIANT__RUN__WORKER=3"});
  CHECK(variable.exit_code == 2);
  CHECK(variable.err.find("environment PLIANT__RUN__WORKER: error: this does not name an option\n  note: did you mean "
                          "PLIANT__RUN__WORKERS?") == 0);
  const Outcome value = run_pliant(folder, {"config", "check", "pliant.toml"}, {"PLIANT__RUN__WORKERS=many"});
  CHECK(value.exit_code == 2);
  CHECK(value.err.find("environment PLIANT__RUN__WORKERS: error: run.workers must be an integer") == 0);
}

TEST_CASE("a table of a plugin that is not installed is a warning, and an error when it was typed for this call") {
  const ScratchFolder folder;
  const std::string text = "config_version = 1\n[elasticity]\nuse = 'good'\n[elasticity.gold]\nx = 1\n";
  const Outcome outcome = check(folder, text);
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err.find("pliant.toml:4:13: warning: [elasticity.gold] is not the section of an installed plugin") ==
        0);
  CHECK(outcome.err.find("did you mean 'good'?") != std::string::npos);
  const Outcome typed =
      check(folder, "config_version = 1\n[elasticity]\nuse = 'good'\n", {"--set", "elasticity.gold.first=2"});
  CHECK(typed.exit_code == 2);
}

TEST_CASE(
    "a rule of [lr] that is not valid for the optimizer is refused by check, where the file says so and as run says "
    "it") {
  const ScratchFolder folder;
  const auto refused = [&](const std::string& text, const std::string& wanted) {
    const std::string whole =
        "config_version = 1\n[elasticity]\nuse = \"v0.1\"\n[elasticity.\"v0.1\"]\n"
        "max_train_batch_size = 8\nmicro_batch_sizes = [2]\n[run]\ncommand = [\"true\"]\n" +
        text;
    folder.write("pliant.toml", whole);
    const Outcome checked = run_pliant(folder, {"config", "check", "pliant.toml"});
    CAPTURE(checked.err);
    CHECK(checked.exit_code == 2);
    CHECK(checked.out.empty());
    CHECK(checked.err.find(wanted) != std::string::npos);
    const Outcome run = run_pliant(folder, {"run", "pliant.toml"});
    CHECK(run.exit_code == 2);
    CHECK(run.err == checked.err);
    const Outcome json = run_pliant(folder, {"config", "check", "pliant.toml", "--json"});
    CHECK(json.exit_code == 2);
    CHECK(json.out.find("\"ok\":false") != std::string::npos);
  };
  refused(
      "[lr]\nuse = 'adascale'\noptimizer = 'adam'\n",
      "pliant.toml:11:13: error: lr 'adascale' is valid for sgd, sgd_momentum, nesterov only, and [lr] optimizer is "
      "\"adam\"");
  refused("[lr]\nuse = 'adam_sde'\n", "pliant.toml:10:7: error: lr 'adam_sde' depends on the optimizer");
  refused("[lr]\nuse = 'sqrt'\nthen = ['momentum']\noptimizer = 'adamw'\n",
          "pliant.toml:12:13: error: lr 'momentum' is valid for sgd_momentum, nesterov only");
  refused("[lr]\nuse = 'sqrt'\nthen = ['momentum']\n", "pliant.toml:11:9: error: lr 'momentum' depends on");
  folder.write("pliant.toml", "config_version = 1\n[lr]\nuse = 'sqrt'\nthen = ['momentum']\noptimizer = 'nesterov'\n");
  CHECK(run_pliant(folder, {"config", "check", "pliant.toml"}).exit_code == 0);
  const Outcome set = run_pliant(folder, {"config", "check", "pliant.toml", "--set", "lr.optimizer=lion"});
  CHECK(set.exit_code == 2);
}

TEST_CASE("a config may come through a pipe, whatever the command reads of it") {
  const ScratchFolder folder;
  folder.write("pliant.toml",
               "config_version = 1\n[elasticity]\nuse = 'v0.1'\n[elasticity.'v0.1']\n"
               "max_train_batch_size = 12\nmicro_batch_sizes = [1]\n");
  const std::string command =
      "sleep 0 | cat - pliant.toml | '" + std::string(PLIANT_BIN_DIR) + "/pliant' plan /dev/stdin --json";
  const Outcome outcome = run_pliant(folder, {"-c", command}, {}, {}, "/bin/sh");
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out.find("\"global_batch\":12") != std::string::npos);
}

TEST_CASE("a config that is a pipe without a writer, a device or a folder is refused at once") {
  const ScratchFolder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  const auto refusal = [&](const char* file) {
    const Outcome outcome = run_pliant(folder, {"config", "check", file});
    CHECK(outcome.exit_code == 2);
    return outcome.err;
  };
  CHECK(refusal("pipe").find("pipe: error: this is a pipe without a writer") == 0);
  CHECK(refusal("/dev/zero").find("a config may have at most 4 MiB") != std::string::npos);
  CHECK(refusal(".").find("this is a directory") != std::string::npos);
}

TEST_CASE("control characters of a file that is quoted do not reach the terminal") {
  const ScratchFolder folder;
  folder.write("lengths.txt",
               "5\n\x1b]0;title\x07\x9b"
               "2J\n");
  const Outcome outcome = check(folder, "config_version = 1\n[run]\nname = \"a\\u001b[31mb\"\n");
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.err.find('\x1b') == std::string::npos);
  folder.write("pliant.toml", "config_version = 1\n[data]\nlengths = 'lengths.txt'\n[sampler]\nuse = 'fixed'\n");

  for (const bool json : {false, true}) {
    std::vector<std::string> words{"pack", "pliant.toml"};
    if (json) words.emplace_back("--json");
    const Outcome packed = run_pliant(folder, words);
    CAPTURE(packed.err);
    CHECK(packed.exit_code == 2);
    CHECK((packed.out + packed.err).find_first_of("\x1b\x07\x9b") == std::string::npos);
  }
}
