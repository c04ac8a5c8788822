// What a program has against [app] points at the file that the user wrote, though the program reads another one.
#include <doctest/doctest.h>

#include <string>

#include "base/result.hpp"
#include "config/app_places.hpp"
#include "config/open.hpp"
#include "unit/config/config_file.hpp"

using namespace pliant;
using test::contains;

namespace {

/// `resolved` as a worker opens it, with the places that `places` has.
Config as_worker(const test::ScratchFolder& folder, const std::string& resolved, const std::string& places) {
  ConfigOverrides as_resolved;
  as_resolved.read_environment = false;
  return detail::Inside::handle_of<Config>(
      or_throw(config::open_state(folder.write("config.toml", resolved), {}, as_resolved, false, places)));
}

template <class Call>
std::string said(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("what is no list of places changes nothing") {
  const test::ConfigFile file("[app]\ndim = 3\n");
  const std::string resolved = file.open().resolved_toml();
  for (const std::string text :
       {"", "{", "[]", "{\"schema\":\"pliant.app_places/1\"}", "{\"schema\":\"other\",\"app\":[]}",
        "{\"schema\":\"pliant.app_places/1\",\"app\":[{\"path\":7}]}",
        "{\"schema\":\"pliant.app_places/1\",\"app\":[{\"path\":[]}]}",
        "{\"schema\":\"pliant.app_places/1\",\"app\":[{\"path\":[\"a\",\"b\"]}]}"}) {
    CAPTURE(text);
    const Config worker = as_worker(file, resolved, text);
    CHECK(contains(said([&] { worker.refuse_app("dim", "is odd"); }), "config.toml:"));
  }
}

TEST_CASE("a key, a value and a table of [app] have the place in the user's file, with its line") {
  const test::ConfigFile file("[run]\nworkers = 2\n[app]\ndim = 3\nhiden = 4\n[app.inner]\nsize = 'x'\n");
  const Config user = file.open();
  const Config worker = as_worker(file, user.resolved_toml(), config::app_places(user));
  const std::string name = file.file.string();
  CHECK(contains(said([&] { worker.refuse_app("dim", "is odd"); }),
                 name + ":5:7: error: app.dim is odd\n    5 | dim = 3\n      |       ^"));
  const std::string keys = said([&] { worker.check_app_keys({"dim", "hidden", "inner"}); });
  CHECK(contains(keys, name + ":6:1: error: unknown key 'hiden' in [app]\n    6 | hiden = 4\n"));
  CHECK(contains(keys, "did you mean 'hidden'?"));
  CHECK(contains(said([&] { static_cast<void>(worker.app_int("inner.size")); }),
                 name + ":8:8: error: app.inner.size must be "));
}

TEST_CASE("what was typed for the call is called as it was typed") {
  test::ConfigFile file("[app]\ndim = 3\n");
  file.overrides.sets.emplace_back("app.dim=4");
  const Config user = file.open();
  const Config worker = as_worker(file, user.resolved_toml(), config::app_places(user));
  CHECK(contains(said([&] { worker.refuse_app("dim", "is odd"); }), "--set app.dim=4: error: app.dim is odd"));
}
