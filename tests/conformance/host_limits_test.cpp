// The ranges that a plugin declares, as our own host enforces them on a config file.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

#include "pliant/config.hpp"
#include "pliant/error.hpp"
#include "scratch_folder.hpp"
#include "testkit/plugin.hpp"

namespace {

namespace fs = std::filesystem;
using pliant::testkit::OpenedPlugin;

std::string bracketed(const std::string& element) {
  return std::string("[").append(element).append("]");
}

/// A config that names the plugin under test and sets one option, in a folder of its own that is removed at the end.
class OneOptionConfig {
 public:
  OneOptionConfig() {
    file_ = std::getenv("PLIANT_CONFORMANCE_PLUGIN");
    section_ = file_.filename().string().substr(0, file_.filename().string().find('-'));
  }

  [[nodiscard]] const fs::path& plugin_file() const { return file_; }

  /// What the host says to `key = value` beside the options that must be given; "" when it accepts.
  std::string refusal(const OpenedPlugin& plugin, const std::string& key, const std::string& value) {
    const fs::path path = folder_ / "pliant.toml";
    std::ofstream out(path);
    out << "config_version = 1\n[" << section_ << "]\nuse = \"" << plugin.record().name << "\"\n[" << section_ << ".\""
        << plugin.record().name << "\"]\n"
        << key << " = " << value << '\n';
    for (uint32_t i = 0; i < plugin.record().option_count; ++i) {
      const pliant_option& option = plugin.option(i);
      if ((option.flags & PLIANT_OPTION_REQUIRED) == 0 || key == option.key) continue;
      out << option.key << " = " << sample_of(option) << '\n';
    }
    out.close();
    const pliant::ConfigNeeds needs{section_};
    pliant::ConfigOverrides overrides;
    overrides.plugin_dirs = {file_.parent_path()};
    overrides.read_environment = false;
    try {
      pliant::Config::open(path, needs, overrides);
      return "";
    } catch (const pliant::Error& error) {
      CHECK(error.origin() == pliant::Origin::kInput);
      return error.message();
    }
  }

 private:
  static std::string sample_of(const pliant_option& option) {
    const int64_t integer = (option.flags & PLIANT_OPTION_HAS_MIN) != 0 ? option.int_min : 1;
    switch (option.type) {
      case PLIANT_BOOL:
        return "true";
      case PLIANT_INT:
        return std::to_string(integer);
      case PLIANT_FLOAT:
        return "1.0";
      case PLIANT_INT_LIST:
        return bracketed(std::to_string(integer));
      case PLIANT_STRING:
        return option.choice_count > 0 ? std::string("\"").append(option.choices[0]).append("\"") : "\"x\"";
      default:
        return "[]";
    }
  }

  pliant::test::ScratchFolder folder_;
  fs::path file_;
  std::string section_;
};

std::string toml_float(double value) {
  std::ostringstream text;
  text.precision(17);
  text << std::scientific << value;
  return text.str();
}

std::string listed(const pliant_option& option, const std::string& value) {
  const bool list = option.type == PLIANT_INT_LIST || option.type == PLIANT_FLOAT_LIST;
  return list ? bracketed(value) : value;
}

TEST_CASE("the host accepts each integer option at its limits and refuses the next value with its name") {
  OneOptionConfig config;
  const OpenedPlugin plugin(config.plugin_file());
  for (uint32_t i = 0; i < plugin.record().option_count; ++i) {
    const pliant_option& option = plugin.option(i);
    if (option.type != PLIANT_INT && option.type != PLIANT_INT_LIST) continue;
    CAPTURE(std::string(option.key));
    const auto check = [&](int64_t limit, int64_t beyond, bool has_beyond) {
      CHECK(config.refusal(plugin, option.key, listed(option, std::to_string(limit))) == "");
      if (!has_beyond) return;
      const std::string said = config.refusal(plugin, option.key, listed(option, std::to_string(beyond)));
      CAPTURE(said);
      CHECK(said.find(option.key) != std::string::npos);
      CHECK(said.find("pliant.toml:5:") != std::string::npos);
    };
    if ((option.flags & PLIANT_OPTION_HAS_MIN) != 0) {
      const bool has_beyond = option.int_min > std::numeric_limits<int64_t>::min();
      check(option.int_min, has_beyond ? option.int_min - 1 : 0, has_beyond);
    }
    if ((option.flags & PLIANT_OPTION_HAS_MAX) != 0) {
      const bool has_beyond = option.int_max < std::numeric_limits<int64_t>::max();
      check(option.int_max, has_beyond ? option.int_max + 1 : 0, has_beyond);
    }
  }
}

TEST_CASE("the host accepts each float option at its limits and refuses what is beyond, and nan") {
  OneOptionConfig config;
  const OpenedPlugin plugin(config.plugin_file());
  for (uint32_t i = 0; i < plugin.record().option_count; ++i) {
    const pliant_option& option = plugin.option(i);
    if (option.type != PLIANT_FLOAT && option.type != PLIANT_FLOAT_LIST) continue;
    CAPTURE(std::string(option.key));
    const double infinity = std::numeric_limits<double>::infinity();
    if ((option.flags & PLIANT_OPTION_HAS_MIN) != 0) {
      CHECK(config.refusal(plugin, option.key, listed(option, toml_float(option.float_min))) == "");
      CHECK(config.refusal(plugin, option.key,
                           listed(option, toml_float(std::nextafter(option.float_min, -infinity)))) != "");
    }
    if ((option.flags & PLIANT_OPTION_HAS_MAX) != 0) {
      CHECK(config.refusal(plugin, option.key, listed(option, toml_float(option.float_max))) == "");
      CHECK(config.refusal(plugin, option.key,
                           listed(option, toml_float(std::nextafter(option.float_max, infinity)))) != "");
    }
    CHECK(config.refusal(plugin, option.key, listed(option, "nan")) != "");
  }
}

TEST_CASE("the host refuses a misspelt option of this plugin and suggests the right one") {
  OneOptionConfig config;
  const OpenedPlugin plugin(config.plugin_file());
  for (uint32_t i = 0; i < plugin.record().option_count; ++i) {
    const std::string key = plugin.option(i).key;
    if (key.size() < 5) continue;
    const std::string said = config.refusal(plugin, key + "z", "1");
    CAPTURE(said);
    CHECK(said.find("'" + key + "'") != std::string::npos);
  }
}

TEST_CASE("the host refuses a value of another type for every option") {
  OneOptionConfig config;
  const OpenedPlugin plugin(config.plugin_file());
  for (uint32_t i = 0; i < plugin.record().option_count; ++i) {
    CAPTURE(std::string(plugin.option(i).key));
    CHECK(config.refusal(plugin, plugin.option(i).key, "1979-05-27") != "");
  }
}

}  // namespace
