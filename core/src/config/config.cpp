// The public face of a config.
#include "pliant/config.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/result.hpp"
#include "config/open.hpp"
#include "config/state.hpp"
#include "config/values/parse.hpp"

namespace pliant {

namespace {

using config::Value;

const Value* app_value(const detail::ConfigState& state, std::string_view key) {
  const auto path = config::parse_key(key);
  const Value* app = state.root.find("app");
  return app == nullptr || !path ? nullptr : config::at(*app, *path);
}

[[noreturn]] void wrong_app_type(const detail::ConfigState& state, std::string_view key, const Value& value,
                                 std::string_view expected) {
  config::Finding finding;
  finding.origin = value.origin;
  finding.message = fmt::format("app.{} must be {}, not {}", key, expected, config::describe(value));
  throw Error(Status::kInvalidArgument, state.diagnostics->render(finding), Origin::kInput)
      .set_findings({state.diagnostics->found(finding)});
}

}  // namespace

Config Config::open(const std::filesystem::path& file, const ConfigNeeds& needs, const ConfigOverrides& overrides) {
  return Config(or_throw(config::open_state(file, needs, overrides)));
}

Config Config::parse(std::string_view toml, const ConfigNeeds& needs, const ConfigOverrides& overrides,
                     std::string_view name) {
  return Config(or_throw(config::open_text(std::string(toml), name, needs, overrides)));
}

Config Config::with(const std::vector<std::string>& sets) const {
  ConfigOverrides overrides = state_->opening.overrides;
  overrides.sets.insert(overrides.sets.end(), sets.begin(), sets.end());
  return Config(
      or_throw(config::open_text(state_->opening.text, state_->opening.name, state_->opening.needs, overrides)));
}

const std::filesystem::path& Config::file() const {
  return state_->file;
}
const RunOptions& Config::run() const {
  return state_->core.run;
}
const DataOptions& Config::data() const {
  return state_->core.data;
}
const BalancerOptions& Config::balancer() const {
  return state_->core.balancer;
}
const AcceleratorOptions& Config::accelerator() const {
  return state_->core.accelerator;
}
const CoordinatorOptions& Config::coordinator() const {
  return state_->core.coordinator;
}
const LrOptions& Config::lr() const {
  return state_->core.lr;
}
bool Config::has(std::string_view section) const {
  return state_->root.find(section) != nullptr;
}

const std::string& Config::use(std::string_view section) const {
  const auto found = state_->selections.find(section);
  if (found != state_->selections.end()) return found->second.use;
  throw Error(
      Status::kFailedPrecondition,
      fmt::format("{}: [{}] names no plugin; Config::open was not asked for this section", file().string(), section));
}

std::optional<int64_t> Config::app_int(std::string_view key) const {
  const Value* value = app_value(*state_, key);
  if (value == nullptr) return std::nullopt;
  if (value->type != Value::Type::kInt) wrong_app_type(*state_, key, *value, "an integer");
  return value->integer;
}

std::optional<double> Config::app_float(std::string_view key) const {
  const Value* value = app_value(*state_, key);
  if (value == nullptr) return std::nullopt;
  if (value->type == Value::Type::kInt) return static_cast<double>(value->integer);
  if (value->type != Value::Type::kFloat) wrong_app_type(*state_, key, *value, "a number");
  return value->real;
}

std::optional<bool> Config::app_bool(std::string_view key) const {
  const Value* value = app_value(*state_, key);
  if (value == nullptr) return std::nullopt;
  if (value->type != Value::Type::kBool) wrong_app_type(*state_, key, *value, "true or false");
  return value->boolean;
}

std::optional<std::string> Config::app_string(std::string_view key) const {
  const Value* value = app_value(*state_, key);
  if (value == nullptr) return std::nullopt;
  if (value->type == Value::Type::kString) return value->text;
  if (value->raw.empty() || value->type == Value::Type::kTable)
    wrong_app_type(*state_, key, *value, "a string in quotes");
  return value->raw;
}

std::string Config::resolved_toml() const {
  return config::to_document(*state_, false);
}

}  // namespace pliant
