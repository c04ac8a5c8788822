// The arguments of plugin, config and version.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actions.hpp"
#include "commands.hpp"
#include "config/sections.hpp"
#include "plugin/plugin.hpp"
#include "values.hpp"

namespace pliant::cli {

namespace {

/// Arguments of one command; kept alive by its callback.
struct Arguments {
  std::string file;
  std::string name;
  bool origins = false;
};

std::string example(const std::string& line) {
  return "Example:\n  " + line + "\n\nEvery command takes --set, --plugin-dir, --color, -v and -q: see pliant --help";
}

std::shared_ptr<Arguments> arguments() {
  return std::make_shared<Arguments>();
}

void add_file(CLI::App& command, const std::shared_ptr<Arguments>& given) {
  command.add_option("CONFIG", given->file, "The config file, often pliant.toml")->required();
}

void add_search_file(CLI::App& command, const std::shared_ptr<Arguments>& given) {
  command.add_option("--config", given->file, "Also search the [plugins] dirs of this config file")->type_name("FILE");
}

void add_import(CLI::App& config, Invocation& invocation) {
  CLI::App& command = *config.add_subcommand("import", "Convert a DeepSpeed config to a pliant.toml");
  const auto given = std::make_shared<ImportArguments>();
  command.add_option("SOURCE", given->source, "The DeepSpeed config, often ds_config.json")->required();
  command.add_option("-o,--output", given->output, "Write the TOML to this file instead of stdout")->type_name("FILE");
  command.add_flag("--force", given->force, "Overwrite the file of --output");
  add_json(command, invocation);
  command.footer(example("pliant config import ds_config.json --output pliant.toml"));
  command.callback(
      [&invocation, given] { invocation.action = [&invocation, given] { return import_config(invocation, *given); }; });
}

void add_plugin_check(CLI::App& plugin, Invocation& invocation) {
  CLI::App& command = *plugin.add_subcommand("check", "Run the plugin's conformance checks, each in its own process");
  const auto given = std::make_shared<PluginCheckArguments>();
  command.add_option("FILE", given->file,
                     "The plugin file, or section/name of an installed plugin; optional with --list");
  command.add_option("--only", given->only, "Run only checks whose names match, e.g. memory or 'copy|fill'")
      ->type_name("REGEX");
  command
      .add_option("--seed", given->seed,
                  "Seed of all random inputs: array values, options, models, data sets and requests, and which rank is "
                  "killed at which time. Default: 1")
      ->type_name("N");
  command.add_option("--reproduce", given->reproduce, "Repeat one check with its seed, as a failed check printed it")
      ->type_name("CHECK:SEED");
  command
      .add_option("--time-limit", given->time_limit, "Time limit of each check in seconds, instead of the check's own")
      ->type_name("S");
  command.add_flag("--list", given->list, "List the checks and what each one requires, then exit");
  add_json(command, invocation);
  command.footer(
      "Examples:\n  pliant plugin check ./accelerator-mine.pliant.so\n  pliant plugin check accelerator/host --only "
      "'copy|fill'\n\n--set KEY=VALUE sets an option of "
      "the "
      "plugin.\n\nExit codes: 0 nothing failed, 1 a check failed or crashed, 2 usage, 3 FILE is no plugin");
  command.callback(
      [&invocation, given] { invocation.action = [&invocation, given] { return check_plugin(invocation, *given); }; });
}

std::string kinds_text() {
  std::string text;
  for (const plugin::Kind& kind : plugin::kinds()) text += fmt::format("  {:<12} {}\n", kind.section, kind.help);
  return text;
}

void add_plugin_new(CLI::App& plugin, Invocation& invocation) {
  CLI::App& command = *plugin.add_subcommand("new", "Create the folder of a new plugin, ready to build");
  const auto given = std::make_shared<PluginNewArguments>();
  std::vector<std::string> kinds = sections_of_kinds();
  const std::string last = std::move(kinds.back());
  kinds.pop_back();
  command.add_option("KIND", given->kind, fmt::format("{} or {}", fmt::join(kinds, ", "), last))
      ->check(offers_words(sections_of_kinds()))
      ->required();
  command.add_option("NAME", given->name, "The plugin's name, as `use` will name it: a-z 0-9 . _ -")->required();
  command.add_option("--dir", given->folder, "The folder to create. Default: NAME in the current folder")
      ->type_name("DIR");
  add_json(command, invocation);
  command.footer("Kinds:\n" + kinds_text() + "\n" + example("pliant plugin new elasticity my-elasticity"));
  command.callback(
      [&invocation, given] { invocation.action = [&invocation, given] { return new_plugin(invocation, *given); }; });
}

}  // namespace

void add_json(CLI::App& command, Invocation& invocation) {
  command.add_flag("--json", invocation.json, "Write one JSON object to stdout instead of text");
}

void add_plugin(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("plugin", "List, describe, check or create plugins");
  command.require_subcommand(1);
  command.footer(example("pliant plugin info elasticity/v0.1"));

  CLI::App& list = *command.add_subcommand("list", "List the installed plugins");
  const auto listed = arguments();
  add_search_file(list, listed);
  add_json(list, invocation);
  list.footer(example("pliant plugin list --plugin-dir ./build/plugins"));
  list.callback([&invocation, listed] {
    invocation.action = [&invocation, listed] { return list_plugins(invocation, listed->file); };
  });

  CLI::App& info = *command.add_subcommand("info", "Describe a plugin and its options");
  const auto shown = arguments();
  info.add_option("NAME", shown->name, "section/name, or the name alone if it is unique")
      ->check(offers_plugins())
      ->required();
  add_search_file(info, shown);
  add_json(info, invocation);
  info.footer(example("pliant plugin info elasticity/v0.1"));
  info.callback([&invocation, shown] {
    invocation.action = [&invocation, shown] { return show_plugin(invocation, shown->file, shown->name); };
  });

  add_plugin_check(command, invocation);
  add_plugin_new(command, invocation);
}

void add_config(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("config", "Show, check or import a config file");
  command.require_subcommand(1);
  command.footer(example("pliant config check pliant.toml"));

  CLI::App& show = *command.add_subcommand("show", "Show the effective config: file, overrides and defaults merged");
  const auto shown = arguments();
  add_file(show, shown);
  show.add_flag("--origin", shown->origins, "Show where the value of each key comes from");
  add_json(show, invocation);
  show.footer(example("pliant config show pliant.toml --origin --set run.workers=2"));
  show.callback([&invocation, shown] {
    invocation.action = [&invocation, shown] { return show_config(invocation, shown->file, shown->origins); };
  });

  CLI::App& check = *command.add_subcommand("check", "Check a config and the options of its plugins");
  const auto checked = arguments();
  add_file(check, checked);
  add_json(check, invocation);
  check.footer(example("pliant config check pliant.toml"));
  check.callback([&invocation, checked] {
    invocation.action = [&invocation, checked] { return check_config(invocation, checked->file); };
  });

  CLI::App& defaults = *command.add_subcommand("defaults", "Show options with their meaning, range and default");
  const auto wanted = arguments();
  defaults
      .add_option("NAME", wanted->name, "A section such as run, or section/name for a plugin. Default: all sections")
      ->check(offers_words(config::core_sections()));
  add_json(defaults, invocation);
  defaults.footer(example("pliant config defaults sampler/seqlen"));
  defaults.callback([&invocation, wanted] {
    invocation.action = [&invocation, wanted] { return show_defaults(invocation, wanted->name); };
  });

  add_import(command, invocation);
}

void add_version(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("version", "Show the version of pliant and of its plugin ABI");
  add_json(command, invocation);
  command.footer(example("pliant version --json"));
  command.callback([&invocation] { invocation.action = [&invocation] { return show_version(invocation); }; });
}

}  // namespace pliant::cli
