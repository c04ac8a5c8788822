// The same config with another plugin in one of its sections.
#include <fmt/format.h>

#include <algorithm>

#include "base/inside.hpp"
#include "config/options.hpp"
#include "config/state.hpp"
#include "pliant/config.hpp"
#include "plugin/plugin.hpp"

namespace pliant {

std::vector<std::string> sets_for_plugin(const Config& config, const std::string& section, const std::string& name) {
  const detail::ConfigState& state = detail::inside(config);
  if (config.use(section) == name) return {};
  const plugin::Kind& kind = *plugin::kind_of(section);
  const auto file = or_throw(plugin::find(state.search, kind, name));
  const auto other = or_throw(plugin::Plugin::open(file, kind));
  const std::vector<std::string> known = config::keys_of(other->options());
  std::vector<std::string> sets{fmt::format("{}.use={}", section, config::toml_quoted(name))};
  for (const config::Effective& row : state.selections.at(section).table.rows) {
    const config::KeyPath path{section, name, row.option->key};
    const bool wanted = row.value.origin.layer != config::Layer::kDefault;
    const bool shared = std::find(known.begin(), known.end(), row.option->key) != known.end();
    if (!wanted || !shared || config::at(state.root, path) != nullptr) continue;
    sets.push_back(fmt::format("{}={}", config::dotted(path), config::to_toml(row.value)));
  }
  return sets;
}

Config with_plugin(const Config& config, const std::string& section, const std::string& name) {
  const std::vector<std::string> sets = sets_for_plugin(config, section, name);
  return sets.empty() ? config : config.with(sets);
}

}  // namespace pliant
