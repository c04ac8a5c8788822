// From the parser's declarations to rows.
#include "completion/table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace pliant::cli {

namespace {

ArgumentRow row_of(CLI::Option& option) {
  ArgumentRow row;
  for (const std::string& name : option.get_snames()) row.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) row.names.push_back("--" + name);
  const bool is_flag = option.nonpositional();
  if (!is_flag) row.names.push_back(option.get_name());
  if (is_flag && option.get_items_expected_max() > 0) row.value = option.get_type_name();
  row.text = option.get_description();
  row.value_may_be_missing = !row.value.empty() && option.get_items_expected_min() == 0;
  row.is_required = option.get_required();
  row.suggestion = suggestion_of(option);
  return row;
}

void add_rows(CLI::App& command, const std::string& path, std::vector<CommandRow>& rows) {
  CommandRow row;
  row.path = path;
  row.text = command.get_description();
  row.footer = command.get_footer();
  const bool is_root = command.get_parent() == nullptr;
  for (CLI::Option* option : command.get_options()) {
    if (option == command.get_help_ptr() && !is_root) continue;
    (option->nonpositional() ? row.flags : row.arguments).push_back(row_of(*option));
  }
  const std::vector<CLI::App*> below = command.get_subcommands([](CLI::App*) { return true; });
  for (const CLI::App* one : below) row.commands.push_back(one->get_name());
  rows.push_back(std::move(row));
  for (CLI::App* one : below) add_rows(*one, path.empty() ? one->get_name() : path + " " + one->get_name(), rows);
}

}  // namespace

std::string CommandRow::name() const {
  return path.empty() ? "pliant" : "pliant " + path;
}

std::vector<CommandRow> commands_of(CLI::App& pliant) {
  std::vector<CommandRow> rows;
  add_rows(pliant, "", rows);
  return rows;
}

std::string offer_of(const Suggestion& suggestion) {
  using Kind = Suggestion::Kind;
  const std::string list = suggestion.is_list ? "list " : "";
  switch (suggestion.kind) {
    case Kind::kWords:
      return fmt::format("{}words {}", list, fmt::join(suggestion.words, " "));
    case Kind::kFiles:
      return "files " + suggestion.detail;
    case Kind::kFolders:
      return "folders";
    case Kind::kPlugins:
      return fmt::format("{}plugins {}", list, suggestion.detail);
    case Kind::kNothing:
      break;
  }
  return "nothing";
}

std::string clause_of(const std::string& text) {
  size_t end = text.size();
  for (const char* const mark : {". ", ": ", "; ", ", e.g."}) end = std::min(end, text.find(mark));
  std::string clause = text.substr(0, end);
  if (clause.ends_with('.')) clause.pop_back();
  return clause;
}

const std::vector<ArgumentRow>& common_flags(const std::vector<CommandRow>& list) {
  return list.front().flags;
}

}  // namespace pliant::cli
