// From the sections of an opened config to instances of their plugins, and from what these refuse to a place in the
// file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "config/values/value.hpp"
#include "pliant/config.hpp"
#include "plugin/plugin.hpp"

namespace pliant::config {

/// Makes an instance of what `use` names in `section` of `config`, which was opened with that need.
Result<plugin::Instance> instantiate(const Config& config, std::string_view section, const pliant_host* host = nullptr);

/// `error` of the plugin that [section] of `config` names, as `file:line:col: error: ...` with the position of the
/// option that it is about; `error` as it is where it is about none that somebody set.
Error at_option(const Config& config, std::string_view section, const Error& error);

/// Where `error` of [section] belongs: the option that it is about, else what names the plugin, else the section.
ValueOrigin place_of(const Config& config, std::string_view section, const Error& error);

/// True where the plugin that [section] of `config` names has an option `key` that is true or false, and is false.
bool is_off(const Config& config, std::string_view section, std::string_view key);

/// `error` with the position of core's own option `key` of [section].
Error at_core_option(const Config& config, std::string_view section, std::string_view key, const Error& error);

/// What the sampler's options name for rows that were made beforehand.
struct RowFiles {
  bool taken = false;       ///< the sampler takes such rows
  std::string offsets_key;  ///< of the options
  std::string ids_key;
  std::string offsets;  ///< absolute paths; empty: not given
  std::string ids;
};
RowFiles row_files(const Config& config);

/// The plugin that [section] of `config` names, its version and every option, defaults included but without files of
/// rows, as one line of JSON.
/// kFailedPrecondition where the section was not opened.
Result<std::string> choice_of(const Config& config, std::string_view section);

/// True when `config` was opened with that need.
bool is_open(const Config& config, std::string_view section);

/// The rules of [lr] in the order of the chain: schedule, use, then.
Result<std::vector<plugin::Instance>> instantiate_lr_chain(const Config& config);

/// `error` of rule `link` of that chain, as `file:line:col: error: ...` with the position of `key` in [lr] where
/// somebody set it, else of the rule's name.
Error at_lr_key(const Config& config, size_t link, std::string_view key, const Error& error);

}  // namespace pliant::config
