// Text from outside on its way to a terminal.
#include "base/printable.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

using pliant::printable;

TEST_CASE("words, lines and tabs stay as they are") {
  for (const std::string text : {"", "plain", "a\tb\nc", "\u00e9 \u20ac \U0001F600"}) CHECK(printable(text) == text);
}

TEST_CASE("what a terminal obeys is shown instead") {
  CHECK(printable("\x1b[31m") == "\\u001b[31m");
  CHECK(printable("1 %\r2 %") == "1 %\\r2 %");
  CHECK(printable(std::string("a\0b", 3)) == "a\\u0000b");
  CHECK(printable("\x7f\x07") == "\\u007f\\u0007");
  CHECK(printable("\xc2\x9b"
                  "2J") == "\\u009b2J");  // CSI as one character
  CHECK(printable("\xe2\x80\xae"
                  "abc") == "\\u202eabc");  // from right to left
}

TEST_CASE("bytes that are no UTF-8 are shown one by one") {
  CHECK(printable("\x9b"
                  "2J") == "\\x9b2J");
  CHECK(printable("\xff\xc3") == "\\xff\\xc3");
  CHECK(printable("\xc0\x9b") == "\\xc0\\x9b");
}

TEST_CASE("JSON stays the same JSON") {
  const nlohmann::json json{{"message", "\x1b\x7f\u009b\u202e \u00e9\n"}};
  CHECK(nlohmann::json::parse(printable(json.dump())) == json);
}
