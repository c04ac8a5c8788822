// Keys and assignments of the config tree.
#include "config/values/value.hpp"

#include <doctest/doctest.h>

#include "config/values/diagnostics.hpp"
#include "config/values/parse.hpp"

using namespace pliant::config;

TEST_CASE("keys are quoted only where TOML wants it") {
  CHECK(dotted({"elasticity", "v0.1", "max_gpus"}) == "elasticity.\"v0.1\".max_gpus");
  CHECK(quoted_key("") == "\"\"");
  CHECK(parse_key("elasticity.\"v0.1\".max_gpus") == KeyPath{"elasticity", "v0.1", "max_gpus"});
  CHECK(parse_key(" a . 'b c' ") == KeyPath{"a", "b c"});
  for (const char* bad : {"", "a..b", "a b", "a = 1\nb", ".", "a]", "a # b"}) CHECK_FALSE(parse_key(bad).has_value());
}

TEST_CASE("an override is TOML where it can be, else the word itself, and never more than one value") {
  const ValueOrigin origin{Layer::kSet, 0, 0, 0, "--set"};
  CHECK(parse_override("3", origin).type == Value::Type::kInt);
  CHECK(parse_override("3.5", origin).type == Value::Type::kFloat);
  CHECK(parse_override("true", origin).type == Value::Type::kBool);
  CHECK(parse_override("[1, 2]", origin).items.size() == 2);
  CHECK(parse_override("{a = 1}", origin).members.size() == 1);
  CHECK(parse_override("\"3\"", origin).text == "3");
  CHECK(parse_override("word", origin).text == "word");
  CHECK(parse_override("", origin).text.empty());
  CHECK(parse_override("1\ny = 2", origin).text == "1\ny = 2");
  CHECK(parse_override("[1, [2]]", origin).items.at(1).items.at(0).origin.label == "--set");
}

TEST_CASE("assign makes tables on the way and never replaces a value by one") {
  Value root;
  CHECK(assign(root, {"a", "b"}, Value::of(int64_t{1})));
  CHECK(assign(root, {"a", "b"}, Value::of(int64_t{2})));
  CHECK(at(root, {"a", "b"})->integer == 2);
  CHECK_FALSE(assign(root, {"a", "b", "c"}, Value::of(int64_t{3})));
  CHECK(at(root, {"a", "x"}) == nullptr);
  CHECK(at(root, {"a", "b", "c"}) == nullptr);
}

TEST_CASE("the caret stands under the character, tabs and wide bytes included") {
  const std::string text = "\tna\xc3\xafve = 'x'\n";
  const Diagnostics diagnostics("a.toml", text);
  Finding finding;
  finding.origin = {Layer::kFile, 1, 10, 3, ""};
  finding.message = "wrong";
  CHECK(diagnostics.render(finding) ==
        "a.toml:1:10: error: wrong\n    1 | \tna\xc3\xafve = 'x'\n      | \t        ^~~");
}
