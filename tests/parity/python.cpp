// Truth, float() and PEP 440.
#include "parity/python.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>

#include "../plugins/elasticity/common/decimal_text.hpp"

namespace pliant::parity {
namespace {

std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\n\r\f\v";
  const size_t first = text.find_first_not_of(kSpace);
  return first == std::string::npos ? std::string{} : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

/// `text` with the decimal digits of every script as ASCII digits.
std::string with_ascii_digits(const std::string& text) {
  std::string ascii;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    const std::string character = text.substr(at, end - at);
    const elasticity::DecimalText digit = elasticity::parse_decimal(character);
    ascii += digit.valid ? std::to_string(*digit.value) : character;
    at = end;
  }
  return ascii;
}

std::optional<double> float_of_text(const std::string& text) {
  static const std::regex kNumber(R"([+-]?((\d+(_\d+)*)?\.?(\d+(_\d+)*)?)(e[+-]?\d+(_\d+)*)?)", std::regex::icase);
  static const std::regex kWord(R"([+-]?(inf|infinity|nan))", std::regex::icase);
  std::string digits = with_ascii_digits(trimmed(text));
  const bool number =
      std::regex_match(digits, kNumber) && digits.find_first_of("0123456789") < digits.find_first_of("eE");
  if (!number && !std::regex_match(digits, kWord)) return std::nullopt;
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  return std::strtod(digits.c_str(), nullptr);
}

/// -1, 0 or 1: `release` against 0.3.8, missing parts counting as 0. Parts may have any number of digits.
int against_oldest(const std::string& release) {
  static constexpr std::array<int64_t, 3> kOldest{0, 3, 8};
  size_t at = 0;
  for (size_t part = 0; part < kOldest.size() || at < release.size(); ++part) {
    const size_t end = std::min(release.find('.', at), release.size());
    std::string digits = at < release.size() ? release.substr(at, end - at) : "0";
    digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
    const int64_t oldest = part < kOldest.size() ? kOldest[part] : 0;
    const int64_t value = digits.size() > 9 ? std::numeric_limits<int64_t>::max() : std::atoll(digits.c_str());
    if (value != oldest) return value < oldest ? -1 : 1;
    at = end + 1;
  }
  return 0;
}

}  // namespace

bool is_true(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return value.is_binary() || !value.empty();
}

std::optional<double> as_float(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1.0 : 0.0;
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return float_of_text(value.get_ref<const std::string&>());
  if (!value.is_binary()) return std::nullopt;
  const std::string digits(value.get_binary().begin(), value.get_binary().end());
  const double real = std::strtod(digits.c_str(), nullptr);
  return real - real == 0 ? std::optional<double>(real) : std::nullopt;
}

bool is_integer(const Json& value) {
  return value.is_number_integer() || value.is_binary();
}

bool fits(const Json& integer) {
  if (integer.is_number_unsigned()) return integer.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()};
  return integer.is_number_integer();
}

std::string python_json(const Json& value) {
  if (value.is_binary()) return {value.get_binary().begin(), value.get_binary().end()};
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const auto real = value.get<double>();
    return std::isnan(real) ? "NaN" : real > 0 ? "Infinity" : "-Infinity";
  }
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (const auto& [key, item] : value.items()) {
    text += text.empty() ? "" : ", ";
    text += (value.is_object() ? Json(key).dump() + ": " : std::string{}) + python_json(item);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

bool knows_elasticity(const Json& version) {
  static const std::regex kVersion(
      R"(v?(?:(\d+)!)?(\d+(?:\.\d+)*)([-_.]?(?:alpha|a|beta|b|preview|pre|c|rc)[-_.]?\d*)?)"
      R"((-\d+|[-_.]?(?:post|rev|r)[-_.]?\d*)?([-_.]?dev[-_.]?\d*)?(?:\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?)",
      std::regex::icase);
  if (!version.is_string()) return false;
  const std::string text = trimmed(version.get<std::string>());
  std::smatch parts;
  if (!std::regex_match(text, parts, kVersion)) return false;
  const std::string epoch = parts[1].str();
  if (epoch.find_first_not_of('0') != std::string::npos) return true;
  const int order = against_oldest(parts[2].str());
  const bool before_release = parts[3].matched || (parts[5].matched && !parts[4].matched);
  return order > 0 || (order == 0 && !before_release);
}

}  // namespace pliant::parity
