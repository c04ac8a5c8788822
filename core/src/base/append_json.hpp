// Values as text of JSON, where no tree of them is needed: a message of every step, a line of a log.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

namespace pliant {

/// A string in quotes, of ASCII alone: other characters and control characters are escaped, bytes that are no UTF-8
/// become U+FFFD. O(bytes).
void append_json(std::string& to, std::string_view text);
/// A number that is read as a floating-point one and has the same bits. JSON has no NaN and no infinity: these are the
/// strings "nan", "inf" and "-inf".
void append_json(std::string& to, double value);
void append_json(std::string& to, long long value);
void append_json(std::string& to, unsigned long long value);

template <std::integral Integer>
void append_json(std::string& to, Integer value) {
  if constexpr (std::same_as<Integer, bool>) {
    to += value ? "true" : "false";
  } else if constexpr (std::is_signed_v<Integer>) {
    append_json(to, static_cast<long long>(value));
  } else {
    append_json(to, static_cast<unsigned long long>(value));
  }
}

}  // namespace pliant
