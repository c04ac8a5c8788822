// Opening a config with more say than the public API gives: what `pliant config` needs.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "config/state.hpp"
#include "pliant/config.hpp"

namespace pliant::config {

using StatePtr = std::shared_ptr<const detail::ConfigState>;

/// As Config::open. With `every_section` the plugins of all sections that are there are opened and checked, beside
/// those that `needs` names. `app_places`: where the keys of [app] were written (config/app_places.hpp), for a file
/// that was made of another.
Result<StatePtr> open_state(const std::filesystem::path& file, const ConfigNeeds& needs,
                            const ConfigOverrides& overrides, bool every_section = false,
                            std::string_view app_places = {});

/// The same for a text that was read already; `name`: the path of its file, as messages give it.
Result<StatePtr> open_text(std::string text, const std::filesystem::path& name, const ConfigNeeds& needs,
                           const ConfigOverrides& overrides, bool every_section = false,
                           std::string_view app_places = {});

/// A config as far as it can be read.
struct Examined {
  StatePtr state;              ///< nullptr where the file cannot be read or is no TOML
  std::optional<Error> error;  ///< everything that is wrong with it
};
/// What open_state with every section refuses, and what there is in spite of it: an option that is wrong or missing has
/// its default.
Examined examine(const std::filesystem::path& file, const ConfigOverrides& overrides);

/// The search path without a config: --plugin-dir, PLIANT_PLUGIN_PATH, installed.
Result<std::vector<plugin::SearchDir>> search_dirs(const ConfigOverrides& overrides);

/// Findings that are no errors: a table of a plugin that is not in use and looks misspelt. One block each.
std::vector<std::string> warnings(const detail::ConfigState& state);

/// One key of the effective config.
struct Shown {
  KeyPath path;
  Value value;
  std::string origin;  ///< "pliant.toml:8:1", "--set run.workers=2", "environment PLIANT__...", "default"
};
/// Every key that has a value: core's sections, the plugins that were opened, [app].
std::vector<Shown> effective(const detail::ConfigState& state);

/// The effective config as a document; with `origins` every line says in a comment who set it.
std::string to_document(const detail::ConfigState& state, bool origins);

/// The TOML table [path] of `options` with their defaults, docs and ranges as comments.
std::string defaults_document(const KeyPath& path, const std::vector<pliant_option>& options);

}  // namespace pliant::config
