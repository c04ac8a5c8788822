#include "base/append_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

namespace pliant {
namespace {

bool needs_no_escape(char c) {
  return c >= ' ' && c <= '~' && c != '"' && c != '\\';
}

template <class Whole>
void append_whole(std::string& to, Whole value) {
  std::array<char, 24> digits{};  // of 64 bits, with a sign
  const auto made = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  to.append(digits.data(), made.ptr);
}

bool is_minus_zero(double value) {
  return value == 0 && std::signbit(value);
}

}  // namespace

void append_json(std::string& to, std::string_view text) {
  if (!std::all_of(text.begin(), text.end(), needs_no_escape)) {
    to += nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    return;
  }
  to += '"';
  to += text;
  to += '"';
}

void append_json(std::string& to, double value) {
  if (!std::isfinite(value)) {
    to += std::isnan(value) ? "\"nan\"" : value > 0 ? "\"inf\"" : "\"-inf\"";
    return;
  }
  if (constexpr double kWhole = 1e15; std::abs(value) < kWhole && std::trunc(value) == value && !is_minus_zero(value)) {
    append_whole(to, static_cast<long long>(value));
    to += ".0";
    return;
  }
  const size_t begin = to.size();
  fmt::format_to(std::back_inserter(to), "{}", value);
  if (to.find_first_of(".e", begin) == std::string::npos) to += ".0";  // read as a whole number, -0 would lose its sign
}

void append_json(std::string& to, long long value) {
  append_whole(to, value);
}

void append_json(std::string& to, unsigned long long value) {
  append_whole(to, value);
}

}  // namespace pliant
