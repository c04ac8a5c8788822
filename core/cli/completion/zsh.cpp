// The completion of zsh: the same tables as for bash, with what each word means beside it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "completion/table.hpp"

namespace pliant::cli {

namespace {

constexpr const char* kZshWalk = R"script(
_pliant_offer() {  # what stands in a table: words WORD..., files ENDING, folders, plugins SECTION; list before it
  (( $# )) || return 0
  local -a found
  if [[ $1 == list ]]; then
    shift
    compset -P '*,'
  fi
  local kind=$1
  shift
  case $kind in
    (words) compadd -- "$@" ;;
    (files) if [[ -n $1 ]]; then _files -g "*$1"; else _files; fi ;;
    (folders) _files -/ ;;
    (plugins)
      found=(${(f)"$($pliant completion plugins $1 2> /dev/null)"})
      compadd -- $found ;;
  esac
}

_pliant() {
  local pliant=$words[1] command='' flag='' word REPLY
  local -a reply
  local -i arguments=0 i
  for ((i = 2; i < CURRENT; ++i)); do
    word=$words[i]
    if [[ $word == -- ]]; then  # what follows is another program's
      _default
      return
    fi
    REPLY=''
    [[ -n $flag ]] && _pliant_value "$command" $flag
    if [[ -n $REPLY ]]; then
      flag=''
      continue
    fi
    reply=()
    _pliant_commands "$command"
    if [[ $word == -*=* ]]; then
      flag=''
    elif [[ $word == -* ]]; then
      flag=$word
    elif (( ${reply[(I)$word:*]} )); then
      command=${command:+$command }$word
      flag=''
    else
      arguments+=1
      flag=''
    fi
  done
  if [[ $words[CURRENT] == --*=* ]]; then
    flag=${words[CURRENT]%%=*}
    compset -P '*='
  fi
  REPLY=''
  [[ -n $flag ]] && _pliant_value "$command" $flag
  if [[ -n $REPLY && $PREFIX != -* ]]; then
    _pliant_offer ${=REPLY}
    return
  fi
  if [[ $PREFIX == -* ]]; then
    _pliant_flags "$command"
    _describe -o flag reply
    return
  fi
  reply=()
  _pliant_commands "$command"
  if (( $#reply )); then
    _describe command reply
    return
  fi
  REPLY=''
  _pliant_value "$command" $arguments
  _pliant_offer ${=REPLY}
}

if [[ $funcstack[1] == _pliant ]]; then
  _pliant "$@"
else
  compdef _pliant pliant
fi
)script";

/// A word of zsh; in it a colon parts a word from what it means.
std::string zsh_word(const std::string& text) {
  std::string made = "'";
  for (const char c : text) {
    if (c == '\'') {
      made += "'\\''";
    } else {
      made += c;
    }
  }
  return made + "'";
}

std::string described(const std::string& word, const std::string& text) {
  return zsh_word(word + ":" + clause_of(text));
}

std::string flags_of(const std::vector<ArgumentRow>& rows) {
  std::string words;
  for (const ArgumentRow& row : rows) {
    for (const std::string& name : row.names) words += " " + described(name, row.text);
  }
  return words;
}

}  // namespace

std::string zsh_completion(const std::vector<CommandRow>& commands) {
  std::string below;
  std::string flags;
  std::string values;
  const auto case_of = [](const std::string& command, const std::string& name) {
    return command.empty() ? "*" + zsh_word(" " + name) : zsh_word(command + " " + name);
  };
  for (const CommandRow& command : commands) {
    std::string words;
    for (const std::string& name : command.commands) {
      const std::string path = command.path.empty() ? name : command.path + " " + name;
      for (const CommandRow& one : commands) {
        if (one.path == path) words += " " + described(name, one.text);
      }
    }
    if (!words.empty()) below += fmt::format("    ({}) reply=({}) ;;\n", zsh_word(command.path), words.substr(1));
    if (!command.path.empty()) {
      flags += fmt::format("    ({}) reply+=({}) ;;\n", zsh_word(command.path), flags_of(command.flags));
    }
    for (const ArgumentRow& row : command.flags) {
      if (row.value.empty()) continue;
      std::vector<std::string> cases;
      for (const std::string& name : row.names) cases.push_back(case_of(command.path, name));
      values += fmt::format("    ({}) REPLY={} ;;\n", fmt::join(cases, "|"), zsh_word(offer_of(row.suggestion)));
    }
    for (size_t i = 0; i < command.arguments.size(); ++i) {
      values += fmt::format("    ({}) REPLY={} ;;\n", case_of(command.path, std::to_string(i)),
                            zsh_word(offer_of(command.arguments[i].suggestion)));
    }
  }
  return fmt::format(
      "#compdef pliant\n# zsh completion of pliant. Written by `pliant completion zsh`.\n"
      "_pliant_commands() {{  # COMMAND: the commands below it, into reply\n  case $1 in\n{}  esac\n}}\n\n"
      "_pliant_flags() {{  # COMMAND: its flags, into reply\n  reply=({})\n  case $1 in\n{}  esac\n}}\n\n"
      "_pliant_value() {{  # COMMAND FLAG, or COMMAND and the number of an argument: what its value may be, into "
      "REPLY\n"
      "  case \"$1 $2\" in\n{}  esac\n}}\n{}",
      below, flags_of(common_flags(commands)), flags, values, kZshWalk);
}

}  // namespace pliant::cli
