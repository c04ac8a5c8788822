// The pliant command: parses the command line, runs one command, turns failures into messages and exit codes.
#include "command_line.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "actions.hpp"
#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/printable.hpp"
#include "base/suggest.hpp"
#include "commands.hpp"
#include "config/sections.hpp"
#include "exit_codes.hpp"
#include "help.hpp"
#include "output.hpp"
#include "stop_signals.hpp"
#include "values.hpp"

namespace pliant::cli {

namespace {

constexpr int kUsage = static_cast<int>(ExitCode::kUsage);

/// "run.workers=" and so on: what --set sets without a plugin.
std::vector<std::string> keys_to_set() {
  std::vector<std::string> keys;
  for (const std::string& section : sections_of_kinds()) keys.push_back(section + ".use=");
  for (const std::string& section : config::core_sections()) {
    for (const pliant_option& option : config::core_options(section)) {
      keys.push_back(fmt::format("{}.{}=", section, option.key));
    }
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

void add_common(CLI::App& app, Invocation& invocation) {
  app.add_option("--set", invocation.overrides.sets, "Set a key of the config, e.g. run.workers=2; repeatable")
      ->type_name("KEY=VALUE")
      ->check(offers_words(keys_to_set()))
      ->take_all()
      ->expected(1);
  app.add_option("--plugin-dir", invocation.overrides.plugin_dirs, "Search this directory for plugins; repeatable")
      ->type_name("DIR")
      ->take_all()
      ->expected(1);
  const auto choose_color = [&invocation](const std::string& when) {
    invocation.color = when == "always" ? Color::kAlways : when == "never" ? Color::kNever : Color::kAuto;
  };
  app.add_option_function<std::string>("--color", choose_color, "auto, always or never")
      ->check(one_of({"auto", "always", "never"}))
      ->type_name("WHEN");
  app.add_flag("-v,--verbose", invocation.verbosity, "Log more; give it twice to log everything");
  app.add_flag("-q,--quiet", invocation.quiet, "Log errors only and show no progress");
}

void declare(CLI::App& app, Invocation& invocation) {
  app.name("pliant");
  app.require_subcommand(1);
  app.set_help_flag("-h,--help", "Show this help");
  app.fallthrough();  // common flags may stand after the command, too
  app.set_version_flag("--version", "pliant " PLIANT_VERSION)->description("Show the version");
  app.footer(
      "Example:\n  pliant plan samples/tinylm/pliant.toml\n\nExit codes: 0 ok, 1 failed, 2 usage or config, 3 plugin, "
      "75 no valid world size, 128+n signal n");
  add_common(app, invocation);
  add_plan(app, invocation);
  add_pack(app, invocation);
  add_run(app, invocation);
  add_audit(app, invocation);
  add_report(app, invocation);
  add_trace(app, invocation);
  add_snapshot(app, invocation);
  add_plugin(app, invocation);
  add_accel(app, invocation);
  add_coordinator(app, invocation);
  add_config(app, invocation);
  add_completion(app, invocation);
  add_man(app, invocation);
  add_version(app, invocation);
}

/// The innermost command that the line reached.
const CLI::App& reached(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : reached(*chosen.front());
}

std::vector<std::string> words_near(const CLI::App& command, bool flags) {
  std::vector<std::string> words;
  for (const CLI::App* at = &command; at != nullptr; at = at->get_parent()) {
    if (flags) {
      for (const CLI::Option* option : at->get_options()) {
        for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
      }
    } else if (at == &command) {
      for (const CLI::App* sub : at->get_subcommands(nullptr)) words.push_back(sub->get_name());
    }
  }
  return words;
}

std::string command_line(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name() : command_line(*parent) + " " + command.get_name();
}

/// A word as a shell takes it.
std::string shell_word(std::string_view word) {
  constexpr std::string_view kSpecial = " \t\n\"'\\$`!*?[]{}()<>|&;#~^";
  if (!word.empty() && word.find_first_of(kSpecial) == std::string_view::npos) return std::string(word);
  std::string made = "'";
  for (const char c : word) made += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return made + "'";
}

/// The line of `pliant run` with the -- that it lacks in front of `program`; "" where `program` is none.
std::string with_dashes(const CLI::App& command, const std::string& program, int argc, char** argv) {
  const bool takes_program = command_line(command) == "pliant run";
  auto at = std::find(argv + 1, argv + argc, program);
  if (!takes_program || program.rfind('-', 0) == 0 || at == argv + argc) return {};
  // A word before it that is neither a config nor the value of a flag is the program, and this its first argument.
  const auto is_flag = [](const char* word) { return std::string_view(word).starts_with("-"); };
  std::error_code ignored;
  const bool is_program = at - argv > 2 && !is_flag(at[-1]) && !is_flag(at[-2]) &&
                          std::filesystem::path(at[-1]).extension() != ".toml" &&
                          !std::filesystem::exists(at[-1], ignored);
  if (is_program) --at;
  std::string line = "pliant";
  for (char** word = argv + 1; word != argv + argc; ++word) {
    if (word == at) line += " --";
    line += fmt::format(" {}", shell_word(*word));
  }
  return line;
}

/// What is wrong with the command line, with the near word where there is one.
std::string usage_text(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const CLI::App& command = reached(app);
  std::string text = error.what();
  const auto reworded = [&text](const char* from, const char* to) {
    if (const size_t at = text.find(from); at != std::string::npos) text.replace(at, std::strlen(from), to);
  };
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) reworded(" excludes ", " cannot be combined with ");
  if (dynamic_cast<const CLI::RequiresError*>(&error) != nullptr) reworded(" requires ", " needs ");
  if (&command == &app || !command.get_subcommands(nullptr).empty()) {
    text = fmt::format("a command is missing; commands: {}", fmt::join(words_near(command, false), ", "));
  }
  if (const std::vector<std::string> extra = app.remaining(true); !extra.empty()) {
    const std::string& word = extra.front();
    const bool flag = word.rfind('-', 0) == 0;
    const bool command_wanted = !flag && !words_near(command, false).empty();
    text = fmt::format("{} '{}'",
                       flag             ? "unknown option"
                       : command_wanted ? "unknown command"
                                        : "unexpected argument",
                       word);
    const std::string name = word.substr(0, word.find('='));
    const std::vector<std::string> known = words_near(command, flag);
    const std::string line = with_dashes(command, word, argc, argv);
    if (!line.empty()) {
      text += fmt::format("; write the program to run after --:\n  {}", line);
    } else if (const auto near = nearest(name, known); !near.empty()) {
      text += fmt::format("; did you mean '{}'?", near.front());
    }
  }
  return fmt::format("pliant: error: {}\n  see {} --help", text, command_line(command));
}

/// The line has a word where a command is due, and it is none.
bool misses_command(const CLI::App& app) {
  const std::vector<std::string> extra = app.remaining(true);
  return !extra.empty() && extra.front().rfind('-', 0) != 0 && !words_near(reached(app), false).empty();
}

/// Has log lines written to stderr, and sets the level that this process and workers read.
bool set_log_level(const Invocation& invocation) {
  if (invocation.quiet) ::setenv("PLIANT_LOG", "error", 1);
  if (invocation.verbosity == 1) ::setenv("PLIANT_LOG", "info", 1);
  if (invocation.verbosity > 1) ::setenv("PLIANT_LOG", "debug", 1);
  const char* level = environment_variable("PLIANT_LOG");
  if (level != nullptr && !log_level_from(level)) return false;
  log_to_stderr();
  return true;
}

/// With --json the failure is an object on stdout, too.
int report(const Invocation& invocation, const Error& error, int exit_code) {
  const std::string& message = error.message();
  complain(invocation, error.is_located() ? message : "pliant: error: " + message);
  if (invocation.json) {
    const nlohmann::ordered_json object{{"schema", "pliant.error/1"}, {"exit_code", exit_code}, {"error", message}};
    static_cast<void>(emit(object.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n"));
  }
  return exit_code;
}

int perform(const Invocation& invocation) {
  try {
    return invocation.action();
  } catch (const StoppedBySignal& stopped) {
    return report(invocation, Error(Status::kAborted, stopped.what()), exit_code_of_signal(stopped.number()));
  } catch (const Error& error) {
    return report(invocation, error, static_cast<int>(exit_code_of(error)));
  } catch (const std::exception& error) {
    return report(invocation, Error(Status::kInternal, error.what()), static_cast<int>(ExitCode::kFailed));
  }
}

/// Takes what follows `--` off the line: it is another program's, and no business of the parser.
std::vector<std::string> split_program(int& argc, char** argv) {
  const auto end = argv + argc;
  const auto dashes = std::find_if(argv, end, [](const char* word) { return std::string_view(word) == "--"; });
  if (dashes == end) return {};
  argc = static_cast<int>(dashes - argv);
  return {dashes + 1, end};
}

int run(int argc, char** argv) {
  Invocation invocation;
  invocation.program = split_program(argc, argv);
  CLI::App app("Elastic training: plans batches, runs workers and survives their loss.");
  app.formatter(std::make_shared<HelpFormatter>());  // before there are subcommands, which take it over
  declare(app, invocation);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& answer) {  // --help, --version
    if (!misses_command(app)) return app.exit(answer);
    complain(invocation, usage_text(app, answer, argc, argv));
    return kUsage;
  } catch (const CLI::ParseError& error) {
    complain(invocation, usage_text(app, error, argc, argv));
    return kUsage;
  }
  if (!invocation.program.empty() && !app.got_subcommand("run")) {
    complain(invocation, fmt::format("pliant: error: only `pliant run` takes a program after --, not `{}`",
                                     command_line(reached(app))));
    return kUsage;
  }
  if (!set_log_level(invocation)) {
    complain(invocation, "environment PLIANT_LOG: error: it must be debug, info, warning, error or off");
    return kUsage;
  }
  return perform(invocation);
}

}  // namespace

int run_command_line(int argc, char** argv) {
  // A file that a job opens must not become its stdin, stdout or stderr; a reader that goes must not end a job.
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) return 1;
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGCHLD, SIG_DFL);  // who started this may have ignored it: then nobody could tell how a child ended
  if (!drop_elevated_rights()) return 1;
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    note("pliant: error: " + printable(error.what()) + "\n");
    return 1;
  }
}

}  // namespace pliant::cli
