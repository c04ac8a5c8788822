// Parts of JSON answers that more than one command gives.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pliant/abi/options.h"
#include "plugin/search.hpp"

namespace pliant::cli {

/// Option rows: key, type, default, required, min, max, choices, unit, doc.
nlohmann::ordered_json options_json(const std::vector<pliant_option>& options);

/// The one plugin that `name` means ("section/name", or a name that only one section has); throws Error when there is
/// none (exit 3) or more than one (exit 2). `sections`: what else may be named there, for the error.
plugin::Found find_plugin(const std::vector<plugin::SearchDir>& dirs, const std::string& name,
                          const std::vector<std::string>& sections = {});

}  // namespace pliant::cli
