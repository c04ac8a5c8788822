// What the commands of `pliant accel` do, and the config that they work with.
#pragma once

#include <filesystem>
#include <string>

#include "commands.hpp"
#include "pliant/config.hpp"

namespace pliant::cli {

/// A config that uses accelerator `name`: that of `file`, or one with nothing but defaults where that is empty; --set
/// and --plugin-dir apply.
Config accelerator_config(const Invocation& invocation, const std::filesystem::path& file, const std::string& name);

/// `file`: a config whose [plugins] dirs are searched too; empty for none.
int list_accelerators(const Invocation& invocation, const std::filesystem::path& file);

}  // namespace pliant::cli
