// pliant completion, pliant man
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "actions.hpp"
#include "base/result.hpp"
#include "base/whole_file.hpp"
#include "commands.hpp"
#include "completion/table.hpp"
#include "config/open.hpp"
#include "output.hpp"
#include "pliant/error.hpp"
#include "plugin/search.hpp"

namespace pliant::cli {

namespace {

namespace fs = std::filesystem;
using Script = std::string (*)(const std::vector<CommandRow>&);

struct Shell {
  const char* name;
  Script script;
  const char* text;
  const char* help;
};

constexpr Shell kShells[] = {
    {"bash", &bash_completion, "Print the completion of bash",
     "Examples:\n  eval \"$(pliant completion bash)\"\n  pliant completion bash > "
     "~/.local/share/bash-completion/completions/pliant\n\nAn installation has it where bash looks for it, in "
     "share/bash-completion/completions."},
    {"zsh", &zsh_completion, "Print the completion of zsh",
     "Examples:\n  source <(pliant completion zsh)\n  pliant completion zsh > ~/.zfunc/_pliant\n\nThe second one needs "
     "fpath+=(~/.zfunc) before compinit. An installation has it in share/zsh/site-functions."},
    {"fish", &fish_completion, "Print the completion of fish",
     "Examples:\n  pliant completion fish | source\n  pliant completion fish > "
     "~/.config/fish/completions/pliant.fish\n\nAn installation has it in share/fish/vendor_completions.d."},
};

/// Names without opening a plugin: a shell asks at every press of the tab key.
int list_names(const Invocation& invocation, const std::string& section) {
  std::string names;
  for (const plugin::Found& found : plugin::list(or_throw(config::search_dirs(invocation.overrides)))) {
    if (found.shadowed || (!section.empty() && found.kind->section != section)) continue;
    names += section.empty() ? fmt::format("{}/{}\n", found.kind->section, found.name) : found.name + "\n";
  }
  return emit(names);
}

int write_manual(const Invocation& invocation, CLI::App& app, const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw Error(Status::kFailedPrecondition, fmt::format("{} cannot be made: {}", folder.string(), error.message()),
                Origin::kInput);
  }
  nlohmann::ordered_json json{{"schema", "pliant.man/1"}, {"folder", folder.string()}};
  std::string text;
  for (const ManualPage& page : manual(commands_of(app), PLIANT_VERSION)) {
    or_throw(write_whole(folder / page.file, page.text, true));
    json["pages"].push_back(page.file);
    text += (folder / page.file).string() + "\n";
  }
  return emit(invocation.json ? json.dump() + "\n" : text);
}

}  // namespace

void add_completion(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("completion", "Print what makes a shell complete commands, flags and values");
  command.require_subcommand(1);
  command.footer("Example:\n  eval \"$(pliant completion bash)\"");
  for (const Shell& shell : kShells) {
    CLI::App& one = *command.add_subcommand(shell.name, shell.text);
    one.footer(shell.help);
    one.callback([&app, &invocation, script = shell.script] {
      invocation.action = [&app, script] { return emit(script(commands_of(app))); };
    });
  }
  CLI::App& names = *command.add_subcommand("plugins", "Print the names of the plugins that are found, one a line");
  const auto section = std::make_shared<std::string>();
  names.add_option("SECTION", *section, "The section whose plugins are meant; all, as section/name, when left out")
      ->check(one_of(sections_of_kinds()));
  names.footer("Example:\n  pliant completion plugins lr\n\nThe scripts call it for values that are plugins.");
  names.callback([&invocation, section] {
    invocation.action = [&invocation, section] { return list_names(invocation, *section); };
  });
}

void add_man(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("man", "Write the manual pages of all commands to a directory");
  const auto folder = std::make_shared<std::string>();
  command.add_option("DIR", *folder, "The directory; made when it is not there, pages in it are replaced")->required();
  add_json(command, invocation);
  command.footer(
      "Examples:\n  pliant man ./man1\n  man ./man1/pliant-plan.1\n\nAn installation has them in share/man/man1: `man "
      "pliant`.");
  command.callback([&app, &invocation, folder] {
    invocation.action = [&app, &invocation, folder] { return write_manual(invocation, app, *folder); };
  });
}

}  // namespace pliant::cli
