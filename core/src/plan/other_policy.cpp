// The same config under another elasticity policy.
#include <fmt/format.h>

#include <algorithm>

#include "config/options.hpp"
#include "config/state.hpp"
#include "pliant/plan.hpp"

namespace pliant {

Config with_policy(const Config& config, const std::string& policy) {
  const detail::ConfigState& state = config.state();
  if (config.use("elasticity") == policy) return config;
  const plugin::Kind& kind = *plugin::kind_of("elasticity");
  const auto file = or_throw(plugin::find(state.search, kind, policy));
  const auto other = or_throw(plugin::Plugin::open(file, kind));
  const std::vector<std::string> known = config::keys_of(other->options());
  std::vector<std::string> sets{fmt::format("elasticity.use={}", config::quoted(policy))};
  for (const config::Effective& row : state.selections.at("elasticity").table.rows) {
    const config::KeyPath path{"elasticity", policy, row.option->key};
    const bool wanted = row.value.origin.layer != config::Layer::kDefault;
    const bool shared = std::find(known.begin(), known.end(), row.option->key) != known.end();
    if (!wanted || !shared || config::at(state.root, path) != nullptr) continue;
    sets.push_back(fmt::format("{}={}", config::dotted(path), config::to_toml(row.value)));
  }
  return config.with(sets);
}

}  // namespace pliant
