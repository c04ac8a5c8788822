#include "base/append_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

namespace pliant {
namespace {

bool needs_no_escape(char c) {
  return c >= ' ' && c <= '~' && c != '"' && c != '\\';
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
  const size_t begin = to.size();
  fmt::format_to(std::back_inserter(to), "{}", value);
  if (to.find_first_of(".e", begin) == std::string::npos) to += ".0";  // read as a whole number, -0 would lose its sign
}

void append_json(std::string& to, long long value) {
  fmt::format_to(std::back_inserter(to), "{}", value);
}

void append_json(std::string& to, unsigned long long value) {
  fmt::format_to(std::back_inserter(to), "{}", value);
}

}  // namespace pliant
