// WORLD_SIZE texts: what counts as a number.
#include <doctest/doctest.h>

#include <string>

#include "../plugins/elasticity/common/decimal_text.hpp"

using pliant::elasticity::parse_decimal;

TEST_CASE("digits of any script are a number") {
  CHECK(*parse_decimal("8").value == 8);
  CHECK(*parse_decimal("08").value == 8);
  CHECK(*parse_decimal("0").value == 0);
  CHECK(*parse_decimal("9223372036854775807").value == INT64_MAX);
  CHECK(*parse_decimal("\u0664\u0662").value == 42);
  CHECK(*parse_decimal("1\u0662").value == 12);
  CHECK(*parse_decimal("\uFF18").value == 8);
  CHECK(*parse_decimal("\U0001D7E0").value == 8);
}

TEST_CASE("anything but digits is no number") {
  for (const char* text :
       {"", " 8", "8 ", "-4", "+4", "4.0", "1e3", "eight", "\u00B2", "\u00BD", "\u4E00", "\u2167", "1_0", "0x8"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_decimal(text).valid);
  }
}

TEST_CASE("bytes that are no UTF-8 are no number") {
  for (const std::string& text : {std::string("\x80"), std::string("8\xD9"), std::string("\xF8\x80\x80\x80\x80"),
                                  std::string("\xC0\xB8"), std::string("8\0", 2)}) {
    CHECK_FALSE(parse_decimal(text).valid);
  }
}

TEST_CASE("a number past 63 bits is valid and has no value") {
  const auto parsed = parse_decimal("9223372036854775808");
  CHECK(parsed.valid);
  CHECK_FALSE(parsed.value.has_value());
  CHECK_FALSE(parse_decimal("99999999999999999999999999").value.has_value());
}
