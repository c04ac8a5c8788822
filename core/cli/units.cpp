// Reads and writes numbers with units.
#include "units.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "pliant/error.hpp"

namespace pliant::cli {

namespace {

using Units = std::initializer_list<std::pair<std::string_view, double>>;

constexpr double kKibi = 1024;
constexpr double kMebi = kKibi * 1024;
constexpr double kGibi = kMebi * 1024;
constexpr double kTebi = kGibi * 1024;

/// A number with one of the units behind it, and blanks between them or not; NaN for all else.
double measured_in(std::string_view word, const Units& units) {
  double number = 0;
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (problem != std::errc() || !std::isfinite(number)) return std::nan("");
  std::string_view unit = word.substr(static_cast<size_t>(end - word.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const auto& [name, factor] : units) {
    if (name == unit) return number * factor;
  }
  return std::nan("");
}

[[noreturn]] void refuse_measure(std::string_view flag, const std::string& word, std::string_view wanted) {
  throw Error(Status::kInvalidArgument, fmt::format("{} '{}': {}", flag, word, wanted), Origin::kInput);
}

std::string three_digits(double number, std::string_view unit) {
  std::string text = fmt::format("{:.{}f}", number, number < 10 ? 2 : number < 100 ? 1 : 0);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return fmt::format("{} {}", text, unit);
}

}  // namespace

uint64_t bytes_in(std::string_view flag, const std::string& word) {
  constexpr double kLeastBare = 1024;  // less is a number whose unit was forgotten
  const bool is_bare = word.find_first_not_of("0123456789") == std::string::npos;
  const double bytes = measured_in(word, {{"", 1},
                                          {"B", 1},
                                          {"K", kKibi},
                                          {"KiB", kKibi},
                                          {"M", kMebi},
                                          {"MiB", kMebi},
                                          {"G", kGibi},
                                          {"GiB", kGibi},
                                          {"T", kTebi},
                                          {"TiB", kTebi},
                                          {"kB", 1e3},
                                          {"MB", 1e6},
                                          {"GB", 1e9},
                                          {"TB", 1e12}});
  const bool is_whole = bytes >= (is_bare ? kLeastBare : 1) && bytes < 0x1p62 && std::floor(bytes) == bytes;
  if (!is_whole)
    refuse_measure(flag, word, "give whole bytes with a unit (B, KiB, MiB, GiB, MB or GB), e.g. 64MiB,1GiB");
  return static_cast<uint64_t>(bytes);
}

uint64_t nanoseconds_in(std::string_view flag, const std::string& word) {
  const double time = measured_in(word, {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}});
  if (!(time >= 0 && time <= 1e12))
    refuse_measure(flag, word, "give a time up to 1000 s with its unit, e.g. 20us or 1.5ms");
  return static_cast<uint64_t>(std::llround(time));
}

double bytes_per_second_in(std::string_view flag, const std::string& word) {
  std::string_view rate = word;
  if (rate.size() > 2 && rate.substr(rate.size() - 2) == "/s") rate.remove_suffix(2);
  const double bytes = measured_in(
      rate, {{"", 1}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"MiB", kMebi}, {"GiB", kGibi}, {"TiB", kTebi}});
  constexpr double kLeast = 1e3;  // less is a number whose unit was forgotten
  if (!(bytes >= kLeast)) refuse_measure(flag, word, "give bytes per second with a unit, e.g. 25GB/s or 900MB/s");
  return bytes;
}

double number_in(std::string_view flag, const std::string& word) {
  const double number = measured_in(word, {{"", 1}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}});
  if (!(number > 0)) refuse_measure(flag, word, "give a number above 0, optionally with G, T or P, e.g. 100T or 1e14");
  return number;
}

std::string text_of_bytes(double bytes) {
  for (const auto& [name, unit] : Units{{"TiB", kTebi}, {"GiB", kGibi}, {"MiB", kMebi}, {"KiB", kKibi}}) {
    if (bytes >= unit) return three_digits(bytes / unit, name);
  }
  return three_digits(bytes, "B");
}

std::string text_of_seconds(double seconds) {
  for (const auto& [name, unit] : Units{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}}) {
    if (seconds >= unit) return three_digits(seconds / unit, name);
  }
  return three_digits(seconds * 1e9, "ns");
}

}  // namespace pliant::cli
