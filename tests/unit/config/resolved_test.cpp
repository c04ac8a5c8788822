// The resolved document opens to the same config from any directory, without overrides and without the environment.
#include <doctest/doctest.h>

#include <rapidcheck.h>

#include "base/inside.hpp"
#include "config/open.hpp"
#include "config/values/parse.hpp"
#include "unit/config/config_file.hpp"

using pliant::Config;
using pliant::ConfigOverrides;
using pliant::test::ConfigFile;
using pliant::test::contains;
using pliant::test::needs_elasticity;
using pliant::test::ScratchFolder;

namespace {

constexpr const char* kText =
    "[plugins]\ndirs = ['more']\n[elasticity]\nuse = 'every'\n[elasticity.every]\nmust = 3\nwords = [\"q\\\"uo\", "
    "'n\\l']\n"
    "rate = 0.1\n[elasticity.other]\nx = [1, {y = 2}]\n[lr]\nbase_lr = 3e-4\n[data]\ntext = 'words.txt'\n"
    "[run]\ncommand = ['a']\n[app]\nz = 1\n\"sp ace\" = 1979-05-27T07:32:00Z\n[app.deep]\ny = [[1], "
    "[\"\\u0001\\n\"]]\n";

}  // namespace

TEST_CASE("the resolved config opens elsewhere to the same config") {
  ConfigFile file(kText);
  file.overrides.sets = {"run.workers=7", "app.z=2"};
  const Config first = file.open(needs_elasticity());
  const ScratchFolder elsewhere;
  ConfigOverrides nothing;
  nothing.read_environment = false;
  const Config second = Config::open(elsewhere.write("copy.toml", first.resolved_toml()), needs_elasticity(), nothing);

  CHECK(second.run().workers == 7);
  CHECK(second.run().name == first.run().name);
  CHECK(second.run().log_dir == first.run().log_dir);
  CHECK(second.data().text == (file.path() / "words.txt").string());
  CHECK(second.lr().base_lr == 3e-4);
  CHECK(second.use("elasticity") == "every");
  CHECK(second.app_int("z") == 2);
  CHECK(second.has("lr"));
  CHECK_FALSE(second.has("sampler"));
  const auto& words = pliant::test::elasticity_option(second, "words");
  CHECK(words.items.at(0).text == "q\"uo");
  CHECK(words.items.at(1).text == "n\\l");
}

TEST_CASE("resolving what was resolved changes nothing") {
  const ConfigFile file(kText);
  const Config first = file.open(needs_elasticity());
  const ScratchFolder elsewhere;
  ConfigOverrides nothing;
  nothing.read_environment = false;
  const Config second = Config::open(elsewhere.write("copy.toml", first.resolved_toml()), needs_elasticity(), nothing);
  const Config third = Config::open(elsewhere.write("again.toml", second.resolved_toml()), needs_elasticity(), nothing);
  CHECK(second.resolved_toml() == third.resolved_toml());
}

TEST_CASE("origins are comments of the same document") {
  ConfigFile file("[run]\nseed = 3\n");
  file.overrides.sets = {"run.workers=7"};
  const std::string shown = pliant::config::to_document(pliant::detail::inside(file.open()), true);
  CHECK(contains(shown, "workers = 7                             # --set run.workers=7\n"));
  CHECK(contains(shown, "# " + file.file.string() + ":3:8\n"));
  CHECK(contains(shown, "epochs = 1                              # default\n"));
  CHECK_FALSE(ConfigFile(shown.substr(shown.find('\n') + 1)).open().run().workers != 7);
}

TEST_CASE("strings and floats survive being written and read") {
  CHECK(rc::check("any text", [](const std::string& bytes) {
    std::string text;
    for (const char c : bytes) text += static_cast<char>(c & 0x7f);
    const pliant::config::Value read = pliant::config::parse_override(pliant::config::toml_quoted(text), {});
    RC_ASSERT(read.type == pliant::config::Value::Type::kString);
    RC_ASSERT(read.text == text);
  }));
  CHECK(rc::check("any finite float", [](double value) {
    const auto read = pliant::config::parse_override(pliant::config::to_toml(pliant::config::Value::of(value)), {});
    RC_ASSERT(read.type == pliant::config::Value::Type::kFloat);
    RC_ASSERT(read.real == value);
  }));
}
