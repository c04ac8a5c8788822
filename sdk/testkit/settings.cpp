// Options from the command line.
#include <cerrno>
#include <cstdlib>
#include <sstream>

#include "testkit/plugin.hpp"

namespace pliant::testkit {

namespace {

int32_t element_type(int32_t type) {
  return type >= PLIANT_BOOL_LIST ? type - (PLIANT_BOOL_LIST - PLIANT_BOOL) : type;
}

const char* words_of_type(int32_t type) {
  const char* const words[] = {"", "true or false", "an integer", "a number", "a text"};
  return type >= PLIANT_BOOL && type <= PLIANT_STRING ? words[type] : "of a type unknown to this host";
}

bool read(const std::string& text, int32_t type, int64_t& integer, double& real) {
  char* end = nullptr;
  errno = 0;
  if (type == PLIANT_BOOL) {
    integer = text == "true" ? 1 : 0;
    return text == "true" || text == "false";
  }
  if (type == PLIANT_INT) integer = std::strtoll(text.c_str(), &end, 10);
  if (type == PLIANT_FLOAT) real = std::strtod(text.c_str(), &end);
  if (type == PLIANT_STRING) return true;
  return end != nullptr && end != text.c_str() && *end == '\0' && errno == 0;
}

}  // namespace

void OptionRow::set(const OpenedPlugin& plugin, const std::string& key, const std::string& text) {
  std::string known;
  for (uint32_t i = 0; i < plugin.record().option_count; ++i) {
    const pliant_option& option = plugin.option(i);
    known += std::string(known.empty() ? "" : ", ") + option.key;
    if (key != option.key) continue;
    const int32_t type = element_type(option.type);
    const bool list = type != option.type;
    std::vector<std::string> parts{text};
    if (list) {
      parts.clear();
      std::istringstream in(text);
      for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
    }
    auto& integers = integers_.emplace_back();
    auto& reals = reals_.emplace_back();
    auto& texts = texts_.emplace_back();
    auto& words = words_.emplace_back(std::move(parts));
    for (const std::string& part : words) {
      int64_t integer = 0;
      double real = 0;
      if (!read(part, type, integer, real)) {
        throw BadSetting("--set " + key + "=" + text + ": '" + part + "' is not " + words_of_type(type));
      }
      integers.push_back(integer);
      reals.push_back(real);
      texts.push_back({part.data(), part.size()});
    }
    pliant_value& value = values_[i];
    value.is_set = 1;
    if (list) {
      value.count = words.size();
      value.integers = integers.data();
      value.reals = reals.data();
      value.texts = texts.data();
    } else {
      value.integer = integers[0];
      value.real = reals[0];
      value.text = texts[0];
    }
    return;
  }
  throw BadSetting("--set " + key + ": the plugin has no such option; " +
                   (known.empty() ? "it has none" : "it has: " + known));
}

}  // namespace pliant::testkit
