// A number written in decimal digits of any script, as Python reads WORLD_SIZE: "8", "08", Arabic-Indic digits.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace pliant::elasticity {

struct DecimalText {
  bool valid = false;            ///< at least one digit, and nothing but digits: no sign, space, point or exponent
  std::optional<int64_t> value;  ///< unset when it does not fit 63 bits
};

/// `text` is UTF-8.
DecimalText parse_decimal(std::string_view text);

}  // namespace pliant::elasticity
