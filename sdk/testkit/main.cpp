// pliant-check: holds one plugin file to the promises of its kind. `pliant plugin check` runs this program.
#include <csignal>
#include <cstdio>
#include <cstring>
#include <regex>

#include "testkit/arguments.hpp"
#include "testkit/ranks.hpp"
#include "testkit/report.hpp"
#include "testkit/runner.hpp"

namespace pliant::testkit {

namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kNoPlugin = 3;

int emit(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return 0;
  return 128 + SIGPIPE;
}

int report_error(const Arguments& arguments, int exit_code, const std::string& message) {
  const std::string name = arguments.program.substr(0, arguments.program.find(' '));
  const std::string text = name + ": error: " + message + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
  if (arguments.json) static_cast<void>(emit(error_json(exit_code, message)));
  return exit_code;
}

std::string subjects(const std::vector<Check>& checks) {
  std::string names;
  std::string last;
  for (const Check& check : checks) {
    if (subject_of(check) == last) continue;
    last = subject_of(check);
    names += (names.empty() ? "" : ", ") + last;
  }
  return names;
}

std::vector<Check> chosen(const Arguments& arguments, const std::vector<Check>& all) {
  std::vector<Check> made;
  const bool one = !arguments.reproduce.empty();
  const std::string asked = one ? "--reproduce '" + arguments.reproduce + "'" : "--only '" + arguments.only + "'";
  std::regex pattern;
  try {
    pattern = std::regex(arguments.only);
  } catch (const std::regex_error& wrong) {
    throw UsageError(asked + ": not a regular expression such as memory or 'copy|fill': " + wrong.what());
  }
  for (const Check& check : all) {
    if (one ? arguments.reproduce == check.id : std::regex_search(check.id, pattern)) made.push_back(check);
  }
  if (made.empty()) {
    throw UsageError(asked + ": no check of this plugin matches; subjects: " + subjects(all) +
                     "; all names: " + arguments.program + " --list");
  }
  return made;
}

int run(const Arguments& arguments) {
  const Identity identity = identify(arguments.subject);
  const std::vector<Check> checks = chosen(arguments, checks_of(identity.kind));
  size_t width = 0;
  for (const Check& check : checks) width = std::max(width, std::strlen(check.id));
  if (!arguments.json && emit(heading(arguments, identity)) != 0) return 128 + SIGPIPE;
  std::vector<Finding> findings;
  Counts counts;
  std::string subject;
  for (const Check& check : checks) {
    const std::string next = subject_of(check);
    if (!arguments.json && next != subject && emit("\n" + next + "\n") != 0) return 128 + SIGPIPE;
    subject = next;
    findings.push_back({check, run_check(check, arguments.subject, arguments.limit_s)});
    counts.add(findings.back().verdict.result);
    if (!arguments.json && emit(row(arguments, findings, width)) != 0) return 128 + SIGPIPE;
  }
  const int written = emit(arguments.json ? report_json(arguments, identity, findings)
                                          : closing(arguments, identity, findings, counts, width));
  return written != 0 ? written : counts.fail + counts.crash > 0 ? kFailed : 0;
}

int list(const Arguments& arguments) {
  const std::vector<Check> checks =
      arguments.shown_file.empty() ? every_check() : checks_of(identify(arguments.subject).kind);
  return emit(arguments.json ? list_json(checks) : list_text(checks));
}

int start(const Arguments& arguments) {
  switch (arguments.role) {
    case Role::kList:
      return list(arguments);
    case Role::kProbe:
      answer_probe(arguments.subject);
      return 0;
    case Role::kCheck:
      perform_check(arguments);
      return 0;
    case Role::kRank:
      perform_rank(arguments);
      return 0;
    case Role::kRun:
      break;
  }
  return run(arguments);
}

int guarded(const std::vector<std::string>& words) {
  Arguments arguments;
  try {
    parse(words, arguments);
    return start(arguments);
  } catch (const UsageError& wrong) {
    return report_error(arguments, kUsage, std::string(wrong.what()) + "\n  see " + arguments.program + " --help");
  } catch (const NotAPlugin& wrong) {
    return report_error(arguments, kNoPlugin, arguments.shown_file + " cannot be opened as a plugin: " + wrong.what());
  } catch (const std::exception& other) {
    return report_error(arguments, kFailed, other.what());
  }
}

constexpr const char* kHelp =
    "Usage: pliant-check FILE [--only REGEX] [--seed N] [--reproduce CHECK:SEED] [--set KEY=VALUE]... [--time-limit "
    "S]\n"
    "                    [--list] [--json]\n"
    "Runs the conformance checks of a plugin file, each in its own process.\n"
    "  --only REGEX            run only checks whose names match, e.g. memory or 'copy|fill'\n"
    "  --seed N                seed of all random inputs: array values, options, models, data sets and requests,\n"
    "                          and which rank is killed at which time; default 1\n"
    "  --reproduce CHECK:SEED  repeat one check with its seed\n"
    "  --set KEY=VALUE         an option of the plugin; repeatable\n"
    "  --time-limit SECONDS    time limit of each check, instead of its own\n"
    "  --list                  list the checks and exit; FILE is optional\n"
    "  --json                  write one JSON object to stdout instead of text\n"
    "Exit codes: 0 nothing failed, 1 a check failed or crashed, 2 usage, 3 FILE is no plugin\n";

}  // namespace
}  // namespace pliant::testkit

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGCHLD, SIG_DFL);  // ignored, it would hide how a check ended
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 1 && (words[0] == "--help" || words[0] == "-h")) {
    return pliant::testkit::emit(pliant::testkit::kHelp);
  }
  return pliant::testkit::guarded(words);
}
