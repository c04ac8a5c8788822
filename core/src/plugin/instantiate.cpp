// From a section of an opened config to an instance of its plugin.
#include <fmt/format.h>

#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "config/state.hpp"
#include "plugin/plugin.hpp"

namespace pliant::plugin {

namespace {

/// Where the first of the options `error` is about was set that somebody set.
std::optional<config::Origin> origin_of(const config::Selection& selection, const Error& error) {
  std::istringstream keys(error.options());
  for (std::string key; keys >> key;) {
    for (const config::Effective& row : selection.table.rows) {
      if (row.option->key == key && row.value.origin.layer != config::Layer::kDefault) return row.value.origin;
    }
  }
  return std::nullopt;
}

Error at_origin(const detail::ConfigState& state, const config::Origin& origin, const Error& error) {
  config::Finding finding;
  finding.origin = origin;
  finding.message = error.message();
  return {error.status(), state.diagnostics->render(finding), error.exit_code()};
}

Result<Instance> instance_of(const detail::ConfigState& state, const config::Selection& selection,
                             const pliant_host* host) {
  Result<Instance> made = Instance::create(selection.plugin, selection.table.values, host);
  if (made) return made;
  const config::Origin origin = origin_of(selection, made.error()).value_or(selection.use_origin);
  return tl::unexpected<Error>(at_origin(state, origin, made.error()));
}

/// The rules of [lr] in the order of the chain.
std::vector<const config::Selection*> lr_chain(const detail::ConfigState& state) {
  std::vector<const config::Selection*> chain;
  for (const config::Selection& link : state.lr_schedule) chain.push_back(&link);
  if (const auto used = state.selections.find("lr"); used != state.selections.end()) chain.push_back(&used->second);
  for (const config::Selection& link : state.lr_then) chain.push_back(&link);
  return chain;
}

}  // namespace

Error at_lr_key(const Config& config, size_t link, std::string_view key, const Error& error) {
  const detail::ConfigState& state = config.state();
  for (const config::Effective& row : state.core_tables.at("lr").rows) {
    const bool set = row.value.origin.layer != config::Layer::kDefault;
    if (set && row.option->key == key) return at_origin(state, row.value.origin, error);
  }
  const std::vector<const config::Selection*> chain = lr_chain(state);
  return link < chain.size() ? at_origin(state, chain[link]->use_origin, error) : error;
}

Error at_option(const Config& config, std::string_view section, const Error& error) {
  const detail::ConfigState& state = config.state();
  const auto found = state.selections.find(section);
  if (found == state.selections.end()) return error;
  const std::optional<config::Origin> named = origin_of(found->second, error);
  return named ? at_origin(state, *named, error) : error;
}

bool is_open(const Config& config, std::string_view section) {
  const auto& selections = config.state().selections;
  const auto found = selections.find(section);
  return found != selections.end() && found->second.plugin != nullptr;
}

Result<Instance> instantiate(const Config& config, std::string_view section, const pliant_host* host) {
  const detail::ConfigState& state = config.state();
  if (!is_open(config, section)) {
    return failed(Status::kFailedPrecondition,
                  fmt::format("{}: the plugin of [{}] was not opened: the config was opened without that need",
                              config.file().string(), section));
  }
  return instance_of(state, state.selections.find(section)->second, host);
}

Result<std::vector<Instance>> instantiate_lr_chain(const Config& config) {
  const detail::ConfigState& state = config.state();
  std::vector<Instance> chain;
  const auto add_all = [&](const std::vector<config::Selection>& links) -> Result<> {
    for (const config::Selection& link : links) {
      Result<Instance> made = instance_of(state, link, nullptr);
      if (!made) return failed(std::move(made));
      chain.push_back(std::move(*made));
    }
    return {};
  };
  if (auto added = add_all(state.lr_schedule); !added) return failed(std::move(added));
  Result<Instance> used = instantiate(config, "lr");
  if (!used) return failed(std::move(used));
  chain.push_back(std::move(*used));
  if (auto added = add_all(state.lr_then); !added) return failed(std::move(added));
  return chain;
}

}  // namespace pliant::plugin
