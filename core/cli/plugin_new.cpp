// pliant plugin new: a ready-to-build plugin folder from the SDK's templates.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <vector>

#include "actions.hpp"
#include "base/suggest.hpp"
#include "output.hpp"
#include "pliant/error.hpp"
#include "plugin/plugin.hpp"

namespace pliant::cli {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& message, Origin origin = Origin::kInput) {
  throw Error(origin == Origin::kInput ? Status::kInvalidArgument : Status::kNotFound, message, origin);
}

/// `<prefix>` of `<prefix>/bin/pliant`, installed or built.
fs::path prefix() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
}

fs::path templates() {
  fs::path folder = prefix() / "share" / "pliant" / "template";
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    refuse(fmt::format("{} does not exist; the templates are part of the SDK: cmake --install BUILD --component sdk",
                       folder.string()),
           Origin::kRun);
  }
  return folder;
}

const plugin::Kind& kind_called(const std::string& section) {
  if (const plugin::Kind* kind = plugin::kind_of(section)) return *kind;
  const std::vector<std::string> kinds = sections_of_kinds();
  const std::vector<std::string> near = nearest(section, kinds);
  refuse(fmt::format("no template for the kind '{}'{}; kinds: {}", section,
                     near.empty() ? "" : fmt::format("; did you mean '{}'?", near.front()), fmt::join(kinds, ", ")));
}

fs::path template_of(const plugin::Kind& kind) {
  fs::path folder = templates() / kind.section;
  std::error_code error;
  if (fs::is_directory(folder, error)) return folder;
  refuse(fmt::format("the template {} is missing; install the SDK again", folder.string()), Origin::kRun);
}

bool is_lower(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

void check_name(const std::string& name) {
  const bool good =
      !name.empty() && name.size() <= 64 && is_lower(name[0]) &&
      std::all_of(name.begin(), name.end(), [](char c) { return is_lower(c) || c == '.' || c == '_' || c == '-'; });
  if (!good) {
    refuse(
        fmt::format("'{}' cannot be the name of a plugin: up to 64 of a-z 0-9 . _ -, the first a letter or digit; "
                    "for example my-plan",
                    name));
  }
}

/// A name in the three ways that a plugin's files spell it: "my-sampler", my_sampler, MySampler.
struct Spelling {
  std::string plugin;
  std::string identifier;
  std::string type;
};

std::vector<std::string> words_of(const std::string& name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (is_lower(c)) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

Spelling spelled(const std::string& plugin, const std::vector<std::string>& words) {
  Spelling made{plugin, fmt::format("{}", fmt::join(words, "_")), ""};
  for (std::string word : words) {
    word[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(word[0])));
    made.type += word;
  }
  return made;
}

/// How the template of a kind spells its own.
Spelling spelling_of(const plugin::Kind& kind) {
  return spelled(fmt::format("my-{}", kind.section), {"my", std::string(kind.section)});
}

/// Types and files also say what kind of plugin it is, so that no name is one that C++ or CMake has taken.
Spelling spelling_for(const std::string& name, const plugin::Kind& kind) {
  std::vector<std::string> words = words_of(name);
  if (words.back() != kind.section) words.emplace_back(kind.section);
  if (words.size() == 1 || !std::isalpha(static_cast<unsigned char>(words[0][0]))) words.insert(words.begin(), "my");
  return spelled(name, words);
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

std::string renamed(std::string text, const Spelling& from, const Spelling& to) {
  const std::string key = to.plugin.find('.') == std::string::npos ? to.plugin : "\"" + to.plugin + "\"";
  replace_all(text, "." + from.plugin + "]", "." + key + "]");  // a table of a TOML file
  replace_all(text, from.plugin, to.plugin);
  replace_all(text, from.identifier, to.identifier);
  replace_all(text, from.type, to.type);
  return text;
}

/// Writes the files of `folder` into `into`, which is made. Returns their names; leaves nothing behind when it throws.
std::vector<std::string> write_folder(const fs::path& folder, const fs::path& into, const Spelling& from,
                                      const Spelling& to) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(into, error))) {
    refuse(fmt::format("{} exists already; name another folder with --dir", into.string()));
  }
  if (!fs::create_directory(into, error)) {
    refuse(fmt::format("cannot create {}: {}", into.string(), error.message()), Origin::kRun);
  }
  std::vector<std::string> written;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    written.push_back(renamed(entry.path().filename().string(), from, to));
    std::ofstream out(into / written.back(), std::ios::binary);
    out << renamed(text.str(), from, to);
    out.close();
    if (in && out) continue;
    fs::remove_all(into, error);
    refuse(fmt::format("cannot write {}; nothing was left behind", (into / written.back()).string()), Origin::kRun);
  }
  std::sort(written.begin(), written.end());
  return written;
}

}  // namespace

std::vector<std::string> sections_of_kinds() {
  std::vector<std::string> sections;
  for (const plugin::Kind& kind : plugin::kinds()) sections.emplace_back(kind.section);
  std::sort(sections.begin(), sections.end());
  return sections;
}

int new_plugin(const Invocation& invocation, const PluginNewArguments& arguments) {
  check_name(arguments.name);
  const plugin::Kind& kind = kind_called(arguments.kind);
  const fs::path folder = template_of(kind);
  const fs::path into = arguments.folder.empty() ? fs::path(arguments.name) : arguments.folder;
  const Spelling from = spelling_of(kind);
  const Spelling to = spelling_for(arguments.name, kind);
  const std::vector<std::string> written = write_folder(folder, into, from, to);
  const std::string file = fmt::format("build/{}-{}.pliant.so", arguments.kind, arguments.name);
  if (invocation.json) {
    nlohmann::ordered_json json;
    json["schema"] = "pliant.plugin_new/1";
    json["folder"] = into.string();
    json["files"] = written;
    json["plugin_file"] = file;
    return emit(json.dump() + "\n");
  }
  // A build folder has no package of the SDK.
  std::error_code error;
  const bool built = fs::exists(prefix() / "CMakeCache.txt", error);
  const std::string installed = built ? "PREFIX" : prefix().string();
  const std::string install = built ? fmt::format("  cmake --install {} --prefix PREFIX\n", prefix().string()) : "";
  return emit(
      fmt::format("{}: {}\nBuild and check it:\n{}  cd {}\n  cmake -S . -B build "
                  "-DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH={}\n  cmake --build build\n  pliant plugin "
                  "check {}\npliant.toml there uses the plugin and shows its path and options.\n",
                  into.string(), fmt::join(written, ", "), install, into.string(), installed, file));
}

}  // namespace pliant::cli
