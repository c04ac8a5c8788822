// What the small commands do once their arguments are known. Each returns the exit code or throws Error.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "commands.hpp"

namespace pliant::cli {

/// `file`: a config whose [plugins] dirs are searched too; empty for none.
int list_plugins(const Invocation& invocation, const std::filesystem::path& file);
/// `name`: "section/name", or a name that only one section has.
int show_plugin(const Invocation& invocation, const std::filesystem::path& file, const std::string& name);
struct PluginCheckArguments {
  std::string file;                                              ///< empty: only with `list`
  std::optional<std::string> only, seed, reproduce, time_limit;  ///< read by the kit
  bool list = false;
};
/// Becomes the conformance kit and does not return, unless by throwing.
int check_plugin(const Invocation& invocation, const PluginCheckArguments& arguments);
struct PluginNewArguments {
  std::string kind;              ///< a section: elasticity, sampler, ...
  std::string name;              ///< of the plugin
  std::filesystem::path folder;  ///< to be made; empty: `name`
};
/// The sections of all kinds of plugins, sorted.
std::vector<std::string> sections_of_kinds();
int new_plugin(const Invocation& invocation, const PluginNewArguments& arguments);
int show_config(const Invocation& invocation, const std::filesystem::path& file, bool origins);
int check_config(const Invocation& invocation, const std::filesystem::path& file);
/// `name`: a section, "section/name" for a plugin, or empty for all of core's sections.
int show_defaults(const Invocation& invocation, const std::string& name);
struct ImportArguments {
  std::filesystem::path source;  ///< a DeepSpeed config
  std::filesystem::path output;  ///< empty: stdout
  bool force = false;            ///< replace `output`
};
int import_config(const Invocation& invocation, const ImportArguments& arguments);
int show_version(const Invocation& invocation);

}  // namespace pliant::cli
