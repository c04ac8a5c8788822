// What a JSON value means to Python code: bool(), int(), float(), and what counts as a number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "import/json_text.hpp"

namespace pliant::config::deepspeed {

/// bool(value).
bool is_true(const Json& value);

/// float(value), for ASCII text; nullopt where Python raises.
std::optional<double> as_float(const Json& value);

/// A number as comparisons see it: true is 1. nullopt for anything else.
struct Number {
  enum class Fit { kExact, kFraction, kTooLarge, kNotFinite };
  Fit fit = Fit::kExact;
  int64_t floor = 0;  ///< kExact: the value; kFraction: the integer below; else 0
  bool negative = false;
};
std::optional<Number> as_number(const Json& value);

/// int(value): text is read, fractions are cut off. nullopt where Python raises, or past 63 bits.
std::optional<int64_t> as_int(const Json& value);

/// text.lower(), for ASCII text.
std::string lower(std::string text);

/// For messages: `the string "x"`, `null`, `2.5`; cut when it is long.
std::string describe(const Json& value);

}  // namespace pliant::config::deepspeed
