// Where plugins are looked for, and what lies there.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "plugin/plugin.hpp"

namespace pliant::plugin {

/// One directory that is searched, and who named it.
struct SearchDir {
  std::filesystem::path path;
  std::string named_by;  ///< "--plugin-dir", "[plugins] dirs", "PLIANT_PLUGIN_PATH", "installed"
};

/// The directories of PLIANT_PLUGIN_PATH. A relative entry is an error (kInput); an empty one is skipped. Not read at
/// all by a program that is elevated().
Result<std::vector<SearchDir>> environment_dirs();

/// The plugins that were installed together with the program or library that holds core (plugins_of_home); where there
/// are none, those of the install prefix and of the build tree that core was compiled with. Only directories that
/// exist, best first.
std::vector<SearchDir> installed_dirs();

/// `<section>-<name>.pliant.so`
std::string file_name(const Kind& kind, std::string_view name);

/// A plugin file by its name alone; nothing is opened.
struct Found {
  const Kind* kind = nullptr;
  std::string name;
  std::filesystem::path file;
  bool shadowed = false;  ///< an earlier directory has the same name
};

/// All plugin files of `dirs`, sorted by kind and name, shadowed ones after the one that counts. Directories that
/// cannot be read are skipped.
std::vector<Found> list(const std::vector<SearchDir>& dirs);

/// The names of `kind` in `dirs`, without the shadowed ones.
std::vector<std::string> names(const std::vector<SearchDir>& dirs, const Kind& kind);

/// The one file that `name` opens: the first directory that has it decides. kNotFound (kPlugin) names the directories
/// that were searched and the near names that are there.
Result<std::filesystem::path> find(const std::vector<SearchDir>& dirs, const Kind& kind, std::string_view name);

}  // namespace pliant::plugin
