// From a section of an opened config to an instance of its plugin.
#include <fmt/format.h>

#include <utility>

#include "config/state.hpp"
#include "plugin/plugin.hpp"

namespace pliant::plugin {

Result<Instance> instantiate(const Config& config, std::string_view section, const pliant_host* host) {
  const detail::ConfigState& state = config.state();
  const auto found = state.selections.find(section);
  if (found == state.selections.end() || found->second.plugin == nullptr) {
    return failed(Status::kFailedPrecondition,
                  fmt::format("{}: the plugin of [{}] was not opened: the config was opened without that need",
                              config.file().string(), section));
  }
  const config::Selection& selection = found->second;
  Result<Instance> made = Instance::create(selection.plugin, selection.table.values, host);
  if (made) return made;
  const Error& error = made.error();
  config::Finding finding;
  finding.origin = selection.use_origin;
  finding.message = error.message();
  return failed(error.status(), state.diagnostics->render(finding), error.exit_code());
}

}  // namespace pliant::plugin
