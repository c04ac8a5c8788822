// Lengths in lines: a number each, or a JSON object each.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "data/lengths/formats.hpp"

namespace pliant::data {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kLongestNumber = uint64_t{64} << 10U;
constexpr uint64_t kLongestObject = uint64_t{256} << 20U;

/// Calls `use(line, number)` for every line until it returns an error. Holds one piece of the file, and a line of at
/// most `longest` bytes.
template <class Use>
Result<> each_line(const InputFile& file, const std::string& name, uint64_t longest, Use&& use) {
  constexpr uint64_t kPiece = uint64_t{1} << 20U;
  uint64_t number = 1;
  const auto take = [&](std::string_view line) -> Result<> {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) line.remove_suffix(1);
    return use(line, number++);
  };
  std::string held;
  for (uint64_t offset = 0; offset < file.size();) {
    const size_t searched = held.size();  // no line ends before
    const uint64_t piece = std::min(kPiece, file.size() - offset);
    held.resize(searched + piece);
    if (Result<> read = file.read(held.data() + searched, piece, offset); !read) return read;
    offset += piece;
    size_t at = 0;
    for (size_t end = held.find('\n', searched); end != std::string::npos; end = held.find('\n', at)) {
      if (Result<> used = take(std::string_view(held).substr(at, end - at)); !used) return used;
      at = end + 1;
    }
    held.erase(0, at);
    if (held.size() > longest && offset < file.size()) {
      return damaged(fmt::format("{}:{}", name, number), fmt::format("the line is longer than {} bytes", longest));
    }
  }
  if (!held.empty()) {
    if (Result<> used = take(held); !used) return used;
  }
  return file.check_unchanged();
}

tl::unexpected<Error> no_length(const std::string& name, uint64_t line, const Counted& counted,
                                const std::string& what) {
  return failed(Status::kInvalidArgument, fmt::format("{}:{}: {}; {}", name, line, what, counted.rule()),
                Origin::kInput);
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

Result<Lengths> read_text(const InputFile& file, const Counted& counted, const std::string& name) {
  std::vector<int32_t> lengths;
  const Result<> read = each_line(file, name, kLongestNumber, [&](std::string_view line, uint64_t number) -> Result<> {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.empty()) return {};
    int64_t length = 0;
    const auto [end, problem] = std::from_chars(line.data(), line.data() + line.size(), length);
    if (problem != std::errc() || end != line.data() + line.size() || !counted.admits(length)) {
      return no_length(name, number, counted, fmt::format("'{}' is not a {}", line.substr(0, 40), counted.what));
    }
    lengths.push_back(static_cast<int32_t>(length));
    return {};
  });
  if (!read) return tl::unexpected<Error>(read.error());
  return Lengths(std::move(lengths));
}

Result<Lengths> read_jsonl(const InputFile& file, const std::string& column, const Counted& counted,
                           const std::string& name) {
  std::vector<int32_t> lengths;
  const Result<> read = each_line(file, name, kLongestObject, [&](std::string_view line, uint64_t number) -> Result<> {
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
          Origin::kInput);
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
