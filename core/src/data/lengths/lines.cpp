// Lengths in lines: a number each, or a JSON object each.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "data/lengths/formats.hpp"

namespace pliant::data {
namespace {

using Json = nlohmann::json;

/// Calls `use(line, number)` for every line until it returns an error.
template <class Use>
Result<> each_line(std::string_view bytes, Use&& use) {
  uint64_t number = 1;
  for (size_t at = 0; at < bytes.size(); ++number) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    std::string_view line = bytes.substr(at, end - at);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) line.remove_suffix(1);
    if (Result<> used = use(line, number); !used) return used;
    at = end + 1;
  }
  return {};
}

tl::unexpected<Error> no_length(const std::string& name, uint64_t line, const Counted& counted,
                                const std::string& what) {
  return failed(Status::kInvalidArgument, fmt::format("{}:{}: {}; {}", name, line, what, counted.rule()),
                ExitCode::kUsage);
}

std::optional<int64_t> length_of(const Json& value) {
  if (value.is_array()) return static_cast<int64_t>(value.size());
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number <= uint64_t{std::numeric_limits<int64_t>::max()}) return static_cast<int64_t>(number);
  } else if (value.is_number_float()) {
    constexpr double kTooLarge = 9223372036854775808.0;
    const auto number = value.get<double>();
    if (number >= 0 && number < kTooLarge && std::trunc(number) == number) return static_cast<int64_t>(number);
  }
  return std::nullopt;
}

}  // namespace

Result<Lengths> read_text(std::string_view bytes, const Counted& counted, const std::string& name) {
  std::vector<int32_t> lengths;
  const Result<> read = each_line(bytes, [&](std::string_view line, uint64_t number) -> Result<> {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.empty()) return {};
    int64_t length = 0;
    const auto [end, problem] = std::from_chars(line.data(), line.data() + line.size(), length);
    if (problem != std::errc() || end != line.data() + line.size() || !counted.admits(length)) {
      return no_length(name, number, counted, fmt::format("'{}' is no {}", line.substr(0, 40), counted.what));
    }
    lengths.push_back(static_cast<int32_t>(length));
    return {};
  });
  if (!read) return tl::unexpected<Error>(read.error());
  return Lengths(std::move(lengths));
}

Result<Lengths> read_jsonl(std::string_view bytes, const std::string& column, const Counted& counted,
                           const std::string& name) {
  std::vector<int32_t> lengths;
  const Result<> read = each_line(bytes, [&](std::string_view line, uint64_t number) -> Result<> {
    if (line.empty()) return {};
    const Json row = Json::parse(line, nullptr, false);
    if (!row.is_object()) return damaged(fmt::format("{}:{}", name, number), "not a JSON object");
    const auto found = row.find(column);
    if (found == row.end()) {
      return failed(
          Status::kInvalidArgument,
          fmt::format("{}:{}: it has no '{}'; [data] length_column names the one with the lengths, loss_tokens_column "
                      "that with the tokens that have a loss",
                      name, number, column),
          ExitCode::kUsage);
    }
    const std::optional<int64_t> length = length_of(*found);
    if (!length || !counted.admits(*length)) {
      const std::string shown = found->dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40);
      return no_length(name, number, counted, fmt::format("'{}' is {}", column, shown));
    }
    lengths.push_back(static_cast<int32_t>(*length));
    return {};
  });
  if (!read) return tl::unexpected<Error>(read.error());
  return Lengths(std::move(lengths));
}

}  // namespace pliant::data
