// Typed, ranged, defaulted: how a TOML value becomes an option's value.
#include "config/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "base/suggest.hpp"
#include "plugin/option_values.hpp"

namespace pliant::config {

namespace {

constexpr size_t kMostListed = 30;  // known keys shown when none is near

bool is_list(int32_t type) {
  return type >= PLIANT_BOOL_LIST;
}
int32_t element_of(int32_t type) {
  return is_list(type) ? type - (PLIANT_BOOL_LIST - PLIANT_BOOL) : type;
}
bool has(const pliant_option& option, uint32_t flag) {
  return (option.flags & flag) != 0;
}

/// "at least 1 row" of "at least 2 rows".
std::string singular(std::string unit) {
  if (unit.size() > 3 && unit.back() == 's') unit.pop_back();
  return unit;
}

std::string expectation(int32_t element) {
  switch (element) {
    case PLIANT_BOOL:
      return "true or false";
    case PLIANT_INT:
      return "an integer";
    case PLIANT_FLOAT:
      return "a number";
    default:
      return "a string in quotes";
  }
}

/// "; write 1073741824" for an option in bytes that is given as "1GiB"; empty for all else.
std::string bytes_to_write(const pliant_option& option, const Value& value) {
  constexpr std::array<std::pair<std::string_view, int64_t>, 6> kUnits{{{"KiB", int64_t{1} << 10U},
                                                                        {"MiB", int64_t{1} << 20U},
                                                                        {"GiB", int64_t{1} << 30U},
                                                                        {"KB", 1'000},
                                                                        {"MB", 1'000'000},
                                                                        {"GB", 1'000'000'000}}};
  if (value.type != Value::Type::kString || std::string_view(option.unit) != "bytes") return {};
  const std::string_view text = value.text;
  int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit =
      text.substr(std::min(text.find_first_not_of(' ', static_cast<size_t>(end - text.data())), text.size()));
  for (const auto& [name, factor] : kUnits) {
    const bool fits = problem == std::errc() && number >= 0 && number <= std::numeric_limits<int64_t>::max() / factor;
    if (name == unit && fits) return fmt::format("; write {}", number * factor);
  }
  return {};
}

/// One scalar against its option. `where` is `run.workers` or `key[2]`.
class ElementCheck {
 public:
  ElementCheck(const pliant_option& option, Diagnostics& diagnostics) : option_(option), diagnostics_(diagnostics) {}

  /// False after a finding. An integer that stands for a float becomes one.
  bool operator()(Value& value, const std::string& where) {
    const int32_t element = element_of(option_.type);
    if (element == PLIANT_STRING && value.type != Value::Type::kString && !value.raw.empty() &&
        !is_list(option_.type)) {
      retype(value, Value::of(value.raw));  // `--set run.name=7`: what was typed, not what TOML makes of it
    }
    if (element == PLIANT_FLOAT && value.type == Value::Type::kInt) {
      retype(value, Value::of(static_cast<double>(value.integer)));
    }
    switch (element) {
      case PLIANT_BOOL:
        return value.type == Value::Type::kBool || wrong_type(value, where);
      case PLIANT_INT:
        return value.type == Value::Type::kInt ? in_range(value, where) : wrong_type(value, where);
      case PLIANT_FLOAT:
        return value.type == Value::Type::kFloat ? real_in_range(value, where) : wrong_type(value, where);
      default:
        return value.type == Value::Type::kString ? chosen(value, where) : wrong_type(value, where);
    }
  }

 private:
  static void retype(Value& value, Value to) {
    to.origin = value.origin;
    to.raw = std::move(value.raw);
    value = std::move(to);
  }
  bool wrong_type(const Value& value, const std::string& where) {
    const std::string range = range_text(option_);
    diagnostics_.error(
        value.origin,
        fmt::format("{} must be {}{}, not {}{}", where, expectation(element_of(option_.type)),
                    range.empty() ? "" : fmt::format(" ({})", range), describe(value), bytes_to_write(option_, value)));
    return false;
  }
  bool out_of_range(const Value& value, const std::string& where) {
    diagnostics_.error(value.origin, fmt::format("{} must be {}, not {}", where, range_text(option_), to_toml(value)));
    return false;
  }
  bool in_range(const Value& value, const std::string& where) {
    const bool low = has(option_, PLIANT_OPTION_HAS_MIN) && value.integer < option_.int_min;
    const bool high = has(option_, PLIANT_OPTION_HAS_MAX) && value.integer > option_.int_max;
    return !(low || high) || out_of_range(value, where);
  }
  bool real_in_range(const Value& value, const std::string& where) {
    if (!std::isfinite(value.real)) {
      diagnostics_.error(value.origin, fmt::format("{} must be a finite number, not {}", where, to_toml(value)));
      return false;
    }
    const bool low = has(option_, PLIANT_OPTION_HAS_MIN) && value.real < option_.float_min;
    const bool high = has(option_, PLIANT_OPTION_HAS_MAX) && value.real > option_.float_max;
    return !(low || high) || out_of_range(value, where);
  }
  bool chosen(const Value& value, const std::string& where) {
    std::vector<std::string> choices;
    for (uint32_t i = 0; i < option_.choice_count; ++i) {
      if (value.text == option_.choices[i]) return true;
      choices.emplace_back(option_.choices[i]);
    }
    if (choices.empty()) return true;
    std::vector<std::string> notes;
    if (const auto near = nearest(value.text, choices); !near.empty()) {
      notes.push_back(fmt::format("did you mean \"{}\"?", near.front()));
    }
    diagnostics_.error(
        value.origin,
        fmt::format("{} must be one of \"{}\", not {}", where, fmt::join(choices, "\", \""), describe(value)),
        std::move(notes));
    return false;
  }

  const pliant_option& option_;
  Diagnostics& diagnostics_;
};

bool check_list(Value& value, const pliant_option& option, const std::string& where, Diagnostics& diagnostics) {
  if (value.type != Value::Type::kArray) {
    diagnostics.error(value.origin, fmt::format("{} must be a list, each element {}, not {}", where,
                                                expectation(element_of(option.type)), describe(value)));
    return false;
  }
  const uint64_t count = value.items.size();
  if (count < option.list_min || (option.list_max != 0 && count > option.list_max)) {
    const std::string limits = option.list_max == 0 ? fmt::format("at least {}", option.list_min)
                                                    : fmt::format("{} to {}", option.list_min, option.list_max);
    diagnostics.error(value.origin, fmt::format("{} must have {} element{}, not {}", where, limits,
                                                option.list_max == 0 && option.list_min == 1 ? "" : "s", count));
    return false;
  }
  bool good = true;
  ElementCheck check(option, diagnostics);
  for (size_t i = 0; i < value.items.size(); ++i) {
    good = check(value.items[i], fmt::format("{}[{}]", where, i)) && good;
  }
  return good;
}

void store(plugin::OptionValues::State& values, size_t index, const pliant_option& option, const Value& value) {
  switch (option.type) {
    case PLIANT_BOOL:
      return values.set_integer(index, value.boolean ? 1 : 0);
    case PLIANT_INT:
      return values.set_integer(index, value.integer);
    case PLIANT_FLOAT:
      return values.set_real(index, value.real);
    case PLIANT_STRING:
      return values.set_text(index, value.text);
    default:
      break;
  }
  std::vector<int64_t> integers;
  std::vector<double> reals;
  std::vector<std::string> texts;
  for (const Value& item : value.items) {
    integers.push_back(option.type == PLIANT_BOOL_LIST ? int64_t{item.boolean} : item.integer);
    reals.push_back(item.real);
    texts.push_back(item.text);
  }
  if (option.type == PLIANT_FLOAT_LIST) return values.set_reals(index, std::move(reals));
  if (option.type == PLIANT_STRING_LIST) return values.set_texts(index, texts);
  values.set_integers(index, std::move(integers));
}

void report_missing(const pliant_option& option, const KeyPath& path, const ValueOrigin& fallback,
                    Diagnostics& diagnostics) {
  const std::string range = range_text(option);
  diagnostics.error(fallback, fmt::format("{} is missing from [{}]: {}", option.key, dotted(path), option.doc),
                    {fmt::format("write {} = <{}{}> in [{}]", option.key, type_name(option.type),
                                 range.empty() ? "" : ", " + range, dotted(path))});
}

Value scalar_of(const pliant_value& from, int32_t element, uint64_t index, bool list) {
  switch (element) {
    case PLIANT_BOOL:
      return Value::of((list ? from.integers[index] : from.integer) != 0);
    case PLIANT_INT:
      return Value::of(list ? from.integers[index] : from.integer);
    case PLIANT_FLOAT:
      return Value::of(list ? from.reals[index] : from.real);
    default: {
      const pliant_str text = list ? from.texts[index] : from.text;
      return Value::of(text.data == nullptr ? std::string() : std::string(text.data, static_cast<size_t>(text.size)));
    }
  }
}

}  // namespace

const Effective* CheckedTable::find(std::string_view key) const {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [key](const Effective& row) { return key == row.option->key; });
  return found == rows.end() ? nullptr : &*found;
}
Effective* CheckedTable::find(std::string_view key) {
  return const_cast<Effective*>(std::as_const(*this).find(key));
}

CheckedTable check_options(const std::vector<pliant_option>& options, const Value* table, KeyPath path,
                           const ValueOrigin& fallback, Diagnostics& diagnostics) {
  CheckedTable checked;
  checked.path = std::move(path);
  checked.values.state().reset(options);
  for (size_t i = 0; i < options.size(); ++i) {
    const pliant_option& option = options[i];
    Effective& row = checked.rows.emplace_back();
    row.option = &option;
    const Value* given = table == nullptr ? nullptr : table->find(option.key);
    if (given == nullptr) {
      if (has(option, PLIANT_OPTION_REQUIRED)) report_missing(option, checked.path, fallback, diagnostics);
      row.is_set = default_of(option, row.value);
      checked.values.state().set_default(i, option);
      continue;
    }
    row.value = *given;
    const std::string where = dotted(checked.path) + "." + option.key;
    row.is_set = is_list(option.type) ? check_list(row.value, option, where, diagnostics)
                                      : ElementCheck(option, diagnostics)(row.value, where);
    if (row.is_set) {
      store(checked.values.state(), i, option, row.value);
    } else {
      checked.values.state().set_default(i, option);
    }
  }
  return checked;
}

void report_unknown_key(const Member& member, const KeyPath& path, const std::vector<std::string>& known,
                        Diagnostics& diagnostics, std::vector<std::string> notes) {
  if (const auto near = nearest(member.key, known); !near.empty()) {
    notes.push_back(fmt::format("did you mean '{}'?", near.front()));
  } else if (notes.empty() && !known.empty() && known.size() <= kMostListed) {
    notes.push_back(fmt::format("{} are: {}", path.empty() ? "the sections" : "its keys", fmt::join(known, ", ")));
  }
  const std::string where = path.empty() ? std::string() : fmt::format(" in [{}]", dotted(path));
  const bool section = path.empty() && member.value.type == Value::Type::kTable;
  diagnostics.error(member.key_origin,
                    section ? fmt::format("unknown section [{}]", quoted_key(member.key))
                            : fmt::format("unknown key '{}'{}", member.key, where),
                    std::move(notes));
}

std::vector<std::string> keys_of(const std::vector<pliant_option>& options) {
  std::vector<std::string> keys;
  for (const pliant_option& option : options) keys.emplace_back(option.key);
  return keys;
}

std::string type_name(int32_t type) {
  const char* element = element_of(type) == PLIANT_BOOL    ? "bool"
                        : element_of(type) == PLIANT_INT   ? "int"
                        : element_of(type) == PLIANT_FLOAT ? "float"
                                                           : "string";
  return is_list(type) ? fmt::format("{} list", element) : element;
}

std::string range_text(const pliant_option& option) {
  const int32_t element = element_of(option.type);
  if (element != PLIANT_INT && element != PLIANT_FLOAT) return {};
  const auto number = [&](int64_t integer, double real) {
    return element == PLIANT_INT ? fmt::format("{}", integer) : fmt::format("{}", real);
  };
  const bool low = has(option, PLIANT_OPTION_HAS_MIN);
  const bool high = has(option, PLIANT_OPTION_HAS_MAX);
  const std::string unit = *option.unit == '\0' ? "" : fmt::format(" {}", option.unit);
  const std::string lowest = number(option.int_min, option.float_min);
  const std::string highest = number(option.int_max, option.float_max);
  if (low && high) return fmt::format("{}..{}{}", lowest, highest, unit);
  if (low) return fmt::format("at least {}{}", lowest, lowest == "1" ? singular(unit) : unit);
  if (high) return fmt::format("at most {}{}", highest, unit);
  return {};
}

bool default_of(const pliant_option& option, Value& value) {
  const pliant_value* from = option.default_value;
  if (from == nullptr || from->is_set == 0) return false;
  const int32_t element = element_of(option.type);
  if (!is_list(option.type)) {
    value = scalar_of(*from, element, 0, false);
    return true;
  }
  value = Value::of(std::vector<std::string>());
  for (uint64_t i = 0; i < from->count; ++i) value.items.push_back(scalar_of(*from, element, i, true));
  return true;
}

}  // namespace pliant::config
