// A fresh folder for one test, and configs in it.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "pliant/config.hpp"

namespace pliant::test {

class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "pliant-data-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::system_error(errno, std::generic_category(), name);
    folder_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  [[nodiscard]] std::filesystem::path file(const std::string& name) const { return folder_ / name; }

  /// A config of `toml` (without config_version) that finds the plugins of the build tree.
  [[nodiscard]] Config config(const std::string& toml) const {
    std::ofstream(file("pliant.toml")) << "config_version = 1\n" << toml;
    ConfigNeeds needs;
    needs.sampler = toml.find("[sampler]") != std::string::npos;
    needs.lr = toml.find("[lr]") != std::string::npos;
    ConfigOverrides overrides;
    overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
    overrides.read_environment = false;
    return Config::open(file("pliant.toml"), needs, overrides);
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace pliant::test
