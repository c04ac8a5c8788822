// Opening a config: defaults, sections, [app], names and paths.
#include <doctest/doctest.h>

#include "config/instances.hpp"
#include "plugin/plugin.hpp"
#include "unit/config/config_file.hpp"

using pliant::Config;
using pliant::ConfigNeeds;
using pliant::Error;
using pliant::Origin;
using pliant::Status;
using pliant::test::ConfigFile;
using pliant::test::contains;
using pliant::test::needs_elasticity;

TEST_CASE("a config of one line has the documented defaults") {
  const ConfigFile file("");
  const Config config = file.open();
  const pliant::RunOptions defaults;
  CHECK(config.run().workers == defaults.workers);
  CHECK(config.run().seed == defaults.seed);
  CHECK(config.run().on_loss == "replace");
  CHECK(config.run().hang_timeout_s == defaults.hang_timeout_s);
  CHECK(config.lr().unit == "loss_tokens");
  CHECK(config.data().text.empty());
  CHECK_FALSE(config.has("run"));
  CHECK(config.file() == file.file);
}

TEST_CASE("every value of the core sections arrives") {
  const ConfigFile file(
      "[run]\nworkers = 3\ncommand = ['python3', 'train.py']\nseed = 7\ndeterministic = true\nstart_timeout_s = 2\n"
      "on_loss = 'shrink'\nname = 'my.job-1'\n[lr]\nbase_lr = 1\nunit = 'rows'\n");
  const Config config = file.open();
  CHECK(config.run().workers == 3);
  CHECK(config.run().command == std::vector<std::string>{"python3", "train.py"});
  CHECK(config.run().seed == 7);
  CHECK(config.run().deterministic);
  CHECK(config.run().start_timeout_s == 2.0);
  CHECK(config.run().on_loss == "shrink");
  CHECK(config.run().name == "my.job-1");
  CHECK(config.lr().base_lr == 1.0);
  CHECK(config.lr().unit == "rows");
  CHECK(config.has("run"));
}

TEST_CASE("data paths are relative to the file, log_dir to the working directory") {
  const ConfigFile file("[data]\ntext = 'words/all.txt'\n[run]\nlog_dir = 'runs'\n");
  const Config config = file.open();
  CHECK(config.data().text == (file.path() / "words/all.txt").string());
  CHECK(config.run().log_dir == (std::filesystem::current_path() / "runs").string());
}

TEST_CASE("the job is named for its file, or for the folder of a pliant.toml") {
  const ConfigFile file("");
  CHECK(file.open().run().name == file.path().filename().string());
  CHECK(Config::open(file.write("my job.toml", "config_version = 1\n")).run().name == "my-job");
}

TEST_CASE("a section that is absent uses its default plugin, and elasticity has none") {
  const ConfigFile file("[lr]\nbase_lr = 0.5\n");
  const ConfigNeeds needs{"lr"};
  CHECK(file.open(needs).use("lr") == "none");
  CHECK(contains(file.refusal(needs_elasticity()), "there is no [elasticity] section, and this command needs one"));
}

TEST_CASE("a section with a plugin's table but without use has to say which plugin it means") {
  const ConfigFile file("[lr.none]\n");
  const ConfigNeeds needs{"lr"};
  CHECK(contains(file.refusal(needs), ":2:2: error: [lr] does not name the plugin to use"));
  CHECK(file.refusal().empty());
}

TEST_CASE("plugins of sections that are not needed are not looked for") {
  const ConfigFile file("[elasticity]\nuse = 'no-such-plugin'\n[elasticity.no-such-plugin]\nx = 1\n");
  CHECK(file.open().use("elasticity") == "no-such-plugin");
  CHECK(contains(file.refusal(needs_elasticity()), "elasticity plugin 'no-such-plugin' is not installed"));
}

TEST_CASE("a need that is the section of no kind of plugins is refused") {
  CHECK(ConfigFile("").refusal({"elasticty"}) == "[elasticty] is not a section of any plugin kind");
  CHECK(ConfigFile("[run]\nworkers = 2\n").refusal({"run"}) == "[run] is not a section of any plugin kind");
}

TEST_CASE("a missing plugin is a fault of plugins, and of the input when the config has errors of its own") {
  const auto origin = [](const ConfigFile& file) {
    try {
      static_cast<void>(file.open(needs_elasticity()));
    } catch (const Error& error) {
      return error.origin();
    }
    return Origin::kRun;
  };
  CHECK(origin(ConfigFile("[elasticity]\nuse = 'gone'\n")) == Origin::kPlugin);
  CHECK(origin(ConfigFile("[elasticity]\nuse = 'gone'\n[run]\nworkers = 0\n")) == Origin::kInput);
}

TEST_CASE("a missing file is not found, and a fault of the input") {
  try {
    static_cast<void>(Config::open("/nowhere/pliant.toml"));
    FAIL("it opened");
  } catch (const Error& error) {
    CHECK(error.status() == Status::kNotFound);
    CHECK(error.origin() == Origin::kInput);
  }
}

TEST_CASE("[app] is free-form and read by dotted key") {
  const ConfigFile file(
      "[app]\nlayers = 2\nrate = 0.5\nname = 'x'\non = true\n[app.deep.er]\nvalue = 3\n\"a.b\" = 4\n");
  const Config config = file.open();
  CHECK(config.app_int("layers") == 2);
  CHECK(config.app_float("rate") == 0.5);
  CHECK(config.app_float("layers") == 2.0);
  CHECK(config.app_string("name") == "x");
  CHECK(config.app_bool("on") == true);
  CHECK(config.app_int("deep.er.value") == 3);
  CHECK(config.app_int("deep.er.\"a.b\"") == 4);
  CHECK_FALSE(config.app_int("absent").has_value());
  CHECK_FALSE(config.app_int("deep.absent.value").has_value());
  CHECK_THROWS_WITH_AS(static_cast<void>(config.app_int("name")),
                       doctest::Contains(":5:8: error: app.name must be an integer, not the string \"x\""), Error);
}

TEST_CASE("options that a plugin refuses together are reported where use names it") {
  const ConfigFile file("[elasticity]\nuse = 'every'\n[elasticity.every]\nmust = 1\n");
  const Config config = file.open(needs_elasticity());
  auto instance = pliant::config::instantiate(config, "elasticity");
  REQUIRE(instance);
  CHECK(instance->plugin().record().name == std::string("every"));
  const auto lr = pliant::config::instantiate(config, "lr");
  REQUIRE_FALSE(lr);
  CHECK(contains(lr.error().message(), "was not asked for this section"));
}
