// The only file of core that includes toml++.
#include "config/values/parse.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <string>
#include <utility>

#include "config/values/source.hpp"

namespace pliant::config {

namespace {

ValueOrigin origin_of(const toml::source_region& region) {
  const auto& begin = region.begin;
  const auto& end = region.end;
  const bool one_line = end.line == begin.line && end.column > begin.column;
  return {Layer::kFile, begin.line, begin.column, one_line ? end.column - begin.column : 1U, ""};
}

Value convert(const toml::node& node);

Value convert_table(const toml::table& table) {
  Value value;
  for (const auto& [key, node] : table) {
    value.members.push_back({std::string(key.str()), origin_of(key.source()), convert(node)});
  }
  std::stable_sort(value.members.begin(), value.members.end(), [](const Member& a, const Member& b) {
    return std::make_pair(a.key_origin.line, a.key_origin.column) <
           std::make_pair(b.key_origin.line, b.key_origin.column);
  });
  return value;
}

Value convert_array(const toml::array& array) {
  Value value;
  value.type = Value::Type::kArray;
  for (const toml::node& item : array) value.items.push_back(convert(item));
  return value;
}

template <class T>
Value convert_date(const toml::value<T>& node) {
  std::ostringstream text;
  text << node.get();
  Value value = Value::of(text.str());
  value.type = Value::Type::kDateTime;
  return value;
}

Value convert_scalar(const toml::node& node) {
  if (const auto* boolean = node.as_boolean()) return Value::of(boolean->get());
  if (const auto* integer = node.as_integer()) return Value::of(int64_t{integer->get()});
  if (const auto* real = node.as_floating_point()) return Value::of(real->get());
  if (const auto* text = node.as_string()) return Value::of(text->get());
  if (const auto* date = node.as_date()) return convert_date(*date);
  if (const auto* time = node.as_time()) return convert_date(*time);
  return convert_date(*node.as_date_time());
}

Value convert(const toml::node& node) {
  Value value = node.is_table()   ? convert_table(*node.as_table())
                : node.is_array() ? convert_array(*node.as_array())
                                  : convert_scalar(node);
  value.origin = origin_of(node.source());
  return value;
}

void stamp(Value& value, const ValueOrigin& origin) {
  value.origin = origin;
  for (Value& item : value.items) stamp(item, origin);
  for (Member& member : value.members) {
    member.key_origin = origin;
    stamp(member.value, origin);
  }
}

std::optional<toml::table> parse_quietly(const std::string& text) {
  if (text_objection(text)) return std::nullopt;
  try {
    return toml::parse(text);
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

/// What toml++ quotes; "" for nothing.
std::string_view quoted_in(std::string_view description) {
  const size_t open = description.find('\'');
  const size_t close = description.rfind('\'');
  if (open == std::string_view::npos || close <= open + 1) return {};
  return description.substr(open + 1, close - open - 1);
}

/// toml++ reports some words at the end of their token: where `key` begins that ends there.
ValueOrigin start_of(std::string_view key, std::string_view text, ValueOrigin origin) {
  size_t start = 0;
  for (uint32_t line = 1; line < origin.line && start != std::string_view::npos; ++line)
    start = text.find('\n', start) + 1;
  const std::string_view line = text.substr(start, text.find('\n', start) - start);
  const size_t at = line.rfind(key, origin.column);
  if (at == std::string_view::npos) return origin;
  origin.column = static_cast<uint32_t>(at) + 1;
  origin.length = static_cast<uint32_t>(key.size());
  return origin;
}

/// The float without a sign that no 64 bits hold; "" where `description` is about something else.
std::string too_large_float(std::string_view description) {
  std::string word(quoted_in(description));
  if (description.find("floating-point") == std::string_view::npos || word.empty()) return {};
  std::string plain = word;
  std::erase(plain, '_');
  char* end = nullptr;
  const double number = std::strtod(plain.c_str(), &end);
  return *end == '\0' && std::isinf(number) && plain.find_first_of("eE.0123456789") == 0 ? word : std::string();
}

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t first = text.find_first_not_of(kBlanks);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string_view source_line(std::string_view text, uint32_t number) {
  for (uint32_t line = 1; line < number && !text.empty(); ++line) {
    const size_t end = text.find('\n');
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return text.substr(0, text.find('\n'));
}

/// The key that line `number` gives a value, with its table; nullopt where they have no lines of their own.
std::optional<KeyPath> key_at(std::string_view text, uint32_t number) {
  std::string_view table;
  for (uint32_t line = 1; line < number; ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view whole = text.substr(0, end);
    const std::string_view header = without_blanks(whole.substr(0, whole.find('#')));
    if (header.starts_with('[') && header.ends_with(']')) table = header.substr(1, header.size() - 2);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  const std::string_view line = text.substr(0, text.find('\n'));
  const std::string_view key = without_blanks(line.substr(0, line.find('=')));
  return parse_key(table.empty() ? std::string(key) : fmt::format("{}.{}", table, key));
}

/// What to write where `line` is `key = word`, with a word that is no TOML value; empty for any other line.
std::vector<std::string> quoting_hint(std::string_view line) {
  const size_t split = line.find('=');
  if (split == std::string_view::npos) return {};
  const std::string_view key = without_blanks(line.substr(0, split));
  const std::string_view rest = line.substr(split + 1);
  const std::string_view word = without_blanks(rest.substr(0, rest.find('#')));
  if (word.empty() || word.find_first_of("\"'[]{}=,") != std::string_view::npos || !parse_key(key)) return {};
  const bool is_number = (word.front() >= '0' && word.front() <= '9') || word.front() == '-' || word.front() == '+';
  if (is_number || parse_quietly(fmt::format("x = {}", word))) return {};
  std::string small(word);
  for (char& c : small) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const auto& [said, meant] : {std::pair{"true", "true"},
                                    {"yes", "true"},
                                    {"on", "true"},
                                    {"false", "false"},
                                    {"no", "false"},
                                    {"off", "false"}}) {
    if (small == said) return {fmt::format("write {} = {}", key, meant)};
  }
  return {fmt::format("text must be quoted: write {} = {}", key, toml_quoted(word))};
}

}  // namespace

std::optional<Value> parse_document(std::string_view text, Diagnostics& diagnostics, const RangeNote& range_note) {
  if (std::optional<Finding> finding = text_objection(text)) {
    diagnostics.add(std::move(*finding));
    return std::nullopt;
  }
  try {
    return convert(toml::parse(text));
  } catch (const toml::parse_error& error) {
    std::string description(error.description());
    constexpr std::string_view kBegin = "Error while parsing ";
    if (description.starts_with(kBegin)) description.replace(0, kBegin.size(), "invalid ");
    ValueOrigin origin = origin_of(error.source());
    const bool is_duplicate = description.find("redefine") != std::string::npos;
    const std::string large = too_large_float(description);
    const std::string_view word = is_duplicate ? quoted_in(description) : std::string_view(large);
    if (!word.empty()) origin = start_of(word, text, origin);
    std::vector<std::string> notes;
    if (!large.empty()) {
      description = fmt::format("the number {} is too large", large);
      notes.push_back(fmt::format("numbers go from {} to {}", std::numeric_limits<double>::lowest(),
                                  std::numeric_limits<double>::max()));
    } else if (description.find("not representable in 64 bits") != std::string::npos) {
      notes.emplace_back("whole numbers go from -9223372036854775808 to 9223372036854775807");
    }
    if (notes.empty()) {
      notes = quoting_hint(source_line(text, origin.line));
    } else if (const auto key = range_note ? key_at(text, origin.line) : std::nullopt) {
      if (std::string range = range_note(*key); !range.empty()) notes.insert(notes.begin(), std::move(range));
    }
    diagnostics.error(origin, description, notes);
  }
  return std::nullopt;
}

Value parse_override(std::string_view text, const ValueOrigin& origin) {
  Value value = Value::of(std::string(text));
  const bool one_line = text.find('\n') == std::string_view::npos;
  if (const auto table = one_line ? parse_quietly(fmt::format("x = {}", text)) : std::nullopt) {
    if (const toml::node* node = table->get("x"); node != nullptr && table->size() == 1) value = convert(*node);
  }
  stamp(value, origin);
  if (text.empty() || (text.front() != '"' && text.front() != '\'')) value.raw = std::string(text);
  return value;
}

std::optional<KeyPath> parse_key(std::string_view text) {
  if (text.find_first_of("=\n#") != std::string_view::npos) return std::nullopt;
  const auto table = parse_quietly(fmt::format("{} = 0", text));
  if (!table) return std::nullopt;
  KeyPath path;
  const toml::table* level = &*table;
  while (level != nullptr) {
    if (level->size() != 1) return std::nullopt;
    path.emplace_back(level->begin()->first.str());
    level = level->begin()->second.as_table();
  }
  return path;
}

}  // namespace pliant::config
