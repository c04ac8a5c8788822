#include "help.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "progress.hpp"

namespace pliant::cli {

namespace {

constexpr size_t kLeastColumns = 70;
constexpr size_t kMostColumns = 110;

size_t help_columns() {
  return std::clamp(terminal_columns(), kLeastColumns, kMostColumns);
}

/// Where lines that follow `line` begin.
size_t indent_below(std::string_view line) {
  const size_t first = std::min(line.find_first_not_of(' '), line.size());
  const size_t gap = line.find("  ", first);
  return gap == std::string_view::npos ? first : std::min(line.find_first_not_of(' ', gap), line.size());
}

std::string wrapped_line(std::string_view line, size_t columns) {
  if (line.size() <= columns) return std::string(line);
  const size_t indent = indent_below(line);
  std::string made(line.substr(0, indent));
  size_t used = indent;
  bool is_first = true;
  for (size_t at = indent; at < line.size();) {
    const size_t end = std::min(line.find(' ', at), line.size());
    const std::string_view word = line.substr(at, end - at);
    at = end + 1;
    if (!is_first && used + 1 + word.size() > columns) {
      made += "\n" + std::string(indent, ' ');
      used = indent;
      is_first = true;
    }
    made += (is_first ? "" : " ") + std::string(word);
    used += word.size() + (is_first ? 0 : 1);
    is_first = false;
  }
  return made;
}

/// Names of `options` that `text` does not mention, in their order.
std::vector<std::string> unmentioned(const std::set<CLI::Option*>& options, const std::string& text) {
  std::vector<std::string> names;
  for (const CLI::Option* option : options) {
    if (text.find(option->get_name()) == std::string::npos) names.push_back(option->get_name());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string wrapped(const std::string& text, size_t columns) {
  std::string made;
  bool is_example = false;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    if (at > 0) made += "\n";
    at = end + 1;
    made += is_example ? line : wrapped_line(line, columns);
    is_example = (is_example && !line.empty()) || line == "Example:" || line == "Examples:";
  }
  return made;
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  const bool has_value = option->nonpositional() && option->get_type_size() != 0 && !option->get_type_name().empty();
  return has_value ? " " + option->get_type_name() : std::string();
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  std::string text = option->get_description();
  const auto add = [&text](const char* words, const std::vector<std::string>& names) {
    if (!names.empty()) text += fmt::format(". {} {}", words, fmt::join(names, " or "));
  };
  add("Not with", unmentioned(option->get_excludes(), text));
  add("Needs", unmentioned(option->get_needs(), text));
  return wrapped(text, help_columns() - column_width_);
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  return wrapped(fmt::format("  {:<{}}{}", command->get_name(), column_width_ - 2, command->get_description()),
                 help_columns()) +
         "\n";
}

std::string HelpFormatter::make_description(const CLI::App* command) const {
  return wrapped(command->get_description(), help_columns()) + "\n";
}

std::string HelpFormatter::make_footer(const CLI::App* command) const {
  return wrapped(command->get_footer(), help_columns()) + "\n";
}

}  // namespace pliant::cli
