// Values as text of JSON: a reader of JSON finds them again.
#include "base/append_json.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

namespace pliant {
namespace {

template <class Value>
nlohmann::json read_back(const Value& value) {
  std::string text = "before";
  append_json(text, value);
  REQUIRE(text.starts_with("before"));
  return nlohmann::json::parse(text.substr(6));
}

}  // namespace

TEST_CASE("text is read as it was written, and is one line of ASCII") {
  for (const std::string& text :
       {std::string(), std::string("plain"), std::string("a \"quoted\" \\ path"), std::string("line\nline\ttab\x7f"),
        std::string("Gr\xc3\xb6\xc3\x9f"
                    "e \xf0\x9f\x98\x80"),
        std::string("nul\0inside", 10)}) {
    CAPTURE(text);
    CHECK(read_back(std::string_view(text)) == text);
    std::string written;
    append_json(written, text);
    for (const char c : written) CHECK((c >= ' ' && c <= '~'));
  }
  CHECK(read_back(std::string_view("\xff!")) == "\xef\xbf\xbd!");
}

TEST_CASE("a number has the bits that were written, and stays a floating-point one") {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const auto value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    const nlohmann::json back = read_back(value);
    REQUIRE(back.is_number_float());
    REQUIRE(std::bit_cast<uint64_t>(back.get<double>()) == std::bit_cast<uint64_t>(value));
  }
  for (const double value :
       {0.0, -0.0, 1.0, -3.0, 1e15, 1e16, 1e22, 123456789012345678.0, 5e-324, std::numeric_limits<double>::max()}) {
    CAPTURE(value);
    const nlohmann::json back = read_back(value);
    CHECK(back.is_number_float());
    CHECK(std::bit_cast<uint64_t>(back.get<double>()) == std::bit_cast<uint64_t>(value));
  }
  CHECK(read_back(std::numeric_limits<double>::quiet_NaN()) == "nan");
  CHECK(read_back(std::numeric_limits<double>::infinity()) == "inf");
  CHECK(read_back(-std::numeric_limits<double>::infinity()) == "-inf");
}

TEST_CASE("whole numbers and truth values are read as such") {
  CHECK(read_back(std::numeric_limits<int64_t>::min()) == std::numeric_limits<int64_t>::min());
  CHECK(read_back(std::numeric_limits<uint64_t>::max()) == std::numeric_limits<uint64_t>::max());
  CHECK(read_back(int32_t{-7}) == -7);
  CHECK(read_back(true) == true);
  CHECK(read_back(false) == false);
}

}  // namespace pliant
