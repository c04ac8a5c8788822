// The completion of bash: three tables (commands, flags, values) and a walk over the line, which is the same for all.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "completion/table.hpp"

namespace pliant::cli {

namespace {

/// The walk. COMP_WORDS are cut at `=` and `:`, so that --flag=value comes as three words.
constexpr const char* kBashWalk = R"script(
_pliant_offer() {  # what stands in a table: words WORD..., files ENDING, folders, plugins SECTION; list before it
  (($#)) || return 0
  local prefix='' IFS=$' \t\n'
  if [[ $1 == list ]]; then
    shift
    [[ $current == *,* ]] && prefix=${current%,*},
    current=${current##*,}
  fi
  local kind=$1
  shift
  case $kind in
    words) mapfile -t COMPREPLY < <(compgen -W "$*" -- "$current") ;;
    files)
      compopt -o filenames 2> /dev/null
      if [[ -n $1 ]]; then
        mapfile -t COMPREPLY < <(compgen -d -- "$current"; compgen -f -X "!*$1" -- "$current")
      else
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
      fi ;;
    folders)
      compopt -o filenames 2> /dev/null
      mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    plugins)
      mapfile -t COMPREPLY < <(compgen -W "$("$pliant" completion plugins $1 2> /dev/null)" -- "$current") ;;
  esac
  [[ -n $prefix ]] && COMPREPLY=("${COMPREPLY[@]/#/$prefix}")
}

_pliant() {
  local pliant=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} command='' flag='' word='' i
  local -i arguments=0 inside=0
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word == -- ]]; then  # what follows is another program's
      compopt -o default 2> /dev/null
      return
    elif [[ $word == [=:] ]]; then
      [[ -z $flag ]] && inside=1
    elif ((inside)); then  # KEY=VALUE
      inside=0
    elif [[ -n $flag && -n $(_pliant_value "$command" "$flag") ]]; then
      flag=''
    elif [[ $word == -* ]]; then
      flag=$word
    elif [[ " $(_pliant_commands "$command") " == *" $word "* ]]; then
      command=${command:+$command }$word
      flag=''
    else
      arguments+=1
      flag=''
    fi
  done
  local value=''
  [[ -n $flag ]] && value=$(_pliant_value "$command" "$flag")
  if [[ $current == [=:] ]]; then
    current=''
    [[ -n $value ]] || inside=1
  fi
  if ((inside)); then
    return
  elif [[ -n $value && $current != -* ]]; then
    _pliant_offer $value
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_pliant_flags "$command")" -- "$current")
  elif [[ -n $(_pliant_commands "$command") ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_pliant_commands "$command")" -- "$current")
  else
    _pliant_offer $(_pliant_value "$command" "$arguments")
  fi
}

complete -F _pliant pliant
)script";

}  // namespace

std::string bash_completion(const std::vector<CommandRow>& commands) {
  std::string below;
  std::string flags;
  std::string values;
  const auto add_values = [&](const std::string& command, const ArgumentRow& row) {
    if (row.value.empty()) return;
    std::string cases;
    for (const std::string& name : row.names)
      cases += fmt::format("{}'{} {}'", cases.empty() ? "" : " | ", command, name);
    values += fmt::format("    {}) echo '{}' ;;\n", cases, offer_of(row.suggestion));
  };
  for (const CommandRow& command : commands) {
    if (!command.commands.empty()) {
      below += fmt::format("    '{}') echo '{}' ;;\n", command.path, fmt::join(command.commands, " "));
    }
    std::string own;
    for (const ArgumentRow& row : command.flags) own += fmt::format("{} ", fmt::join(row.names, " "));
    if (command.path.empty()) continue;
    flags += fmt::format("    '{}') echo '{}' ;;\n", command.path, own.substr(0, own.find_last_not_of(' ') + 1));
    for (const ArgumentRow& row : command.flags) add_values(command.path, row);
    for (size_t i = 0; i < command.arguments.size(); ++i) {
      values += fmt::format("    '{} {}') echo '{}' ;;\n", command.path, i, offer_of(command.arguments[i].suggestion));
    }
  }
  std::string common;
  std::string common_values;
  for (const ArgumentRow& row : common_flags(commands)) {
    common += fmt::format(" {}", fmt::join(row.names, " "));
    if (row.value.empty()) continue;
    std::string cases;
    for (const std::string& name : row.names) cases += fmt::format("{}*' {}'", cases.empty() ? "" : " | ", name);
    common_values += fmt::format("    {}) echo '{}' ;;\n", cases, offer_of(row.suggestion));
  }
  return fmt::format(
      "# bash completion of pliant. Written by `pliant completion bash`.\n"
      "_pliant_commands() {{  # COMMAND: the commands below it\n  case $1 in\n{}  esac\n}}\n\n"
      "_pliant_flags() {{  # COMMAND: its flags\n  echo '{}'\n  case $1 in\n{}  esac\n}}\n\n"
      "_pliant_value() {{  # COMMAND FLAG, or COMMAND and the number of an argument: what its value may be; nothing "
      "for "
      "a flag without\n  case \"$1 $2\" in\n{}{}  esac\n}}\n{}",
      below, common.substr(1), flags, values, common_values, kBashWalk);
}

}  // namespace pliant::cli
