// JSON text as Python reads it, with positions.
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "import/json_text.hpp"
#include "import/python.hpp"

using pliant::config::Diagnostics;
using namespace pliant::config::deepspeed;

namespace {

std::optional<Json> read(const std::string& text) {
  Diagnostics diagnostics("a.json", text);
  std::optional<Json> json = parse_json(text, diagnostics);
  CHECK(json.has_value() != diagnostics.failed());
  return json;
}

/// The first line of what is said about `text`; "" when it is read.
std::string refusal(const std::string& text) {
  Diagnostics diagnostics("a.json", text);
  if (parse_json(text, diagnostics)) return {};
  const std::string message = diagnostics.to_error().message();
  return message.substr(0, message.find('\n'));
}

}  // namespace

TEST_CASE("text that is no JSON is refused with line, column and what is wanted there") {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "a.json:1:1: error: there is no JSON in this file"},
      {" \n\t", "a.json:2:2: error: there is no JSON in this file"},
      {"\xEF\xBB\xBF", "a.json:1:1: error: there is no JSON in this file"},
      {"{\"a\": 1,\n \"b\" 2}", "a.json:2:6: error: expected ':' after the key, found '2'"},
      {"{\"a\": 1,}", "a.json:1:9: error: expected a key in double quotes, found '}'"},
      {"[1, 2,]", "a.json:1:7: error: expected a value, found ']'"},
      {"{'a': 1}", "a.json:1:2: error: expected a key in double quotes, found '''"},
      {"{\n  # why\n}", "a.json:2:3: error: expected a key in double quotes, found '#'"},
      {"{\"a\": True}", "a.json:1:7: error: expected a value, found 'T'"},
      {"{\"a\": 1", "a.json:1:8: error: the file ends where ',' or '}' must follow"},
      {"{\"a", "a.json:1:4: error: the string does not end on this line"},
      {"[\"a\nb\"]", "a.json:1:4: error: the string does not end on this line"},
      {"[\"a\tb\"]", "a.json:1:4: error: control character 0x09 must be written \\u0009"},
      {"[\"\\x\"]", "a.json:1:3: error: unknown escape; allowed: \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX"},
      {"[\"\\u12g4\"]", "a.json:1:3: error: unknown escape; allowed: \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX"},
      {"[\"\\", "a.json:1:3: error: unknown escape; allowed: \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX"},
      {"[\"\xff\"]", "a.json:1:3: error: byte 0xff is not UTF-8 text"},
      {"[\x01]", "a.json:1:2: error: expected a value, found control character 0x01"},
      {"[01]", "a.json:1:3: error: expected ',' or ']', found '1'"},
      {"[+1]", "a.json:1:2: error: expected a value, found '+'"},
      {"[1.]", "a.json:1:3: error: expected ',' or ']', found '.'"},
      {"[-]", "a.json:1:2: error: expected a value, found '-'"},
      {"[.5]", "a.json:1:2: error: expected a value, found '.'"},
      {"{} {}", "a.json:1:4: error: the JSON value has ended, but the file goes on"},
      {std::string("[1\0]", 4), "a.json:1:3: error: expected ',' or ']', found control character 0x00"},
      {"[\"\xC3\xA4\", x]", "a.json:1:7: error: expected a value, found 'x'"},
      {std::string(100, '['), "a.json:1:66: error: nesting deeper than 64 levels"},
  };
  for (const auto& one : cases) {
    const std::string& text = one.first;
    const auto& wanted = one.second;
    CAPTURE(text);
    CHECK(refusal(text) == wanted);
  }
}

TEST_CASE("what only Python takes is taken") {
  const auto json = read("\xEF\xBB\xBF{\"a\": [NaN, Infinity, -Infinity, 123456789012345678901234567890, 1e999, -0]}");
  REQUIRE(json);
  const Json& list = *json->find("a");
  CHECK(list.items.size() == 6);
  CHECK(as_number(list.items[0])->fit == Number::Fit::kNotFinite);
  CHECK(as_number(list.items[2])->fit == Number::Fit::kNotFinite);
  CHECK(as_number(list.items[3])->fit == Number::Fit::kTooLarge);
  CHECK(as_number(list.items[4])->fit == Number::Fit::kNotFinite);
  CHECK(as_number(list.items[5])->floor == 0);
}

TEST_CASE("escapes become characters, half a surrogate pair a replacement character") {
  const auto json = read(R"(["\u0041\n\"\/", "\ud83d\ude00", "\ud83d!", "\ude00"])");
  REQUIRE(json);
  CHECK(json->items[0].text == "A\n\"/");
  CHECK(json->items[1].text == "\xF0\x9F\x98\x80");
  CHECK(json->items[2].text == "\xEF\xBF\xBD!");
  CHECK(json->items[3].text == "\xEF\xBF\xBD");
}

TEST_CASE("of a key given twice the last value counts, at the place of the first") {
  const auto json = read(R"({"a": 1, "b": 2, "a": 3})");
  REQUIRE(json);
  REQUIRE(json->members.size() == 2);
  CHECK(json->members[0].key == "a");
  CHECK(json->members[0].times == 2);
  CHECK(json->find("a")->text == "3");
  CHECK(json->find("a")->origin.column == 23);
}

TEST_CASE("truth is Python's") {
  const std::vector<std::pair<std::string, bool>> cases{
      {"true", true},      {"false", false}, {"null", false}, {"0", false},      {"-0", false},
      {"0.0", false},      {"2", true},      {"NaN", true},   {"1e-400", false}, {"\"\"", false},
      {"\"false\"", true}, {"[]", false},    {"[0]", true},   {"{}", false},     {"{\"a\":0}", true}};
  for (const auto& one : cases) {
    const std::string& text = one.first;
    const auto& wanted = one.second;
    CAPTURE(text);
    CHECK(is_true(*read(text)) == wanted);
  }
}

TEST_CASE("float() and int() are Python's") {
  const std::vector<std::pair<std::string, std::optional<double>>> floats{
      {"\"0.1\"", 0.1}, {"\" 1e-1\\n\"", 0.1}, {"\"+.1\"", 0.1},  {"\"1_0\"", 10.0},  {"true", 1.0},   {"\"1__0\"", {}},
      {"\"_1\"", {}},   {"\"0x1\"", {}},       {"\"\"", {}},      {"\"nan(1)\"", {}}, {"\"+-1\"", {}}, {"null", {}},
      {"[0.1]", {}},    {"0.1", 0.1},          {"\"0.1 0\"", {}}, {"\"1e-999\"", 0.0}};
  for (const auto& one : floats) {
    const std::string& text = one.first;
    const auto& wanted = one.second;
    CAPTURE(text);
    CHECK(as_float(*read(text)) == wanted);
  }
  const std::vector<std::pair<std::string, std::optional<int64_t>>> integers{{"7", 7},
                                                                             {"\"100\"", 100},
                                                                             {"\" +1_000 \"", 1000},
                                                                             {"99.9", 99},
                                                                             {"-1.5", -1},
                                                                             {"\"9.9\"", {}},
                                                                             {"\"x\"", {}},
                                                                             {"null", {}},
                                                                             {"true", 1},
                                                                             {"1e300", {}},
                                                                             {"NaN", {}},
                                                                             {"\"\"", {}},
                                                                             {"9223372036854775808", {}}};
  for (const auto& one : integers) {
    const std::string& text = one.first;
    const auto& wanted = one.second;
    CAPTURE(text);
    CHECK(as_int(*read(text)) == wanted);
  }
}
