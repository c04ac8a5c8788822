// Checks of the record that a plugin's entry returned, before anything in it is used.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "pliant/abi/plugin.h"
#include "plugin/plugin.hpp"

namespace pliant::plugin {

/// Why `record` breaks the contract of `kind`, or an empty text. Nothing past what struct_size covers is read. When all
/// is well, `options` holds the rows of its table.
std::string record_objection(const pliant_plugin* record, const Kind& kind, std::vector<pliant_option>& options);

/// Why the rows are no valid option table, or an empty text.
std::string table_objection(const std::vector<pliant_option>& options);

/// True for [a-z0-9][a-z0-9._-]*.
bool valid_plugin_name(std::string_view name);

}  // namespace pliant::plugin
