// Python's conversions, without a locale.
#include "import/python.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

namespace pliant::config::deepspeed {

namespace {

using Type = Json::Type;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

/// Without the underscores that Python allows between digits; nullopt when one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  const auto digit = [&](size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain += text[i];
    } else if (i == 0 || !digit(i - 1) || !digit(i + 1)) {
      return std::nullopt;
    }
  }
  return plain;
}

/// The text of a number without the plus sign that from_chars does not know; nullopt for two signs.
std::optional<std::string> number_text(std::string_view text) {
  text = trimmed(text);
  if (!text.empty() && text.front() == '+') {
    text.remove_prefix(1);
    if (!text.empty() && (text.front() == '-' || text.front() == '+')) return std::nullopt;
  }
  return without_underscores(text);
}

template <class T>
std::optional<T> parsed(const std::string& text, std::errc* why = nullptr) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (why != nullptr) *why = error;
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// A finite number's text as a double; what overflows becomes infinite, what underflows 0.
double real_of(const std::string& text) {
  std::errc why{};
  if (const auto value = parsed<double>(text, &why)) return *value;
  if (why != std::errc::result_out_of_range) return std::numeric_limits<double>::quiet_NaN();
  const size_t exponent = text.find_first_of("eE");
  const bool tiny = exponent != std::string::npos && text.find('-', exponent) != std::string::npos;
  if (tiny) return 0.0;
  return text.front() == '-' ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
}

double json_float(const Json& value) {
  if (value.text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (value.text == "Infinity") return std::numeric_limits<double>::infinity();
  if (value.text == "-Infinity") return -std::numeric_limits<double>::infinity();
  return real_of(value.text);
}

/// Doubles from here on hold no fractions, and stand for several integers that a user might have meant.
constexpr double kLargestExact = 9007199254740992.0;

Number number_of(double real) {
  if (!std::isfinite(real)) return {Number::Fit::kNotFinite, 0, real < 0};
  if (std::abs(real) > kLargestExact) return {Number::Fit::kTooLarge, 0, real < 0};
  const double below = std::floor(real);
  return {below == real ? Number::Fit::kExact : Number::Fit::kFraction, static_cast<int64_t>(below), real < 0};
}

}  // namespace

bool is_true(const Json& value) {
  switch (value.type) {
    case Type::kNull:
      return false;
    case Type::kBool:
      return value.boolean;
    case Type::kInt:
      return value.text.find_first_not_of("-0") != std::string::npos;
    case Type::kFloat:
      return json_float(value) != 0;  // NaN is true
    case Type::kString:
      return !value.text.empty();
    case Type::kArray:
      return !value.items.empty();
    case Type::kObject:
      return !value.members.empty();
  }
  return false;
}

std::optional<double> as_float(const Json& value) {
  if (value.is(Type::kBool)) return value.boolean ? 1.0 : 0.0;
  if (value.is(Type::kInt)) {
    const double real = real_of(value.text);
    return std::isfinite(real) ? std::optional(real) : std::nullopt;
  }
  if (value.is(Type::kFloat)) return json_float(value);
  if (!value.is(Type::kString)) return std::nullopt;
  const std::optional<std::string> text = number_text(value.text);
  if (!text || text->find_first_of("(xXpP") != std::string::npos) return std::nullopt;  // nan(1) is C's
  std::errc why{};
  const std::optional<double> real = parsed<double>(*text, &why);
  return !real && why == std::errc::result_out_of_range ? std::optional(real_of(*text)) : real;
}

std::optional<Number> as_number(const Json& value) {
  if (value.is(Type::kBool)) return Number{Number::Fit::kExact, value.boolean ? 1 : 0, false};
  if (value.is(Type::kFloat)) return number_of(json_float(value));
  if (!value.is(Type::kInt)) return std::nullopt;
  const bool negative = value.text.front() == '-';
  const std::optional<int64_t> integer = parsed<int64_t>(value.text);
  return integer ? Number{Number::Fit::kExact, *integer, negative} : Number{Number::Fit::kTooLarge, 0, negative};
}

std::optional<int64_t> as_int(const Json& value) {
  if (value.is(Type::kString)) {
    const std::optional<std::string> text = number_text(value.text);
    return text ? parsed<int64_t>(*text) : std::nullopt;
  }
  const std::optional<Number> number = as_number(value);
  if (!number || number->fit == Number::Fit::kTooLarge || number->fit == Number::Fit::kNotFinite) return std::nullopt;
  return number->floor + (number->negative && number->fit == Number::Fit::kFraction ? 1 : 0);
}

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

std::string describe(const Json& value) {
  constexpr size_t kMost = 60;
  std::string text = value.is(Type::kString) ? toml_quoted(value.text) : value.text;
  if (text.size() > kMost) {
    size_t cut = kMost;
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80U) --cut;
    text = text.substr(0, cut) + "...";
  }
  switch (value.type) {
    case Type::kString:
      return "the string " + text;
    case Type::kArray:
      return value.items.empty() ? "an empty list" : "a list";
    case Type::kObject:
      return "an object";
    default:
      return text;
  }
}

}  // namespace pliant::config::deepspeed
