// Value: one node of a config, with where it came from. A TOML tree without toml++.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pliant::config {

/// Who set a value, weakest first.
enum class Layer { kDefault, kFile, kEnvironment, kSet, kFlag };

/// Where a value was written.
struct ValueOrigin {
  Layer layer = Layer::kDefault;
  uint32_t line = 0;    ///< from 1; 0 = not in the file
  uint32_t column = 0;  ///< from 1, in characters
  uint32_t length = 0;  ///< characters on that line, at least 1 when line > 0
  std::string label;    ///< "environment PLIANT__RUN__WORKERS", "--set run.workers=2"; empty for the file that was read
  std::string quote{};  ///< beside a label: the lines of another file that show the place; empty for none
};

struct Member;

struct Value {
  enum class Type { kBool, kInt, kFloat, kString, kDateTime, kArray, kTable };

  Type type = Type::kTable;
  bool boolean = false;
  int64_t integer = 0;
  double real = 0;
  std::string text;             ///< string; date-times as they were written
  std::vector<Value> items;     ///< array
  std::vector<Member> members;  ///< table, in the order of the file
  ValueOrigin origin;
  std::string raw;  ///< from an override: what the user typed, if it was not quoted

  [[nodiscard]] const Value* find(std::string_view key) const;
  [[nodiscard]] Value* find(std::string_view key);
  [[nodiscard]] const Member* member(std::string_view key) const;

  static Value of(bool value);
  static Value of(int64_t value);
  static Value of(double value);
  static Value of(std::string value);
  static Value of(const std::vector<std::string>& values);
};

struct Member {
  std::string key;
  ValueOrigin key_origin;
  Value value;
};

/// A dotted path, one entry per key.
using KeyPath = std::vector<std::string>;

/// `elasticity."v0.1".max_gpus`: bare where TOML allows it, quoted where not.
std::string dotted(const KeyPath& path);

/// `key`, or `"key"` when TOML wants quotes.
std::string quoted_key(std::string_view key);

/// A TOML string in double quotes, escaped.
std::string toml_quoted(std::string_view text);

/// The value in TOML, on one line.
std::string to_toml(const Value& value);

/// "an integer", "the string \"x\"" and so on, for messages.
std::string describe(const Value& value);

/// Sets `path` in `root`, making tables on the way. False when something on the way is no table.
bool assign(Value& root, const KeyPath& path, Value value);

/// nullptr when there is none.
const Value* at(const Value& root, const KeyPath& path);

}  // namespace pliant::config
