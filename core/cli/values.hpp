// What the value of an option may be: checks whose messages say it, and what a shell may offer for it.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace pliant::cli {

/// Numbers from `least` to `most`; anything else is refused with the range.
template <class Number>
CLI::Validator within(Number least, Number most) {
  CLI::Validator check;
  check.operation([least, most](const std::string& text) {
    Number value{};
    const bool is_decimal = !std::is_integral_v<Number> || text.find_first_not_of("+-0123456789") == std::string::npos;
    if (!is_decimal || !CLI::detail::lexical_cast(text, value)) {
      const char* const wanted = std::is_integral_v<Number> ? "a whole number" : "a number";
      return fmt::format("must be {} ({}..{}), not '{}'", wanted, least, most, text);
    }
    if (value >= least && value <= most) return std::string();
    return fmt::format("must be {}..{}, not '{}'", least, most, text);
  });
  return check;
}

/// Files that a figure may be written to: names with another ending than .svg are refused.
CLI::Validator figure_file();

/// What a shell offers for the value of an option. Where nothing is said, the name of the value decides.
struct Suggestion {
  enum class Kind { kNothing, kWords, kFiles, kFolders, kPlugins };
  Kind kind = Kind::kNothing;
  std::vector<std::string> words;  ///< kWords
  std::string detail;              ///< kFiles: how their names end, "" for any; kPlugins: the section, "" for all
  bool is_list = false;            ///< values with commas between them
};

/// Values of which the option takes one, and no other. Shells offer them.
CLI::Validator one_of(const std::vector<std::string>& words);
/// The same for shells alone.
CLI::Validator offers_words(const std::vector<std::string>& words);
/// Names of plugins: of `section` without it, or of all as section/name. For shells alone.
CLI::Validator offers_plugins(std::string_view section = "");

/// What `option` was declared with.
Suggestion suggestion_of(CLI::Option& option);

}  // namespace pliant::cli
