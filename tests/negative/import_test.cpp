// pliant config import from the command line: streams, files, exit codes.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "negative/pliant_process.hpp"

namespace {

namespace fs = std::filesystem;
using pliant::test::Outcome;
using pliant::test::read_all;
using pliant::test::run_pliant;
using pliant::test::ScratchFolder;

constexpr const char* kSource =
    "{\"elasticity\": {\"enabled\": true, \"max_train_batch_size\": 2000, \"micro_batch_sizes\": [2, 4, 6], "
    "\"version\": 0.1},\n"
    " \"fp16\": {\"enabled\": true}}\n";

/// A folder with ds.json in it.
struct Folder : ScratchFolder {
  Folder() { static_cast<void>(write("ds.json", kSource)); }
  [[nodiscard]] Outcome import(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"config", "import", "ds.json"});
    return run_pliant(*this, more);
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("import writes the TOML to stdout and a line for every key not carried to stderr") {
  const Folder folder;
  const Outcome outcome = folder.import();
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "use = \"v0.1\""));
  CHECK(contains(outcome.out, "# - fp16.enabled: precision belongs to the training program\n"));
  CHECK(outcome.err == "note: not carried: fp16.enabled: precision belongs to the training program\n");
  CHECK(folder.import({"-q"}).err.empty());
}

TEST_CASE("import names the keys of one block that have one reason in one line") {
  const Folder folder;
  static_cast<void>(folder.write("ds.json",
                                 "{\"fp16\": {\"enabled\": true, \"loss_scale\": 0}, \"steps_per_print\": 5, "
                                 "\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"cpu\"}, "
                                 "\"overlap_comm\": true, \"offload_optimizer\": {\"device\": \"cpu\"}}}"));
  const std::string notes = folder.import().err;
  CHECK(
      notes ==
      "note: not carried: fp16.enabled: shards are computed in f32 or bf16: coordinator.compute_dtype, default "
      "\"f32\"\n"
      "note: not carried: fp16.loss_scale: precision belongs to the training program\n"
      "note: not carried: steps_per_print: monitoring belongs to the training program; `pliant run --json` reports the "
      "job\n"
      "note: not carried: zero_optimization: Pliant has no tier below the device: parameters and optimizer state stay "
      "on the device (offload_param.device, offload_optimizer.device)\n"
      "note: not carried: zero_optimization.overlap_comm: gathers and reduces always overlap with the computation\n");
  for (const char* line :
       {"# - fp16.loss_scale: precision belongs to the training program\n", "# - zero_optimization.overlap_comm: "}) {
    CHECK(contains(folder.import({"-q"}).out, line));
  }
}

TEST_CASE("what import wrote passes config check and plan") {
  const Folder folder;
  const Outcome outcome = folder.import({"--output", "pliant.toml"});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out.empty());
  std::string nameless = read_all(folder / "pliant.toml");
  CHECK(contains(nameless,
                 "\n# Next: `pliant config check pliant.toml`, then `pliant plan pliant.toml --world-size N`.\n"));
  const std::string named = nameless;
  for (size_t at = nameless.find("pliant.toml"); at != std::string::npos; at = nameless.find("pliant.toml"))
    nameless.replace(at, 11, "FILE");
  const auto words = [](std::string text) {  // comments are wrapped
    std::erase_if(text, [](char c) { return c == ' ' || c == '\n' || c == '#'; });
    return text;
  };
  CHECK(contains(words(named), "`pliantplanpliant.toml--comparev0.1,exact`shows"));
  CHECK(words(nameless) == words(folder.import().out));
  CHECK(folder.import({"--output", "two words.toml"}).exit_code == 0);
  CHECK(contains(read_all(folder / "two words.toml"), "# Next: `pliant config check FILE`"));
  CHECK(run_pliant(folder, {"config", "check", "pliant.toml"}).exit_code == 0);
  const Outcome plan = run_pliant(folder, {"plan", "pliant.toml", "--world-size", "4", "--json"});
  CHECK(nlohmann::json::parse(plan.out)["global_batch"] == 1680);
}

TEST_CASE("import --json has the TOML and both lists") {
  const Folder folder;
  const auto json = nlohmann::json::parse(folder.import({"--json"}).out);
  CHECK(json["schema"] == "pliant.config_import/1");
  CHECK(json["toml"] == folder.import().out);
  CHECK(json["carried"][0] == nlohmann::json{{"from", "elasticity.enabled"}, {"to", "elasticity"}});
  CHECK(json["carried"][2] == nlohmann::json{{"from", "elasticity.max_train_batch_size"},
                                             {"to", "elasticity.\"v0.1\".max_train_batch_size"}});
  CHECK(json["not_carried"][0]["key"] == "fp16.enabled");
}

TEST_CASE("import replaces a file only when it is told to, and keeps it when it fails") {
  const Folder folder;
  static_cast<void>(folder.write("old.toml", "mine"));
  const Outcome refused = folder.import({"--output", "old.toml"});
  CHECK(refused.exit_code == 2);
  CHECK(refused.err == "pliant: error: old.toml exists already; choose another name, or overwrite it with --force\n");
  CHECK(read_all(folder / "old.toml") == "mine");
  static_cast<void>(folder.write("ds.json", "{"));
  CHECK(folder.import({"--output", "old.toml", "--force"}).exit_code == 2);
  CHECK(read_all(folder / "old.toml") == "mine");
  static_cast<void>(folder.write("ds.json", kSource));
  fs::create_symlink("old.toml", folder / "link.toml");
  CHECK(folder.import({"--output", "link.toml", "--force"}).exit_code == 0);
  CHECK(contains(read_all(folder / "old.toml"), "use = \"v0.1\""));
  CHECK(fs::is_symlink(folder / "link.toml"));
  CHECK(folder.names() == std::vector<std::string>{".stderr", ".stdout", "ds.json", "link.toml", "old.toml"});
}

TEST_CASE("import says why a file cannot be written, and leaves nothing behind") {
  const Folder folder;
  const Outcome missing = folder.import({"--output", "no/such/pliant.toml"});
  CHECK(missing.exit_code == 2);
  CHECK(missing.err == "pliant: error: cannot write no/such/pliant.toml: folder no/such does not exist\n");
  const Outcome directory = folder.import({"--output", ".", "--force"});
  CHECK(directory.exit_code == 2);
  CHECK(contains(directory.err, "pliant: error: . is a directory; name a file"));
  const Outcome device = folder.import({"--output", "/dev/null", "--force"});
  CHECK(device.exit_code == 2);
  CHECK(contains(device.err, "/dev/null is not a regular file"));
  CHECK(fs::is_character_file("/dev/null"));
}

TEST_CASE("import survives a disk that takes no more, and leaves nothing behind") {
  const Folder folder;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{1, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  const Outcome outcome = run_pliant(folder, {"-q", "config", "import", "ds.json", "--output", "pliant.toml"});
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(outcome.exit_code == 1);
  CHECK(folder.names() == std::vector<std::string>{".stderr", ".stdout", "ds.json"});
}

TEST_CASE("import refuses a bad source with 2 and its place") {
  const Folder folder;
  CHECK(contains(run_pliant(folder, {"config", "import", "nowhere.json"}).err,
                 "nowhere.json: error: there is no such file"));
  static_cast<void>(folder.write("ds.json", "{\"elasticity\": {\n  \"enabled\" true}}"));
  const Outcome outcome = folder.import();
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.out.empty());
  CHECK(outcome.err.find("ds.json:2:13: error: expected ':' after the key, found 't'\n") == 0);
  static_cast<void>(folder.write("pliant.toml", "config_version = 1\n"));
  const Outcome toml = run_pliant(folder, {"config", "import", "pliant.toml"});
  CHECK(toml.err.find("pliant.toml:1:1: error: expected a value, found 'c'\n") == 0);
  CHECK(contains(toml.err, "\n  note: a DeepSpeed config is JSON: "));
  const Outcome json = folder.import({"--json"});
  CHECK(nlohmann::json::parse(json.out)["schema"] == "pliant.error/1");
  CHECK(contains(folder.import({"--set", "run.workers=2"}).err, "give it to the command that reads the TOML"));
  CHECK(contains(folder.import({"--force"}).err, "--force overwrites the file of --output; give --output, too"));
}
