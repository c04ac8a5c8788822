// Pins pliant.h as a C++20 compiler sees it, and proves that the pins leave no struct, no byte and no function out.
#include <doctest/doctest.h>

#include <cstddef>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "pliant.h"
#include "scratch_folder.hpp"
#include "thread_words.hpp"

using pliant::test::thread_words;

extern "C" {
#include "capi/signatures.h"
}

#define PLIANT_PIN_STRUCT(type, bytes) static_assert(sizeof(type) == (bytes), "sizeof(" #type ") changed");
#define PLIANT_PIN(type, field, at, bytes)                                     \
  static_assert(offsetof(type, field) == (at), #type "." #field " has moved"); \
  static_assert(sizeof(type::field) == (bytes), #type "." #field " has another size");
#include "capi/layout_pins.h"
#undef PLIANT_PIN_STRUCT
#undef PLIANT_PIN

namespace {

struct Field {
  std::string name;
  size_t at;
  size_t bytes;
};

std::map<std::string, std::vector<Field>> pinned_fields() {
  std::map<std::string, std::vector<Field>> pins;
#define PLIANT_PIN_STRUCT(type, size) pins[#type].push_back({"", (size), 0});
#define PLIANT_PIN(type, field, at, size) pins[#type].push_back({#field, (at), (size)});
#include "capi/layout_pins.h"
#undef PLIANT_PIN_STRUCT
#undef PLIANT_PIN
  return pins;
}

/// Names of functions that a header declares.
std::set<std::string> functions_of(const std::string& file) {
  const std::string text = std::regex_replace(pliant::test::read_all(std::string(PLIANT_SOURCE_DIR) + file),
                                              std::regex(R"(/\*[\s\S]*?\*/)"), "");
  const std::regex function(R"((pliant_\w+)\((?!\*))");
  std::set<std::string> names;
  for (std::sregex_iterator at(text.begin(), text.end(), function), end; at != end; ++at) names.insert((*at)[1]);
  return names;
}

}  // namespace

TEST_CASE("the pins cover every struct of the C header, each byte of it, and each begins with struct_size") {
  const auto pins = pinned_fields();
  for (const char* name : {PLIANT_C_STRUCTS}) {
    CAPTURE(name);
    REQUIRE(pins.count(name) == 1);
    const std::vector<Field>& fields = pins.at(name);
    size_t end = 0;
    for (size_t i = 1; i < fields.size(); ++i) {
      CAPTURE(fields[i].name);
      CHECK(fields[i].at == end);
      end = fields[i].at + fields[i].bytes;
    }
    CHECK(end == fields[0].at);
    CHECK(fields[1].name == "struct_size");
    CHECK(fields[1].bytes == sizeof(uint32_t));
  }
}

TEST_CASE("the signature of every function of the C header is pinned") {
  CHECK(functions_of("/core/capi/include/pliant.h") == functions_of("/tests/capi/signatures.h"));
  CHECK(functions_of("/tests/capi/signatures.h").size() > 50);
}

TEST_CASE("every function of the C header says in one word which thread may call it") {
  std::vector<std::string> without;
  std::set<std::string> functions;
  for (const auto& [function, word] : thread_words()) {
    functions.insert(function);
    if (word.empty()) without.push_back(function);
  }
  CHECK(functions == functions_of("/tests/capi/signatures.h"));
  CHECK(without == std::vector<std::string>{});
}
