// From a section of an opened config to an instance of its plugin.
#include <fmt/format.h>

#include <cctype>
#include <optional>
#include <string>
#include <utility>

#include "config/state.hpp"
#include "plugin/plugin.hpp"

namespace pliant::plugin {

namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// Where `text` has `word` as a word of its own; npos when nowhere.
size_t find_word(const std::string& text, const std::string& word) {
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const size_t past = at + word.size();
    if ((at == 0 || !is_word(text[at - 1])) && (past == text.size() || !is_word(text[past]))) return at;
  }
  return std::string::npos;
}

/// Of the options that somebody set the one that `message` names first.
std::optional<config::Origin> option_in(const config::Selection& selection, const std::string& message) {
  std::optional<config::Origin> origin;
  size_t first = std::string::npos;
  for (const config::Effective& row : selection.table.rows) {
    if (row.value.origin.layer == config::Layer::kDefault) continue;
    const size_t at = find_word(message, row.option->key);
    if (at >= first) continue;
    first = at;
    origin = row.value.origin;
  }
  return origin;
}

}  // namespace

Error with_position(const Config& config, std::string_view section, const Error& error, bool or_of_plugin) {
  const detail::ConfigState& state = config.state();
  const auto found = state.selections.find(section);
  if (found == state.selections.end()) return error;
  const std::optional<config::Origin> named = option_in(found->second, error.message());
  if (!named && !or_of_plugin) return error;
  config::Finding finding;
  finding.origin = named.value_or(found->second.use_origin);
  finding.message = error.message();
  return {error.status(), state.diagnostics->render(finding), error.exit_code()};
}

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
  return tl::unexpected<Error>(with_position(config, section, made.error(), true));
}

}  // namespace pliant::plugin
