// Instances of the plugins that a config names, and where in it their refusals come from.
#include "config/instances.hpp"

#include <fmt/format.h>

#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "base/inside.hpp"
#include "config/options.hpp"
#include "config/state.hpp"
#include "config/values/json.hpp"

namespace pliant::config {

namespace {

/// Where the first of the options `error` is about was set that somebody set.
std::optional<ValueOrigin> origin_of(const Selection& selection, const Error& error) {
  std::istringstream keys(error.options());
  for (std::string key; keys >> key;) {
    for (const Effective& row : selection.table.rows) {
      if (row.option->key == key && row.value.origin.layer != Layer::kDefault) return row.value.origin;
    }
  }
  return std::nullopt;
}

Error at_origin(const detail::ConfigState& state, const ValueOrigin& origin, const Error& error) {
  Finding finding;
  finding.origin = origin;
  finding.message = error.message();
  return error.with_message(state.diagnostics->render(finding)).set_findings({state.diagnostics->found(finding)});
}

Result<plugin::Instance> instance_of(const detail::ConfigState& state, const Selection& selection,
                                     const pliant_host* host) {
  Result<plugin::Instance> made = plugin::Instance::create(selection.plugin, selection.table.values, host);
  if (made) return made;
  const ValueOrigin origin = origin_of(selection, made.error()).value_or(selection.use_origin);
  return tl::unexpected<Error>(at_origin(state, origin, made.error()));
}

/// The rules of [lr] in the order of the chain.
std::vector<const Selection*> lr_chain(const detail::ConfigState& state) {
  std::vector<const Selection*> chain;
  for (const Selection& link : state.lr_schedule) chain.push_back(&link);
  if (const auto used = state.selections.find("lr"); used != state.selections.end()) chain.push_back(&used->second);
  for (const Selection& link : state.lr_then) chain.push_back(&link);
  return chain;
}

}  // namespace

Result<std::string> choice_of(const Config& config, std::string_view section) {
  const auto& selections = detail::inside(config).selections;
  const auto found = selections.find(section);
  if (found == selections.end() || found->second.plugin == nullptr) {
    return failed(Status::kFailedPrecondition,
                  fmt::format("{}: the plugin of [{}] was not opened", config.file().string(), section));
  }
  nlohmann::json options = nlohmann::json::object();
  for (const Effective& row : found->second.table.rows) {
    if (is_row_file(*row.option)) continue;  // what is in it counts, wherever it lies
    Value standard;
    const bool is_there = row.is_set || default_of(*row.option, standard);
    options[row.option->key] = is_there ? nlohmann::json(to_json(row.value)) : nlohmann::json();
  }
  const nlohmann::json whole{
      {"use", found->second.use}, {"version", found->second.plugin->record().version}, {"options", options}};
  return whole.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

Error at_lr_key(const Config& config, size_t link, std::string_view key, const Error& error) {
  const detail::ConfigState& state = detail::inside(config);
  for (const Effective& row : state.core_tables.at("lr").rows) {
    const bool set = row.value.origin.layer != Layer::kDefault;
    if (set && row.option->key == key) return at_origin(state, row.value.origin, error);
  }
  const std::vector<const Selection*> chain = lr_chain(state);
  return link < chain.size() ? at_origin(state, chain[link]->use_origin, error) : error;
}

Error at_option(const Config& config, std::string_view section, const Error& error) {
  const detail::ConfigState& state = detail::inside(config);
  const auto found = state.selections.find(section);
  if (found == state.selections.end()) return error;
  const std::optional<ValueOrigin> named = origin_of(found->second, error);
  return named ? at_origin(state, *named, error) : error;
}

ValueOrigin place_of(const Config& config, std::string_view section, const Error& error) {
  const detail::ConfigState& state = detail::inside(config);
  const auto found = state.selections.find(section);
  std::vector<const Selection*> plugins;
  if (found != state.selections.end()) plugins.push_back(&found->second);
  if (section == "lr") plugins = lr_chain(state);
  for (const Selection* one : plugins) {
    if (const auto named = origin_of(*one, error)) return *named;
  }
  if (found != state.selections.end() && found->second.use_origin.layer != Layer::kDefault)
    return found->second.use_origin;
  const Member* member = state.root.member(section);
  return member == nullptr ? ValueOrigin{} : member->key_origin;
}

bool is_off(const Config& config, std::string_view section, std::string_view key) {
  const auto& selections = detail::inside(config).selections;
  const auto found = selections.find(section);
  const Effective* const row = found == selections.end() ? nullptr : found->second.table.find(key);
  return row != nullptr && row->value.type == Value::Type::kBool && !row->value.boolean;
}

RowFiles row_files(const Config& config) {
  RowFiles files;
  const auto& selections = detail::inside(config).selections;
  const auto found = selections.find("sampler");
  if (found == selections.end()) return files;
  for (const Effective& row : found->second.table.rows) {
    if (!is_row_file(*row.option)) continue;
    files.taken = true;
    const bool is_offsets = (row.option->flags & PLIANT_OPTION_ROW_OFFSETS) != 0;
    (is_offsets ? files.offsets_key : files.ids_key) = row.option->key;
    if (row.is_set) (is_offsets ? files.offsets : files.ids) = row.value.text;
  }
  return files;
}

Error at_core_option(const Config& config, std::string_view section, std::string_view key, const Error& error) {
  const detail::ConfigState& state = detail::inside(config);
  const auto table = state.core_tables.find(section);
  const Effective* const row = table == state.core_tables.end() ? nullptr : table->second.find(key);
  return row == nullptr ? error : at_origin(state, row->value.origin, error);
}

bool is_open(const Config& config, std::string_view section) {
  const auto& selections = detail::inside(config).selections;
  const auto found = selections.find(section);
  return found != selections.end() && found->second.plugin != nullptr;
}

Result<plugin::Instance> instantiate(const Config& config, std::string_view section, const pliant_host* host) {
  const detail::ConfigState& state = detail::inside(config);
  if (!is_open(config, section)) {
    return failed(Status::kFailedPrecondition,
                  fmt::format("{}: the plugin of [{}] was not opened; Config::open was not asked for this section",
                              config.file().string(), section));
  }
  return instance_of(state, state.selections.find(section)->second, host);
}

Result<std::vector<plugin::Instance>> instantiate_lr_chain(const Config& config) {
  const detail::ConfigState& state = detail::inside(config);
  std::vector<plugin::Instance> chain;
  const auto add_all = [&](const std::vector<Selection>& links) -> Result<> {
    for (const Selection& link : links) {
      Result<plugin::Instance> made = instance_of(state, link, nullptr);
      if (!made) return failed(std::move(made));
      chain.push_back(std::move(*made));
    }
    return {};
  };
  if (auto added = add_all(state.lr_schedule); !added) return failed(std::move(added));
  Result<plugin::Instance> used = instantiate(config, "lr");
  if (!used) return failed(std::move(used));
  chain.push_back(std::move(*used));
  if (auto added = add_all(state.lr_then); !added) return failed(std::move(added));
  return chain;
}

}  // namespace pliant::config
