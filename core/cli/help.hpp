// The text of --help: descriptions wrapped to the terminal, conflicts of options as sentences.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace pliant::cli {

/// `text` in lines of at most `columns`; a longer word has a line of its own. What follows on a line begins under its
/// first word, or under its second column: words behind two blanks. Lines below "Example:" or "Examples:", up to an
/// empty one, stay as they are.
std::string wrapped(const std::string& text, size_t columns);

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_description(const CLI::App* command) const override;
  std::string make_footer(const CLI::App* command) const override;
};

}  // namespace pliant::cli
