// Options from the command line, and drawn ones.
#include <algorithm>
#include <cerrno>
#include <cmath>
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

/// Small numbers of the range are drawn more often than large ones.
int64_t drawn_integer(const pliant_option& option, Draws& draws) {
  const bool is_bounded = (option.flags & PLIANT_OPTION_HAS_MAX) != 0;
  const int64_t high = is_bounded ? option.int_max : INT64_MAX;
  const int64_t low = (option.flags & PLIANT_OPTION_HAS_MIN) != 0 ? option.int_min : std::min<int64_t>(0, high);
  const uint64_t width = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  const uint64_t reach = std::min(width, uint64_t{1} << draws.below(13));
  return low + static_cast<int64_t>(draws.below(reach + 1));
}

double drawn_real(const pliant_option& option, Draws& draws) {
  const double low = (option.flags & PLIANT_OPTION_HAS_MIN) != 0 ? option.float_min : 0;
  const double high = (option.flags & PLIANT_OPTION_HAS_MAX) != 0 ? option.float_max : std::max(low, 0.0) + 1000;
  if (draws.one_in(8)) return draws.one_in(2) ? low : high;
  const double reach = std::min(high - low, std::pow(10.0, static_cast<double>(draws.below(7)) - 3));
  return low + reach * draws.unit();
}

bool is_given(const Settings& settings, const char* key) {
  return std::any_of(settings.begin(), settings.end(), [key](const auto& one) { return one.first == key; });
}

}  // namespace

void OptionRow::draw(const OpenedPlugin& plugin, const Settings& fixed, Draws& draws) {
  for (uint32_t i = 0; i < plugin.record().option_count; ++i) {
    const pliant_option& option = plugin.option(i);
    const int32_t type = element_type(option.type);
    const bool is_free_text = type == PLIANT_STRING && option.choice_count == 0;
    if (is_given(fixed, option.key) || is_free_text || draws.one_in(2)) continue;
    const bool list = type != option.type;
    uint64_t count = list ? std::max<uint64_t>(option.list_min, 1) + draws.below(4) : 1;
    if (list && option.list_max != 0) count = std::min(count, option.list_max);
    auto& integers = integers_.emplace_back();
    auto& reals = reals_.emplace_back();
    auto& texts = texts_.emplace_back();
    for (uint64_t k = 0; k < count; ++k) {
      integers.push_back(type == PLIANT_BOOL ? static_cast<int64_t>(draws.below(2)) : drawn_integer(option, draws));
      reals.push_back(drawn_real(option, draws));
      const char* const choice = option.choice_count > 0 ? option.choices[draws.below(option.choice_count)] : "";
      texts.push_back({choice, std::string(choice).size()});
    }
    pliant_value& value = values_[i];
    value = {sizeof(pliant_value), option.type, 1, 0, 0, 0, {nullptr, 0}, 0, nullptr, nullptr, nullptr};
    if (list) {
      value.count = count;
      value.integers = integers.data();
      value.reals = reals.data();
      value.texts = texts.data();
    } else {
      value.integer = integers[0];
      value.real = reals[0];
      value.text = texts[0];
    }
  }
}

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
