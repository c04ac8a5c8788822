// From a section of an opened config to an instance of its plugin.
#include <fmt/format.h>

#include <utility>

#include "config/state.hpp"
#include "plugin/plugin.hpp"

namespace pliant::plugin {

namespace {

Result<Instance> instance_of(const detail::ConfigState& state, const config::Selection& selection,
                             const pliant_host* host) {
  Result<Instance> made = Instance::create(selection.plugin, selection.table.values, host);
  if (made) return made;
  const Error& error = made.error();
  config::Finding finding;
  finding.origin = selection.use_origin;
  finding.message = error.message();
  return failed(error.status(), state.diagnostics->render(finding), error.exit_code());
}

}  // namespace

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
