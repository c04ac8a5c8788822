// The commands with their arguments and flags as plain data, taken from what they declare to the parser: what shells
// complete and what the manual says is what --help says.
#pragma once

#include <string>
#include <vector>

#include "values.hpp"

namespace pliant::cli {

/// A flag, or a positional argument, which has a name but neither dash nor short form.
struct ArgumentRow {
  std::vector<std::string> names;  ///< "-o", "--output"; "CONFIG"
  std::string value;               ///< "FILE", as help calls it; "" where it takes none, and for a positional
  std::string text;                ///< what it means
  bool value_may_be_missing = false;
  bool is_required = false;
  Suggestion suggestion;
};

struct CommandRow {
  std::string path;  ///< "plugin check"; "" for pliant itself
  std::string text;  ///< what it does
  std::string footer;
  std::vector<std::string> commands;  ///< below it: "list", "check"
  std::vector<ArgumentRow> arguments;
  std::vector<ArgumentRow> flags;          ///< its own, --help left out
  [[nodiscard]] std::string name() const;  ///< "pliant plugin check"
};

/// pliant itself first, then every command in the order of help, each followed by those below it.
std::vector<CommandRow> commands_of(CLI::App& pliant);

/// What `list` has that stands behind every command: --help, --set, -v and so on.
const std::vector<ArgumentRow>& common_flags(const std::vector<CommandRow>& list);

/// The first clause of `text`: what fits beside a word that a shell offers.
std::string clause_of(const std::string& text);

/// As the scripts of bash and zsh have it: "words a b", "files .toml", "list plugins lr"; "nothing" for a value of
/// which nothing is known.
std::string offer_of(const Suggestion& suggestion);

std::string bash_completion(const std::vector<CommandRow>& commands);
std::string zsh_completion(const std::vector<CommandRow>& commands);
std::string fish_completion(const std::vector<CommandRow>& commands);

struct ManualPage {
  std::string file;  ///< "pliant-plan.1"
  std::string text;  ///< for man
};
/// One page for each command.
std::vector<ManualPage> manual(const std::vector<CommandRow>& commands, const std::string& version);

}  // namespace pliant::cli
