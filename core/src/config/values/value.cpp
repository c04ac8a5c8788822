// The config tree: lookup, assignment, writing as TOML.
#include "config/values/value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace pliant::config {

namespace {

bool bare(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

std::string real_to_toml(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);  // the shortest that reads back to the same bits
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string shortened(const std::string& text) {
  constexpr size_t kMost = 60;
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

}  // namespace

const Member* Value::member(std::string_view key) const {
  for (const Member& candidate : members) {
    if (candidate.key == key) return &candidate;
  }
  return nullptr;
}

const Value* Value::find(std::string_view key) const {
  const Member* found = member(key);
  return found == nullptr ? nullptr : &found->value;
}

Value* Value::find(std::string_view key) {
  return const_cast<Value*>(std::as_const(*this).find(key));
}

Value Value::of(bool value) {
  Value made;
  made.type = Type::kBool;
  made.boolean = value;
  return made;
}

Value Value::of(int64_t value) {
  Value made;
  made.type = Type::kInt;
  made.integer = value;
  return made;
}

Value Value::of(double value) {
  Value made;
  made.type = Type::kFloat;
  made.real = value;
  return made;
}

Value Value::of(std::string value) {
  Value made;
  made.type = Type::kString;
  made.text = std::move(value);
  return made;
}

Value Value::of(const std::vector<std::string>& values) {
  Value made;
  made.type = Type::kArray;
  for (const std::string& value : values) made.items.push_back(of(value));
  return made;
}

std::string toml_quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        result += "\\\"";
        break;
      case '\\':
        result += "\\\\";
        break;
      case '\n':
        result += "\\n";
        break;
      case '\t':
        result += "\\t";
        break;
      case '\r':
        result += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          result += fmt::format("\\u{:04X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
        } else {
          result += c;
        }
    }
  }
  return result + '"';
}

std::string quoted_key(std::string_view key) {
  return bare(key) ? std::string(key) : toml_quoted(key);
}

std::string dotted(const KeyPath& path) {
  std::string result;
  for (const std::string& key : path) {
    if (!result.empty()) result += '.';
    result += quoted_key(key);
  }
  return result;
}

std::string to_toml(const Value& value) {
  switch (value.type) {
    case Value::Type::kBool:
      return value.boolean ? "true" : "false";
    case Value::Type::kInt:
      return fmt::format("{}", value.integer);
    case Value::Type::kFloat:
      return real_to_toml(value.real);
    case Value::Type::kString:
      return toml_quoted(value.text);
    case Value::Type::kDateTime:
      return value.text;
    case Value::Type::kArray: {
      std::string result = "[";
      for (const Value& item : value.items) result += (result.size() > 1 ? ", " : "") + to_toml(item);
      return result + "]";
    }
    case Value::Type::kTable: {
      std::string result = "{";
      for (const Member& member : value.members) {
        result += (result.size() > 1 ? ", " : " ") + quoted_key(member.key) + " = " + to_toml(member.value);
      }
      return result + (value.members.empty() ? "}" : " }");
    }
  }
  return {};
}

std::string describe(const Value& value) {
  switch (value.type) {
    case Value::Type::kBool:
      return value.boolean ? "true" : "false";
    case Value::Type::kInt:
      return fmt::format("the integer {}", value.integer);
    case Value::Type::kFloat:
      return fmt::format("the float {}", real_to_toml(value.real));
    case Value::Type::kString:
      return fmt::format("the string {}", shortened(toml_quoted(value.text)));
    case Value::Type::kDateTime:
      return fmt::format("the date or time {}", value.text);
    case Value::Type::kArray:
      return "a list";
    case Value::Type::kTable:
      return "a table";
  }
  return {};
}

bool assign(Value& root, const KeyPath& path, Value value) {
  Value* table = &root;
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    Value* next = table->find(path[i]);
    if (next == nullptr) {
      Value made;
      made.origin = value.origin;
      next = &table->members.emplace_back(Member{path[i], value.origin, std::move(made)}).value;
    }
    if (next->type != Value::Type::kTable) return false;
    table = next;
  }
  if (Value* old = table->find(path.back())) {
    *old = std::move(value);
  } else {
    const ValueOrigin origin = value.origin;
    table->members.push_back(Member{path.back(), origin, std::move(value)});
  }
  return true;
}

const Value* at(const Value& root, const KeyPath& path) {
  const Value* value = &root;
  for (const std::string& key : path) {
    value = value->type == Value::Type::kTable ? value->find(key) : nullptr;
    if (value == nullptr) return nullptr;
  }
  return value;
}

}  // namespace pliant::config
