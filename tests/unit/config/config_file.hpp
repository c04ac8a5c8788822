// A config in a scratch folder, opened with the plugins of these tests; an environment variable that goes away.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "base/inside.hpp"
#include "config/state.hpp"
#include "negative/pliant_process.hpp"
#include "pliant/config.hpp"
#include "pliant/error.hpp"

namespace pliant::test {

/// A scratch folder with pliant.toml in it.
struct ConfigFile : ScratchFolder {
  explicit ConfigFile(const std::string& text) : file(write("pliant.toml", "config_version = 1\n" + text)) {
    overrides.plugin_dirs.emplace_back(CONFIG_TEST_PLUGIN_DIR);
  }
  [[nodiscard]] Config open(const ConfigNeeds& needs = {}) const { return Config::open(file, needs, overrides); }
  /// The message of the Error that opening throws; "" when it throws none.
  [[nodiscard]] std::string refusal(const ConfigNeeds& needs = {}) const {
    try {
      static_cast<void>(open(needs));
    } catch (const Error& error) {
      return error.message();
    }
    return {};
  }
  std::filesystem::path file;
  ConfigOverrides overrides;
};

inline ConfigNeeds needs_elasticity() {
  return {"elasticity"};
}

/// The value that option `key` of the elasticity plugin of `config` ended up with.
inline const config::Value& elasticity_option(const Config& config, std::string_view key) {
  for (const config::Effective& row : pliant::detail::inside(config).selections.at("elasticity").table.rows) {
    if (key == row.option->key) return row.value;
  }
  throw std::runtime_error("no such option");
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Sets an environment variable for one scope.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Variable() { ::unsetenv(name_.c_str()); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_;
};

}  // namespace pliant::test
