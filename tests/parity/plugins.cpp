// The real host for rows: plugins are opened once, options go through the table check that a config goes through.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "config/options.hpp"
#include "config/values/diagnostics.hpp"
#include "config/values/value.hpp"
#include "parity/parity.hpp"
#include "plugin/search.hpp"
#include "scratch_folder.hpp"

namespace pliant::parity {
namespace {

/// `json` as the TOML value it would be; nullopt for what TOML cannot say: null and integers past 64 bits.
std::optional<config::Value> as_value(const Json& json) {
  using config::Value;
  Value value;
  if (json.is_boolean()) return Value::of(json.get<bool>());
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()})
    return std::nullopt;
  if (json.is_number_integer()) return Value::of(json.get<int64_t>());
  if (json.is_number_float()) return Value::of(json.get<double>());
  if (json.is_string()) return Value::of(json.get<std::string>());
  if (json.is_array()) {
    value.type = Value::Type::kArray;
    for (const Json& item : json) {
      std::optional<Value> element = as_value(item);
      if (!element) return std::nullopt;
      value.items.push_back(std::move(*element));
    }
    return value;
  }
  if (json.is_object()) {
    for (const auto& [key, item] : json.items()) {
      std::optional<Value> member = as_value(item);
      if (!member) return std::nullopt;
      value.members.push_back({key, {}, std::move(*member)});
    }
    return value;
  }
  return std::nullopt;
}

}  // namespace

Result<std::shared_ptr<const plugin::Plugin>> Plugins::open(const std::string& section, const std::string& name) {
  auto& opened = open_[section + "/" + name];
  if (opened) return opened;
  const plugin::Kind* kind = plugin::kind_of(section);
  if (kind == nullptr) return failed(Status::kNotFound, fmt::format("no kind of plugin is called '{}'", section));
  Result<std::filesystem::path> file = plugin::find({{folder_, "--plugin-dir"}}, *kind, name);
  if (!file) return failed(std::move(file));
  auto plugin = plugin::Plugin::open(*file, *kind);
  if (plugin) opened = *plugin;
  return plugin;
}

Result<Config> Plugins::open_config(const std::string& toml, const ConfigNeeds& needs) const {
  const test::ScratchFolder folder;
  ConfigOverrides overrides;
  overrides.read_environment = false;
  overrides.plugin_dirs.push_back(folder_);
  try {
    return Config::open(folder.write("imported.toml", toml), needs, overrides);
  } catch (const Error& refused) {
    return tl::unexpected<Error>(refused);
  }
}

Result<plugin::Instance> Plugins::make(const std::string& section, const std::string& name, const Json& options) {
  auto plugin = open(section, name);
  if (!plugin) return failed(std::move(plugin));
  const std::optional<config::Value> table = as_value(options);
  if (!table) {
    return failed(Status::kInvalidArgument, "TOML has neither null nor integers past 64 bits", Origin::kInput);
  }
  config::Diagnostics diagnostics("row", "");
  for (const config::Member& member : table->members) {
    const std::vector<std::string> known = config::keys_of((*plugin)->options());
    if (std::find(known.begin(), known.end(), member.key) == known.end()) {
      config::report_unknown_key(member, {section, name}, known, diagnostics);
    }
  }
  const config::CheckedTable checked =
      config::check_options((*plugin)->options(), &*table, {section, name}, {}, diagnostics);
  if (diagnostics.failed()) return tl::unexpected<Error>(diagnostics.to_error());
  return plugin::Instance::create(*plugin, checked.values);
}

}  // namespace pliant::parity
