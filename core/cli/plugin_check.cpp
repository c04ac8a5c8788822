// pliant plugin check: runs the conformance kit, which is a program of its own.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <vector>

#include "actions.hpp"
#include "base/environment.hpp"
#include "base/suggest.hpp"
#include "config/open.hpp"
#include "output.hpp"
#include "pliant/error.hpp"
#include "plugin/search.hpp"

namespace pliant::cli {

namespace {

namespace fs = std::filesystem;

/// `<prefix>/libexec/pliant/pliant-check` for `<prefix>/bin/pliant`, installed or built.
fs::path kit() {
  std::error_code error;
  const fs::path prefix = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
  return prefix / "libexec" / "pliant" / "pliant-check";
}

/// A path as it is; "section/name" is the file of a plugin that is found, unless there is such a path.
std::string file_of(const Invocation& invocation, const std::string& given) {
  std::error_code error;
  if (given.empty() || fs::exists(given, error)) return given;
  std::vector<std::string> known;
  std::vector<std::string> near;
  for (const plugin::Found& found : plugin::list(or_throw(config::search_dirs(invocation.overrides)))) {
    if (found.shadowed) continue;
    known.push_back(fmt::format("{}/{}", found.kind->section, found.name));
    if (given == known.back()) return found.file.string();
    if (given == found.name) near.push_back(known.back());
  }
  if (given.ends_with(".so")) return given;
  if (near.empty()) near = nearest(given, known);
  throw Error(Status::kNotFound,
              fmt::format("{}: no such file and no such plugin; {}pliant plugin list shows the installed plugins",
                          given, near.empty() ? "" : fmt::format("did you mean '{}'? ", near.front())),
              Origin::kPlugin);
}

}  // namespace

int check_plugin(const Invocation& invocation, const PluginCheckArguments& arguments) {
  if (elevated()) {
    throw Error(Status::kFailedPrecondition,
                "plugin check runs the code of the given file, and refuses to do so with another user's rights: use a "
                "pliant that is neither setuid nor setgid",
                Origin::kInput);
  }
  const fs::path program = kit();
  std::vector<std::string> words{"pliant-check", "--as", "pliant plugin check"};
  const auto add = [&](const char* flag, const std::optional<std::string>& value) {
    if (value) words.insert(words.end(), {flag, *value});
  };
  if (const std::string file = file_of(invocation, arguments.file); !file.empty()) words.push_back(file);
  add("--only", arguments.only);
  add("--seed", arguments.seed);
  add("--reproduce", arguments.reproduce);
  add("--time-limit", arguments.time_limit);
  for (const std::string& set : invocation.overrides.sets) add("--set", set);
  if (arguments.list) words.emplace_back("--list");
  if (invocation.json) words.emplace_back("--json");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  throw Error(Status::kNotFound,
              fmt::format("cannot run {}: {}; it is part of the SDK: cmake --install BUILD --component sdk",
                          program.string(), std::generic_category().message(errno)),
              Origin::kRun);
}

}  // namespace pliant::cli
