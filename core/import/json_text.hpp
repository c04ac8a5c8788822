// JSON as Python's json module reads it, with the position of every value.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/values/diagnostics.hpp"
#include "config/values/value.hpp"

namespace pliant::config::deepspeed {

struct JsonMember;

struct Json {
  enum class Type { kNull, kBool, kInt, kFloat, kString, kArray, kObject };

  Type type = Type::kNull;
  bool boolean = false;
  std::string text;                 ///< a string's characters; a number as it was written
  std::vector<Json> items;          ///< array
  std::vector<JsonMember> members;  ///< object; each key once, at its first place, with its last value
  ValueOrigin origin;

  [[nodiscard]] bool is(Type wanted) const { return type == wanted; }
  /// nullptr when this is no object or has no such key.
  [[nodiscard]] const Json* find(std::string_view key) const;
};

struct JsonMember {
  std::string key;
  Json value;
  int times = 1;  ///< how often the object has the key
};

/// Integers of any size, NaN and the infinities are numbers; half a surrogate pair becomes U+FFFD; a byte order mark is
/// skipped. nullopt after an error, which is then in `diagnostics`.
std::optional<Json> parse_json(std::string_view text, Diagnostics& diagnostics);

}  // namespace pliant::config::deepspeed
