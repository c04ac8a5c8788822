// The search path for plugins. The current directory is never part of it.
#include "plugin/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/environment.hpp"
#include "base/suggest.hpp"
#include "plugin/compiled_in.hpp"
#include "plugin/home.hpp"
#include "plugin/record_check.hpp"

namespace pliant::plugin {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kSuffix = ".pliant.so";

/// Kind and name that a file name promises; kind nullptr when it is no plugin's.
Found by_file_name(const fs::path& file) {
  const std::string name = file.filename().string();
  for (const Kind& kind : kinds()) {
    const size_t start = kind.section.size() + 1;
    if (name.size() <= start + kSuffix.size() || name.compare(0, start - 1, kind.section) != 0 ||
        name[start - 1] != '-' || name.compare(name.size() - kSuffix.size(), kSuffix.size(), kSuffix) != 0) {
      continue;
    }
    std::string own = name.substr(start, name.size() - start - kSuffix.size());
    if (valid_plugin_name(own)) return {&kind, std::move(own), file, false};
  }
  return {};
}

bool directory_exists(const fs::path& path) {
  std::error_code failure;
  return fs::is_directory(path, failure);
}

}  // namespace

Result<std::vector<SearchDir>> environment_dirs() {
  std::vector<SearchDir> dirs;
  const char* value = environment_variable("PLIANT_PLUGIN_PATH");
  std::string_view left = value == nullptr ? "" : value;
  while (!left.empty()) {
    const size_t end = std::min(left.find(':'), left.size());
    const std::string_view entry = left.substr(0, end);
    left.remove_prefix(std::min(end + 1, left.size()));
    if (entry.empty()) continue;
    if (entry.front() != '/') {
      return failed(
          Status::kInvalidArgument,
          fmt::format("entry '{}' of PLIANT_PLUGIN_PATH is relative; only absolute directories are searched", entry),
          Origin::kInput);
    }
    dirs.push_back({fs::path(entry), "PLIANT_PLUGIN_PATH"});
  }
  return dirs;
}

std::vector<SearchDir> installed_dirs() {
  if (fs::path own = plugins_of_home(home_file()); !own.empty()) return {{std::move(own), "installed"}};
  std::vector<SearchDir> dirs;
  for (const char* compiled_in : {installed_dir(), built_dir()}) {
    if (directory_exists(compiled_in)) dirs.push_back({compiled_in, "installed"});
  }
  return dirs;
}

std::string file_name(const Kind& kind, std::string_view name) {
  return fmt::format("{}-{}{}", kind.section, name, kSuffix);
}

std::vector<Found> list(const std::vector<SearchDir>& dirs) {
  std::vector<std::pair<size_t, Found>> found;
  for (size_t i = 0; i < dirs.size(); ++i) {
    std::error_code failure;
    for (fs::directory_iterator at(dirs[i].path, failure), end; !failure && at != end; at.increment(failure)) {
      if (Found file = by_file_name(at->path()); file.kind != nullptr) found.emplace_back(i, std::move(file));
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second.kind, a.second.name, a.first) < std::tie(b.second.kind, b.second.name, b.first);
  });
  std::vector<Found> all;
  for (auto& [dir, file] : found) {
    const bool again = !all.empty() && all.back().kind == file.kind && all.back().name == file.name;
    if (again && all.back().file == file.file) continue;  // the same directory named twice
    file.shadowed = again;
    all.push_back(std::move(file));
  }
  return all;
}

std::vector<std::string> names(const std::vector<SearchDir>& dirs, const Kind& kind) {
  std::vector<std::string> result;
  for (const Found& found : list(dirs)) {
    if (found.kind->section == kind.section && !found.shadowed) result.push_back(found.name);
  }
  return result;
}

Result<fs::path> find(const std::vector<SearchDir>& dirs, const Kind& kind, std::string_view name) {
  const std::string wanted = file_name(kind, name);
  for (const SearchDir& dir : dirs) {
    std::error_code failure;
    const fs::path file = dir.path / wanted;
    if (fs::exists(fs::symlink_status(file, failure))) return file;
  }
  std::string text = fmt::format("{} plugin '{}' is not installed: no {} in", kind.section, name, wanted);
  if (dirs.empty())
    text += " any directory, because none is searched; use --plugin-dir, [plugins] dirs or PLIANT_PLUGIN_PATH";
  for (const SearchDir& dir : dirs) {
    text += fmt::format("\n  {} ({}{})", dir.path.string(), dir.named_by,
                        directory_exists(dir.path) ? "" : "; no such directory");
  }
  const std::vector<std::string> known = names(dirs, kind);
  if (const auto near = nearest(name, known, 3); !near.empty()) {
    text += fmt::format("\n  did you mean '{}'?", fmt::join(near, "' or '"));
  } else if (!known.empty()) {
    text += fmt::format("\n  installed: {}", fmt::join(known, ", "));
  }
  return failed(Status::kNotFound, text, Origin::kPlugin);
}

}  // namespace pliant::plugin
