// Precedence: flag > --set > environment > file > default; and how each of them names a key.
#include <doctest/doctest.h>

#include "base/inside.hpp"
#include "config/open.hpp"
#include "config/values/overrides.hpp"
#include "unit/config/config_file.hpp"

using pliant::Config;
using pliant::test::ConfigFile;
using pliant::test::contains;
using pliant::test::needs_elasticity;
using pliant::test::Variable;

namespace {

int64_t max_gpus(const Config& config) {
  return pliant::test::elasticity_option(config, "max_gpus").integer;
}

/// Who set run.workers, as `config show --origin` says it.
std::string origin_of_workers(const ConfigFile& file) {
  for (const auto& shown : pliant::config::effective(pliant::detail::inside(file.open()))) {
    if (pliant::config::dotted(shown.path) == "run.workers") return shown.origin;
  }
  return "nobody";
}

}  // namespace

TEST_CASE("each layer beats the ones below it, and says so") {
  ConfigFile plain("");
  CHECK(plain.open().run().workers == 1);
  CHECK(origin_of_workers(plain) == "default");
  ConfigFile file("[run]\nworkers = 2\n");
  CHECK(file.open().run().workers == 2);
  CHECK(origin_of_workers(file) == file.file.string() + ":3:11");
  const Variable variable("PLIANT__RUN__WORKERS", "3");
  CHECK(file.open().run().workers == 3);
  CHECK(origin_of_workers(file) == "environment PLIANT__RUN__WORKERS");
  file.overrides.sets = {"run.workers=4", "run.workers=5"};
  CHECK(file.open().run().workers == 5);
  CHECK(origin_of_workers(file) == "--set run.workers=5");
  file.overrides.flags = {{"--workers 6", "run.workers=6"}};
  CHECK(file.open().run().workers == 6);
  CHECK(origin_of_workers(file) == "--workers 6");
}

TEST_CASE("without the environment nothing of it counts") {
  const Variable workers("PLIANT__RUN__WORKERS", "3");
  const Variable nonsense("PLIANT__NONSENSE", "3");
  const Variable relative("PLIANT_PLUGIN_PATH", "relative");
  ConfigFile file("");
  CHECK(contains(file.refusal(), "environment PLIANT__NONSENSE: error: this does not name an option"));
  CHECK(contains(file.refusal(), "entry 'relative' of PLIANT_PLUGIN_PATH is relative"));
  file.overrides.read_environment = false;
  CHECK(file.open().run().workers == 1);
}

TEST_CASE("a key below a plugin with a dot in its name is set by a quoted key or by underscores") {
  ConfigFile file("[elasticity]\nuse = 'v0.9'\n[elasticity.'v0.9']\nmax_gpus = 4\n");
  CHECK(max_gpus(file.open(needs_elasticity())) == 4);
  {
    const Variable variable("PLIANT__ELASTICITY__V0_9__MAX_GPUS", "5");
    CHECK(max_gpus(file.open(needs_elasticity())) == 5);
    file.overrides.sets = {"elasticity.\"v0.9\".max_gpus=6"};
    CHECK(max_gpus(file.open(needs_elasticity())) == 6);
  }
  CHECK(max_gpus(file.open(needs_elasticity())) == 6);
}

TEST_CASE("an option of a plugin that is not opened is kept, so that a worker that opens it finds it") {
  const Variable variable("PLIANT__ELASTICITY__V0_9__MAX_GPUS", "5");
  const ConfigFile file("[elasticity]\nuse = 'v0.9'\n");
  CHECK(contains(file.open().resolved_toml(), "max_gpus = 5"));
}

TEST_CASE("a misspelt variable names the one that was meant") {
  const Variable variable("PLIANT__ELASTICITY__V0_9__MAX_GPU", "5");
  const ConfigFile file("[elasticity]\nuse = 'v0.9'\n");
  CHECK(contains(
      file.refusal(needs_elasticity()),
      "environment PLIANT__ELASTICITY__V0_9__MAX_GPU: error: this does not name an option\n  note: did you mean "
      "PLIANT__ELASTICITY__V0_9__MAX_GPUS?"));
}

TEST_CASE("the plugin itself can be chosen by an override") {
  ConfigFile file("[elasticity]\nuse = 'gone'\n");
  file.overrides.sets = {"elasticity.use=v0.9"};
  CHECK(file.open(needs_elasticity()).use("elasticity") == "v0.9");
}

TEST_CASE("a bare word counts as a string, and a string option takes what was typed") {
  ConfigFile file("");
  file.overrides.sets = {"run.on_loss=shrink",           "run.name=42",           "data.text=/srv/a b.txt",
                         "run.command=[\"a\", \"b c\"]", "app.title=hello world", "app.depth=3"};
  const Config config = file.open();
  CHECK(config.run().on_loss == "shrink");
  CHECK(config.run().name == "42");
  CHECK(config.data().text == "/srv/a b.txt");
  CHECK(config.run().command == std::vector<std::string>{"a", "b c"});
  CHECK(config.app_string("title") == "hello world");
  CHECK(config.app_int("depth") == 3);
}

TEST_CASE("variables of [app] meet the key that is there, or make one in lower case") {
  const Variable there("PLIANT__APP__MAX_LEN", "9");
  const Variable made("PLIANT__APP__NEW__KEY", "word");
  const ConfigFile file("[app]\nmax-len = 3\n");
  const Config config = file.open();
  CHECK(config.app_int("max-len") == 9);
  CHECK(config.app_string("new.key") == "word");
}

TEST_CASE("a path that was typed is relative to the working directory") {
  ConfigFile file("[data]\ntext = 'in-file'\n");
  file.overrides.sets = {"data.text=typed"};
  CHECK(file.open().data().text == (std::filesystem::current_path() / "typed").string());
}

TEST_CASE("an environment name keeps letters and digits only") {
  CHECK(pliant::config::environment_name({"elasticity", "v0.1", "max_gpus"}) == "ELASTICITY__V0_1__MAX_GPUS");
  CHECK(pliant::config::environment_name({"a-b"}) == "A_B");
}
