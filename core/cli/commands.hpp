// The commands of the CLI: one function each that declares a command, and what all of them share.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pliant/config.hpp"

namespace CLI {
class App;
}

namespace pliant::cli {

enum class Color { kAuto, kAlways, kNever };

/// What the command line asked for. Filled while it is parsed; lives until the command has ended.
struct Invocation {
  ConfigOverrides overrides;  ///< --set and --plugin-dir; a command adds its own flags
  bool json = false;
  bool quiet = false;  ///< -q: warnings and progress stay away
  int verbosity = 0;   ///< number of -v
  Color color = Color::kAuto;
  std::vector<std::string> program;  ///< what followed `--`
  /// The chosen command. Returns the exit code; may throw Error, whose message goes to stderr.
  std::function<int()> action;
};

/// Each declares one command below `app`. Its callback sets invocation.action and does nothing else.
void add_plan(CLI::App& app, Invocation& invocation);
void add_pack(CLI::App& app, Invocation& invocation);
void add_plugin(CLI::App& app, Invocation& invocation);
void add_config(CLI::App& app, Invocation& invocation);
void add_version(CLI::App& app, Invocation& invocation);
void add_run(CLI::App& app, Invocation& invocation);
void add_audit(CLI::App& app, Invocation& invocation);
void add_report(CLI::App& app, Invocation& invocation);
void add_snapshot(CLI::App& app, Invocation& invocation);
void add_accel(CLI::App& app, Invocation& invocation);
void add_coordinator(CLI::App& app, Invocation& invocation);
void add_trace(CLI::App& app, Invocation& invocation);
void add_completion(CLI::App& app, Invocation& invocation);
void add_man(CLI::App& app, Invocation& invocation);

/// Declares --json for `command`.
void add_json(CLI::App& command, Invocation& invocation);

}  // namespace pliant::cli
