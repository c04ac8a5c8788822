// pliant completion and pliant man: what they write has every command and flag of help, loads, and completes.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "negative/pliant_process.hpp"

namespace {

namespace fs = std::filesystem;
using pliant::test::Outcome;
using pliant::test::read_all;
using pliant::test::run_pliant;
using pliant::test::ScratchFolder;
using Words = std::vector<std::string>;

/// The program in PATH; "" when there is none.
std::string found(const std::string& name) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = folder + "/" + name;
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

Words lines_of(const std::string& text) {
  Words lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string printed(const ScratchFolder& folder, const Words& args) {
  const Outcome outcome = run_pliant(folder, args);
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return outcome.out;
}

/// What help shows of one command.
struct Help {
  Words path;
  Words commands;
  Words flags;  ///< "--json", "-v"
};

/// Reads `text` as a person would: names at the begin of the lines below "Options:" and "Subcommands:".
Help read_help(Words path, const std::string& text) {
  Help help{std::move(path), {}, {}};
  std::string section;
  for (const std::string& line : lines_of(text)) {
    if (!line.empty() && line.front() != ' ') section = line;
    if (line.rfind("  ", 0) != 0 || line.size() < 3 || line[2] == ' ') continue;
    const std::string names = line.substr(2, line.find(' ', 2) - 2);
    if (section == "Subcommands:") help.commands.push_back(names);
    if (section != "Options:" || names.front() != '-') continue;
    std::istringstream cut(names);
    for (std::string name; std::getline(cut, name, ',');) help.flags.push_back(name);
  }
  return help;
}

void add_help(const ScratchFolder& folder, const Words& path, std::vector<Help>& all) {
  Words args = path;
  args.emplace_back("--help");
  all.push_back(read_help(path, printed(folder, args)));
  for (const std::string& command : Words(all.back().commands)) {
    Words below = path;
    below.push_back(command);
    add_help(folder, below, all);
  }
}

/// Of every command, by asking each for its help.
std::vector<Help> every_help(const ScratchFolder& folder) {
  std::vector<Help> all;
  add_help(folder, {}, all);
  REQUIRE(all.size() > 20);
  return all;
}

std::string joined(const Words& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

/// What bash offers for the last of `words`, which stand behind `pliant`.
Words offered(const ScratchFolder& folder, const Words& words) {
  const std::string pliant = std::string(PLIANT_BIN_DIR) + "/pliant";
  std::string script = "source <('" + pliant + "' completion bash) || exit 9\nCOMP_WORDS=('" + pliant + "'";
  for (const std::string& word : words) script += " '" + word + "'";
  script += ")\nCOMP_CWORD=" + std::to_string(words.size()) + "\n_pliant\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
  const Outcome outcome = run_pliant(folder, {"--norc", "-c", script}, {}, {}, found("bash"));
  CHECK(outcome.err == "");
  CHECK(outcome.exit_code == 0);
  Words answers = lines_of(outcome.out);
  answers.erase(std::remove(answers.begin(), answers.end(), ""), answers.end());
  std::sort(answers.begin(), answers.end());
  return answers;
}

bool has(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

TEST_CASE("completion and man refuse what they do not know, and a directory that cannot be made") {
  const ScratchFolder folder;
  const Outcome shell = run_pliant(folder, {"completion", "bsh"});
  CHECK(shell.exit_code == 2);
  CHECK(shell.err.find("unknown command 'bsh'; did you mean 'bash'?") != std::string::npos);
  const Outcome none = run_pliant(folder, {"completion"});
  CHECK(none.exit_code == 2);
  CHECK(none.err.find("a command is missing; commands: bash, zsh, fish, plugins") != std::string::npos);
  const Outcome section = run_pliant(folder, {"completion", "plugins", "smapler"});
  CHECK(section.exit_code == 2);
  CHECK(section.err.find("must be accelerator, balancer, ") != std::string::npos);
  folder.write("file", "");
  const Outcome pages = run_pliant(folder, {"man", "file/man1"});
  CHECK(pages.exit_code == 2);
  CHECK(pages.err.find("file/man1 cannot be made: ") != std::string::npos);
  CHECK(run_pliant(folder, {"man"}).exit_code == 2);
}

TEST_CASE("bash completes commands, flags, words, plugins and files") {
  if (found("bash").empty()) {
    MESSAGE("skipped: no bash");
    return;
  }
  const ScratchFolder folder;
  folder.write("job.toml", "");
  folder.write("other.txt", "");
  fs::create_directory(folder / "runs");
  CHECK(offered(folder, {"pl"}) == Words{"plan", "plugin"});
  CHECK(offered(folder, {"plugin", ""}) == Words{"check", "info", "list", "new"});
  CHECK(offered(folder, {"plugin", "new", "l"}) == Words{"lr"});
  CHECK(offered(folder, {"plan", "job.toml", "--world"}) == Words{"--world-size"});
  CHECK(has(offered(folder, {"plan", "--"}), "--set"));
  CHECK_FALSE(has(offered(folder, {"plan", "--"}), "--resume"));
  CHECK(offered(folder, {"plan", ""}) == Words{"job.toml", "runs"});
  CHECK(offered(folder, {"plan", "--plot", "o"}).empty());
  CHECK(offered(folder, {"run", "--log-dir", ""}) == Words{"runs"});
  CHECK(offered(folder, {"--color", "a"}) == Words{"always", "auto"});
  CHECK(offered(folder, {"version", "--color", "=", "n"}) == Words{"never"});
  CHECK(offered(folder, {"plan", "--set", "run.worke"}) == Words{"run.workers="});
  CHECK(offered(folder, {"plan", "--set", "run.workers", "=", "2", "j"}) == Words{"job.toml"});
  CHECK(offered(folder, {"plan", "--set", "run.workers", "="}).empty());
  CHECK(offered(folder, {"plan", "job.toml", "--compare", "v"}) == Words{"v0.1", "v0.2"});
  CHECK(offered(folder, {"plan", "job.toml", "--compare", "v0.1,ex"}) == Words{"v0.1,exact"});
  CHECK(has(offered(folder, {"plugin", "info", "elasticity/"}), "elasticity/exact"));
  CHECK(offered(folder, {"config", "defaults", "ru"}) == Words{"run"});
  CHECK(offered(folder, {"run", "job.toml", "--", "python", "--wor"}).empty());
}

TEST_CASE("every command and every flag of help stands in each completion and in the manual") {
  const ScratchFolder folder;
  const std::vector<Help> all = every_help(folder);
  const std::string bash = printed(folder, {"completion", "bash"});
  const std::string zsh = printed(folder, {"completion", "zsh"});
  const std::string fish = printed(folder, {"completion", "fish"});
  printed(folder, {"man", "man1"});
  std::set<std::string> pages;
  for (const auto& entry : fs::directory_iterator(folder / "man1")) pages.insert(entry.path().filename());
  CHECK(pages.size() == all.size());
  const std::vector<std::string>& common = all.front().flags;
  for (const Help& help : all) {
    const std::string path = joined(help.path, " ");
    const std::string name = help.path.empty() ? "pliant" : "pliant-" + joined(help.path, "-");
    CAPTURE(name);
    REQUIRE(pages.contains(name + ".1"));
    const std::string page = read_all(folder / "man1" / (name + ".1"));
    const auto line_of = [&](const std::string& script, const std::string& begin) {
      const size_t at = script.find(begin);
      return at == std::string::npos ? "" : script.substr(at, script.find('\n', at) - at) + " ";
    };
    if (!help.commands.empty()) CHECK(line_of(bash, "    '" + path + "') echo '" + help.commands.front()) != "");
    for (const std::string& command : help.commands) {
      CAPTURE(command);
      const std::string below = path.empty() ? command : path + " " + command;
      CHECK(line_of(bash, "    '" + path + "') echo '" + help.commands.front()).find(command) != std::string::npos);
      CHECK(line_of(zsh, "    ('" + path + "') reply=(").find("'" + command + ":") != std::string::npos);
      CHECK(fish.find("__pliant_is \"" + path + "\"' --arguments '" + command + "'") != std::string::npos);
      CHECK(page.find("\n\\fBpliant " + below.substr(0, below.find(' '))) != std::string::npos);
    }
    for (const std::string& flag : help.flags) {
      CAPTURE(flag);
      const bool is_common = has(common, flag);
      const std::string in_bash = is_common ? line_of(bash, "  echo '") : line_of(bash, "    '" + path + "') echo '-");
      CHECK(in_bash.find(flag) != std::string::npos);
      CHECK(zsh.find("'" + flag + ":") != std::string::npos);
      const std::string option =
          flag.rfind("--", 0) == 0 ? "--long-option " + flag.substr(2) + " " : "--short-option " + flag.substr(1) + " ";
      const std::string condition = is_common ? "complete --command pliant" : "__pliant_is \"" + path + "\"'";
      bool ruled = false;
      for (const std::string& line : lines_of(fish)) {
        ruled = ruled || ((line + " ").find(option) != std::string::npos && line.find(condition) != std::string::npos);
      }
      CHECK(ruled);
      std::string escaped;
      for (const char c : flag) escaped += c == '-' ? std::string("\\-") : std::string(1, c);
      CHECK(page.find("\\fB" + escaped + "\\fR") != std::string::npos);
    }
  }
}

TEST_CASE("zsh takes its completion") {
  if (found("zsh").empty()) {
    MESSAGE("skipped: no zsh");
    return;
  }
  const ScratchFolder folder;
  folder.write("_pliant", printed(folder, {"completion", "zsh"}));
  const Outcome outcome = run_pliant(
      folder,
      {"-f", "-c", "autoload -U compinit && compinit -u -d ./dump && source ./_pliant && print $_comps[pliant]"}, {},
      {}, found("zsh"));
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out == "_pliant\n");
}

TEST_CASE("fish completes by its completion") {
  if (found("fish").empty()) {
    MESSAGE("skipped: no fish");
    return;
  }
  const ScratchFolder folder;
  folder.write("pliant.fish", printed(folder, {"completion", "fish"}));
  const auto complete = [&](const std::string& line) {
    const Outcome outcome =
        run_pliant(folder, {"--no-config", "-c", "source pliant.fish; complete --do-complete='" + line + "'"},
                   {"HOME=" + folder.path().string()}, {}, found("fish"));
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code == 0);
    Words names;
    for (const std::string& one : lines_of(outcome.out)) names.push_back(one.substr(0, one.find('\t')));
    return names;
  };
  CHECK(complete("pliant pl") == Words{"plan", "plugin"});
  CHECK(complete("pliant plan --world-si") == Words{"--world-size"});
  CHECK(complete("pliant plugin new l") == Words{"lr"});
}

TEST_CASE("no page of the manual has a warning of the formatter's") {
  const ScratchFolder folder;
  printed(folder, {"man", "man1"});
  const std::string groff = found("groff");
  const std::string mandoc = found("mandoc");
  if (groff.empty() && mandoc.empty()) MESSAGE("no groff and no mandoc: the form of the pages alone is looked at");
  int looked_at = 0;
  for (const auto& entry : fs::directory_iterator(folder / "man1")) {
    const std::string page = read_all(entry.path());
    CAPTURE(entry.path().string());
    CHECK(page.rfind(".TH \"PLIANT", 0) == 0);
    for (const char* section : {".SH NAME\n", ".SH SYNOPSIS\n", ".SH DESCRIPTION\n", ".SH SEE ALSO\n"}) {
      CHECK(page.find(section) != std::string::npos);
    }
    bool is_filled = true;
    for (const std::string& line : lines_of(page)) {
      if (line == ".nf" || line == ".fi") is_filled = line == ".fi";
      CHECK((is_filled || line.size() <= 130));  // as it stands in the terminal, with an escape for each dash
      const bool request = !line.empty() && (line.front() == '.' || line.front() == '\'');
      CHECK((!request || line.rfind(".TH ", 0) == 0 || line.rfind(".SH ", 0) == 0 || line == ".TP" || line == ".PP" ||
             line == ".nf" || line == ".fi" || line == ".RS 4" || line == ".RE"));
    }
    ++looked_at;
    if (!groff.empty()) {
      const Outcome said = run_pliant(folder, {"-man", "-ww", "-z", entry.path().string()}, {}, {}, groff);
      CHECK(said.err == "");
    }
    if (!mandoc.empty()) {
      const Outcome said = run_pliant(folder, {"-T", "lint", "-W", "warning", entry.path().string()}, {}, {}, mandoc);
      for (const std::string& line : lines_of(said.out)) CHECK(line.find("missing date") != std::string::npos);
    }
  }
  CHECK(looked_at > 20);
}
