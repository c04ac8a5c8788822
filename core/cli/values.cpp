// Checks of values, and what they are called by: a check that a shell may use bears it as its name.
#include "values.hpp"

#include <algorithm>
#include <filesystem>

namespace pliant::cli {

namespace {

constexpr std::string_view kWordsCheck = "words ";
constexpr std::string_view kPluginsCheck = "plugins ";

std::string spaced(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

/// The names of the checks of `option`.
std::vector<std::string> checks_of(CLI::Option& option) {
  std::vector<std::string> names;
  for (int i = 0;; ++i) {
    try {
      names.push_back(option.get_validator(i)->get_name());
    } catch (const CLI::OptionNotFound&) {  // the only way in which this version says that there is no more
      return names;
    }
  }
}

std::vector<std::string> words_in(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

/// What the name of a value says of it: CONFIG, FILE.svg, DIR, RUN.
Suggestion by_name(std::string_view name) {
  using Kind = Suggestion::Kind;
  if (name == "CONFIG") return {Kind::kFiles, {}, ".toml", false};
  if (name == "SOURCE" || name.ends_with(".json")) return {Kind::kFiles, {}, ".json", false};
  if (name.ends_with(".svg")) return {Kind::kFiles, {}, ".svg", false};
  if (name == "FILE") return {Kind::kFiles, {}, "", false};
  if (name == "DIR" || name == "[DIR]" || name == "RUN") return {Kind::kFolders, {}, "", false};
  return {};
}

}  // namespace

CLI::Validator one_of(const std::vector<std::string>& words) {
  CLI::Validator check = offers_words(words);
  check.operation([words](const std::string& text) {
    if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
    std::string wanted = words.front();
    for (size_t i = 1; i < words.size(); ++i) wanted += (i + 1 == words.size() ? " or " : ", ") + words[i];
    return fmt::format("must be {}, not '{}'", wanted, text);
  });
  return check;
}

CLI::Validator figure_file() {
  CLI::Validator check;
  check.operation([](const std::string& text) {
    const std::filesystem::path file(text);
    if (file.extension().empty() || file.extension() == ".svg") return std::string();
    return fmt::format("a figure is SVG: write {}, not '{}'",
                       std::filesystem::path(file).replace_extension(".svg").string(), text);
  });
  return check;
}

CLI::Validator offers_words(const std::vector<std::string>& words) {
  CLI::Validator named;
  named.name(std::string(kWordsCheck) + spaced(words));
  return named;
}

CLI::Validator offers_plugins(std::string_view section) {
  CLI::Validator named;
  named.name(std::string(kPluginsCheck) + std::string(section));
  return named;
}

Suggestion suggestion_of(CLI::Option& option) {
  const std::string value = option.nonpositional() ? option.get_type_name() : option.get_name();
  Suggestion made = by_name(value);
  for (const std::string& check : checks_of(option)) {
    if (check.starts_with(kWordsCheck))
      made = {Suggestion::Kind::kWords, words_in(check.substr(kWordsCheck.size())), "", false};
    if (check.starts_with(kPluginsCheck))
      made = {Suggestion::Kind::kPlugins, {}, check.substr(kPluginsCheck.size()), false};
  }
  made.is_list = value.ends_with(",...");
  return made;
}

}  // namespace pliant::cli
