// The manual: one page for each command, in the language of man(7).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "completion/table.hpp"
#include "help.hpp"

namespace pliant::cli {

namespace {

/// Text as it is: no word of it is a request or an escape, and a dash is the one that a shell wants.
std::string escaped(const std::string& text) {
  std::string made;
  for (const char c : text) {
    const bool begins_line = made.empty() || made.back() == '\n';
    if (begins_line && (c == '.' || c == '\'')) made += "\\&";
    if (c == '\\') {
      made += "\\e";
    } else if (c == '-') {
      made += "\\-";
    } else {
      made += c;
    }
  }
  return made;
}

std::string bold(const std::string& text) {
  return "\\fB" + escaped(text) + "\\fR";
}
std::string italic(const std::string& text) {
  return "\\fI" + escaped(text) + "\\fR";
}

std::string page_of(const std::string& command) {
  std::string name = command;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

/// `FILE`, or `[DIR]` as it is.
std::string value_of(const ArgumentRow& row) {
  if (row.value.empty()) return "";
  return row.value.starts_with('[') ? " [" + italic(row.value.substr(1, row.value.size() - 2)) + "]"
                                    : " " + italic(row.value);
}

std::string entry(const std::string& head, const std::string& text) {
  return ".TP\n" + head + "\n" + escaped(text) + "\n";
}

std::string flag_entry(const ArgumentRow& row) {
  std::string head;
  for (const std::string& name : row.names) head += (head.empty() ? "" : ", ") + bold(name);
  return entry(head + value_of(row), row.text);
}

std::string synopsis(const CommandRow& command) {
  std::string text = ".SH SYNOPSIS\n" + bold(command.name());
  if (!command.commands.empty()) text += " " + italic("COMMAND");
  for (const ArgumentRow& row : command.arguments) {
    text += row.is_required ? " " + italic(row.names.front()) : " [" + italic(row.names.front()) + "]";
  }
  text += " [" + italic("FLAG") + "]...";
  return text + "\n";
}

/// The footer of help: a line that ends with a colon is the head of the indented lines below it.
std::string closing(const std::string& footer) {
  constexpr size_t kColumns = 66;  // of a line that man does not fill, beside its margins
  std::string text;
  bool is_example = false;
  bool is_command = false;
  for (size_t at = 0; at < footer.size();) {
    const size_t end = std::min(footer.find('\n', at), footer.size());
    const std::string line = footer.substr(at, end - at);
    at = end + 1;
    const bool indented = line.starts_with("  ");
    if (indented && !is_example) text += text.ends_with("EXAMPLES\n") ? ".nf\n.RS 4\n" : ".PP\n.nf\n.RS 4\n";
    if (!indented && is_example) text += ".RE\n.fi\n";
    is_example = indented;
    is_command = (is_command && !line.empty()) || line.starts_with("Example");
    if (indented) {
      text += escaped(is_command ? line.substr(2) : wrapped(line.substr(2), kColumns)) + "\n";
    } else if (line == "Example:" || line == "Examples:") {
      text += ".SH EXAMPLES\n";
    } else if (line.empty()) {
      if (!text.empty() && !text.ends_with(".PP\n") && !text.ends_with("EXAMPLES\n")) text += ".PP\n";
    } else {
      text += escaped(line) + "\n";
    }
  }
  if (is_example) text += ".RE\n.fi\n";
  while (text.ends_with(".PP\n")) text.resize(text.size() - 4);
  return text;
}

/// What stands in front of the examples goes into the description, so that sections have the order of all manuals.
std::pair<std::string, std::string> parted(const std::string& footer) {
  const size_t at = std::min(footer.find("Example"), footer.size());
  return {footer.substr(0, at), footer.substr(at)};
}

}  // namespace

std::vector<ManualPage> manual(const std::vector<CommandRow>& commands, const std::string& version) {
  std::vector<ManualPage> pages;
  for (const CommandRow& command : commands) {
    const std::string page = page_of(command.name());
    const auto [before, examples] = parted(command.footer);
    std::string upper = page;
    for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    std::string text = fmt::format(".TH \"{}\" 1 \"\" \"pliant {}\" \"Pliant\"\n", escaped(upper), version);
    text += ".SH NAME\n" + escaped(page) + " \\- " + escaped(clause_of(command.text)) + "\n";
    text += synopsis(command);
    text += ".SH DESCRIPTION\n" + escaped(command.text) + (command.text.ends_with('.') ? "\n" : ".\n");
    if (const std::string more = closing(before); !more.empty()) text += ".PP\n" + more;
    if (!command.commands.empty()) {
      text += ".SH COMMANDS\n";
      for (const std::string& name : command.commands) {
        const std::string path = command.path.empty() ? name : command.path + " " + name;
        for (const CommandRow& one : commands) {
          if (one.path == path) text += entry(bold(one.name()), one.text);
        }
      }
    }
    if (!command.arguments.empty()) text += ".SH ARGUMENTS\n";
    for (const ArgumentRow& row : command.arguments) text += entry(italic(row.names.front()), row.text);
    if (!command.flags.empty()) text += ".SH OPTIONS\n";
    for (const ArgumentRow& row : command.flags) text += flag_entry(row);
    if (!command.path.empty()) {
      text += ".SH COMMON OPTIONS\nEvery command has these:\n";
      for (const ArgumentRow& row : common_flags(commands)) text += flag_entry(row);
    }
    text += closing(examples);
    text += ".SH SEE ALSO\n";
    std::string others;
    const auto add = [&](const std::string& other) { others += (others.empty() ? "" : ", ") + bold(other) + "(1)"; };
    if (!command.path.empty()) add("pliant");
    const size_t space = command.path.rfind(' ');
    if (space != std::string::npos) add(page_of("pliant " + command.path.substr(0, space)));
    for (const std::string& name : command.commands) add(page_of(command.name() + " " + name));
    text += others + "\n";
    pages.push_back({page + ".1", std::move(text)});
  }
  return pages;
}

}  // namespace pliant::cli
