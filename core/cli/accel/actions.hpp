// What the commands of `pliant accel` do, and the config that they work with.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "commands.hpp"
#include "pliant/config.hpp"

namespace pliant::cli {

/// A config file that was read, once: a pipe cannot be read again. Without a file both are empty.
struct ConfigText {
  std::filesystem::path file;
  std::string text;
};
ConfigText read_config(const Invocation& invocation, const std::filesystem::path& file);

/// A config that uses accelerator `name`: `given`, or one with nothing but defaults where that has no file; --set and
/// --plugin-dir apply.
Config accelerator_config(const Invocation& invocation, const ConfigText& given, const std::string& name);

/// The accelerator that a config names by `path`.
struct ChosenAccelerator {
  std::string name;
  std::filesystem::path file;
};
std::optional<ChosenAccelerator> chosen_accelerator(const Invocation& invocation, const ConfigText& given);

/// `file`: a config whose accelerator and [plugins] dirs are looked at, too; empty for none.
int list_accelerators(const Invocation& invocation, const std::filesystem::path& file);

}  // namespace pliant::cli
