// The completion of fish: one line for each command, flag and argument.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "completion/table.hpp"

namespace pliant::cli {

namespace {

constexpr const char* kFishWalk = R"script(
function __pliant_is --argument-names wanted --description 'Whether the words so far are this command'
    set -l command ''
    set -l flag ''
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    for word in $words[2..-1]
        if test "$word" = --
            return 1
        else if test -n "$flag"; and __pliant_takes_value "$command" $flag
            set flag ''
        else if string match --quiet -- '-*' $word
            set flag $word
        else
            set flag ''
            if __pliant_has "$command" $word
                set command (string trim "$command $word")
            end
        end
    end
    test "$command" = "$wanted"
end

complete --command pliant --no-files
)script";

std::string fish_word(const std::string& text) {
  std::string made = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') made += '\\';
    made += c;
  }
  return made + "'";
}

std::string condition(const std::string& command) {
  return fish_word(fmt::format("__pliant_is \"{}\"", command));
}

/// The part of a rule that says what may stand there; "" for nothing that is known.
std::string values_of(const Suggestion& suggestion) {
  using Kind = Suggestion::Kind;
  const auto all = [&](const std::string& command) {
    return " --arguments " + fish_word(suggestion.is_list ? fmt::format("(__fish_complete_list , \"{}\")", command)
                                                          : "(" + command + ")");
  };
  switch (suggestion.kind) {
    case Kind::kWords:
      return all(fmt::format("string split ' ' -- '{}'", fmt::join(suggestion.words, " ")));
    case Kind::kFiles:
      return suggestion.detail.empty() ? " --force-files" : all("__fish_complete_suffix " + suggestion.detail);
    case Kind::kFolders:
      return all("__fish_complete_directories");
    case Kind::kPlugins:
      return all("pliant completion plugins " + suggestion.detail);
    case Kind::kNothing:
      break;
  }
  return "";
}

std::string flag_rule(const ArgumentRow& row, const std::string& command) {
  std::string rule = "complete --command pliant";
  if (!command.empty()) rule += " --condition " + condition(command);
  for (const std::string& name : row.names) {
    rule += name.starts_with("--") ? " --long-option " + name.substr(2) : " --short-option " + name.substr(1);
  }
  if (!row.value.empty() && !row.value_may_be_missing) rule += " --require-parameter";
  if (!row.value.empty()) rule += values_of(row.suggestion);
  return rule + " --description " + fish_word(clause_of(row.text)) + "\n";
}

}  // namespace

std::string fish_completion(const std::vector<CommandRow>& commands) {
  std::string below;
  std::string takes;
  std::string rules;
  for (const CommandRow& command : commands) {
    for (const std::string& name : command.commands) {
      const std::string path = command.path.empty() ? name : command.path + " " + name;
      below += " " + fish_word(command.path + " " + name);
      for (const CommandRow& one : commands) {
        if (one.path != path) continue;
        rules += fmt::format("complete --command pliant --condition {} --arguments {} --description {}\n",
                             condition(command.path), fish_word(name), fish_word(clause_of(one.text)));
      }
    }
    for (const ArgumentRow& row : command.flags) {
      rules += flag_rule(row, command.path);
      if (row.value.empty() || row.value_may_be_missing) continue;
      for (const std::string& name : row.names)
        takes += " " + fish_word((command.path.empty() ? "*" : command.path) + " " + name);
    }
    for (const ArgumentRow& row : command.arguments) {
      const std::string values = values_of(row.suggestion);
      if (values.empty()) continue;
      rules += fmt::format("complete --command pliant --condition {}{}\n", condition(command.path), values);
    }
  }
  return fmt::format(
      "# fish completion of pliant. Written by `pliant completion fish`.\n"
      "function __pliant_has --argument-names command word --description 'Whether a command has this one below it'\n"
      "    switch \"$command $word\"\n        case{}\n            return 0\n    end\n    return 1\nend\n\n"
      "function __pliant_takes_value --argument-names command flag --description 'Whether a word behind the flag is "
      "its "
      "value'\n    switch \"$command $flag\"\n        case{}\n            return 0\n    end\n    return 1\nend\n{}{}",
      below, takes, kFishWalk, rules);
}

}  // namespace pliant::cli
