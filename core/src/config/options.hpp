// Checks a config table against an option table: the one mechanism for core's own sections and for plugins.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/values/diagnostics.hpp"
#include "config/values/value.hpp"
#include "pliant/abi/options.h"
#include "plugin/plugin.hpp"

namespace pliant::config {

/// One option with the value that won.
struct Effective {
  const pliant_option* option = nullptr;  ///< lives as long as the table it came from
  bool is_set = false;
  Value value;  ///< origin says who set it; layer kDefault for the table's default
};

struct CheckedTable {
  KeyPath path;  ///< of the TOML table
  std::vector<Effective> rows;
  plugin::OptionValues values;

  [[nodiscard]] Effective* find(std::string_view key);
  [[nodiscard]] const Effective* find(std::string_view key) const;
};

/// Values for `options` from `table` (nullptr = nothing given). Every wrong value is a finding, and its default stands
/// in. `fallback`: where to point when a required option is missing. Keys that are no option are not looked at.
CheckedTable check_options(const std::vector<pliant_option>& options, const Value* table, KeyPath path,
                           const ValueOrigin& fallback, Diagnostics& diagnostics);

/// Reports a key that `path` does not have, with the near ones among `known` or all of them.
void report_unknown_key(const Member& member, const KeyPath& path, const std::vector<std::string>& known,
                        Diagnostics& diagnostics, std::vector<std::string> notes = {});

/// True where `option` names a .npy file with offsets or ids of rows.
inline bool is_row_file(const pliant_option& option) {
  return (option.flags & (PLIANT_OPTION_ROW_OFFSETS | PLIANT_OPTION_ROW_IDS)) != 0;
}

/// The keys of a table of options.
std::vector<std::string> keys_of(const std::vector<pliant_option>& options);

/// "int", "float list"; and "1..4096 rows", "at least 1", or "" for no limit.
std::string type_name(int32_t type);
std::string range_text(const pliant_option& option);

/// The default of `option` as a Value; false when it has none.
bool default_of(const pliant_option& option, Value& value);

}  // namespace pliant::config
