// The option table of a plugin, row by row: types, keys, docs, ranges, choices, defaults.
#include <fmt/format.h>

#include <cmath>
#include <set>
#include <string_view>

#include "pliant/sdk/sized.hpp"
#include "plugin/record_check.hpp"

namespace pliant::plugin {

namespace {

bool is_list(int32_t type) {
  return type >= PLIANT_BOOL_LIST;
}
int32_t element_of(int32_t type) {
  return is_list(type) ? type - (PLIANT_BOOL_LIST - PLIANT_BOOL) : type;
}

bool valid_key(std::string_view key) {
  if (key.empty() || key.size() > 64 || key.front() < 'a' || key.front() > 'z') return false;
  for (const char c : key) {
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_')) return false;
  }
  return true;
}

std::string range_objection(const pliant_option& option) {
  const bool both = (option.flags & PLIANT_OPTION_HAS_MIN) != 0 && (option.flags & PLIANT_OPTION_HAS_MAX) != 0;
  const int32_t element = element_of(option.type);
  if (element == PLIANT_INT && both && option.int_min > option.int_max) return "its range is empty";
  if (element == PLIANT_FLOAT) {
    if (std::isnan(option.float_min) || std::isnan(option.float_max)) return "its range is not a number";
    if (both && option.float_min > option.float_max) return "its range is empty";
  }
  if (is_list(option.type) && option.list_max != 0 && option.list_min > option.list_max)
    return "its list range is empty";
  if (option.choice_count == 0) return {};
  if (element != PLIANT_STRING) return "it has choices but is not a string";
  if (option.choices == nullptr) return "its choices are NULL";
  for (uint32_t i = 0; i < option.choice_count; ++i) {
    if (option.choices[i] == nullptr) return "one of its choices is NULL";
  }
  return {};
}

std::string element_objection(const pliant_option& option, int64_t value) {
  if (element_of(option.type) == PLIANT_BOOL)
    return value == 0 || value == 1 ? "" : "its default is neither true nor false";
  const bool low = (option.flags & PLIANT_OPTION_HAS_MIN) != 0 && value < option.int_min;
  const bool high = (option.flags & PLIANT_OPTION_HAS_MAX) != 0 && value > option.int_max;
  return low || high ? fmt::format("its default {} is outside its range", value) : std::string();
}

std::string element_objection(const pliant_option& option, double value) {
  if (!std::isfinite(value)) return "its default is not finite";
  const bool low = (option.flags & PLIANT_OPTION_HAS_MIN) != 0 && value < option.float_min;
  const bool high = (option.flags & PLIANT_OPTION_HAS_MAX) != 0 && value > option.float_max;
  return low || high ? fmt::format("its default {} is outside its range", value) : std::string();
}

std::string element_objection(const pliant_option& option, pliant_str value) {
  if (value.data == nullptr && value.size != 0) return "its default is NULL";
  const std::string_view text = value.data == nullptr ? std::string_view() : std::string_view(value.data, value.size);
  for (uint32_t i = 0; i < option.choice_count; ++i) {
    if (text == option.choices[i]) return {};
  }
  return option.choice_count == 0 ? std::string() : fmt::format("its default '{}' is not among its choices", text);
}

template <class V>
std::string list_objection(const pliant_option& option, const V* values, uint64_t count) {
  if (count > 0 && values == nullptr) return "its default is NULL";
  if (count < option.list_min || (option.list_max != 0 && count > option.list_max)) {
    return fmt::format("its default has {} elements, which is outside its limits", count);
  }
  for (uint64_t i = 0; i < count; ++i) {
    if (std::string why = element_objection(option, values[i]); !why.empty()) return why;
  }
  return {};
}

std::string default_objection(const pliant_option& option) {
  const pliant_value* value = option.default_value;
  if (value == nullptr) return {};
  if ((option.flags & PLIANT_OPTION_REQUIRED) != 0) return "it is required but has a default";
  if (value->struct_size < sdk::bytes_to(&pliant_value::texts)) return "the struct of its default is too short";
  if (value->type != option.type || value->is_set == 0) return "its default has another type or is not set";
  switch (option.type) {
    case PLIANT_BOOL:
    case PLIANT_INT:
      return element_objection(option, value->integer);
    case PLIANT_FLOAT:
      return element_objection(option, value->real);
    case PLIANT_STRING:
      return element_objection(option, value->text);
    case PLIANT_BOOL_LIST:
    case PLIANT_INT_LIST:
      return list_objection(option, value->integers, value->count);
    case PLIANT_FLOAT_LIST:
      return list_objection(option, value->reals, value->count);
    default:
      return list_objection(option, value->texts, value->count);
  }
}

/// `files`: the flags of the rows before it that name files of rows.
std::string row_file_objection(const pliant_option& option, uint32_t& files) {
  const uint32_t flags = option.flags & (PLIANT_OPTION_ROW_OFFSETS | PLIANT_OPTION_ROW_IDS);
  if (flags == 0) return {};
  if (option.type != PLIANT_STRING || option.choice_count != 0) return "it names a file of rows but is no free string";
  if (flags == (PLIANT_OPTION_ROW_OFFSETS | PLIANT_OPTION_ROW_IDS)) return "it names offsets and ids of rows at once";
  if ((files & flags) != 0) return "another option names the same file of rows";
  files |= flags;
  return {};
}

}  // namespace

std::string table_objection(const std::vector<pliant_option>& options) {
  std::set<std::string_view> keys;
  uint32_t row_files = 0;
  for (size_t i = 0; i < options.size(); ++i) {
    const pliant_option& option = options[i];
    if (option.key == nullptr || !valid_key(option.key)) {
      return fmt::format("row {} of its option table has no valid key ([a-z][a-z0-9_]*)", i + 1);
    }
    const std::string row = fmt::format("option '{}' of its table: ", option.key);
    if (!keys.insert(option.key).second) return row + "the key is not unique";
    if (option.type < PLIANT_BOOL || option.type > PLIANT_STRING_LIST)
      return row + fmt::format("type {} is unknown", option.type);
    if (option.doc == nullptr || *option.doc == '\0') return row + "its doc is missing";
    if (option.unit == nullptr) return row + "its unit is NULL; an option without one says \"\"";
    if (std::string why = range_objection(option); !why.empty()) return row + why;
    if (std::string why = default_objection(option); !why.empty()) return row + why;
    if (std::string why = row_file_objection(option, row_files); !why.empty()) return row + why;
  }
  if (row_files == PLIANT_OPTION_ROW_OFFSETS)
    return "its option table names a file for the offsets of rows but none for their ids";
  if (row_files == PLIANT_OPTION_ROW_IDS)
    return "its option table names a file for the ids of rows but none for their offsets";
  return {};
}

}  // namespace pliant::plugin
