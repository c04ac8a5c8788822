// A fresh folder for one test, and configs in it.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "pliant/config.hpp"
#include "scratch_folder.hpp"

namespace pliant::test {

class Scratch : public ScratchFolder {
 public:
  [[nodiscard]] std::filesystem::path file(const std::string& name) const { return *this / name; }

  /// A config of `toml` (without config_version) that finds the plugins of the build tree.
  [[nodiscard]] Config config(const std::string& toml) const {
    std::ofstream(file("pliant.toml")) << "config_version = 1\n" << toml;
    ConfigNeeds needs;
    if (toml.find("[sampler]") != std::string::npos) needs.insert("sampler");
    if (toml.find("[lr]") != std::string::npos) needs.insert("lr");
    ConfigOverrides overrides;
    overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
    overrides.read_environment = false;
    return Config::open(file("pliant.toml"), needs, overrides);
  }
};

}  // namespace pliant::test
