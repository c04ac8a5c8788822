// The table and the JSON of a run.
#include "testkit/report.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

namespace pliant::testkit {

namespace {

std::string padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

/// For a POSIX shell.
std::string shell_word(const std::string& word) {
  const char* const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string made = "'";
  for (const char c : word) made += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return made + "'";
}

std::string quoted(const std::string& text) {
  std::string made = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      made += std::string("\\") + c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(c));
      made += escape.data();
    } else {
      made += c;
    }
  }
  return made + "\"";
}

std::string field(const char* key, const std::string& value) {
  return quoted(key) + ":" + value;
}

std::string seconds_json(double seconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3f", seconds);
  return text.data();
}

std::string check_json(const Check& check) {
  return field("id", quoted(check.id)) + "," + field("subject", quoted(subject_of(check))) + "," +
         field("demands", quoted(check.demands));
}

bool has_failed(const Finding& finding) {
  return finding.verdict.result == Result::kFail || finding.verdict.result == Result::kCrash;
}

}  // namespace

void Counts::add(Result result) {
  int* const all[] = {&pass, &warn, &skip, &fail, &crash};
  ++*all[static_cast<size_t>(result)];
}

std::string subject_of(const Check& check) {
  return std::string(check.id, std::strcspn(check.id, "."));
}

std::string reproduce_command(const Arguments& arguments, const Check& check) {
  std::string line = arguments.program + " " + shell_word(arguments.shown_file);
  for (const auto& [key, value] : arguments.subject.settings) {
    line += " --set " + shell_word(std::string(key).append("=").append(value));
  }
  return line + " --reproduce '" + check.id + ":" + std::to_string(arguments.subject.seed) + "'";
}

std::string heading(const Arguments& arguments, const Identity& identity) {
  return arguments.shown_file + ": " + identity.name + " " + identity.version + ", " + identity.kind + ", seed " +
         std::to_string(arguments.subject.seed) + "\n";
}

namespace {
/// The reason of a skip stands once for those in a row that share it.
bool repeats_reason(const std::vector<Finding>& findings) {
  if (findings.size() < 2) return false;
  const Finding& last = findings.back();
  const Finding& before = findings[findings.size() - 2];
  return last.verdict.result == Result::kSkip && before.verdict.result == Result::kSkip &&
         last.verdict.reason == before.verdict.reason && subject_of(last.check) == subject_of(before.check);
}
}  // namespace

namespace {
std::string row_of(const Arguments& arguments, const Finding& finding, size_t id_width, bool with_reason) {
  const Verdict& verdict = finding.verdict;
  std::string mark = name_of(verdict.result);
  if (has_failed(finding)) std::transform(mark.begin(), mark.end(), mark.begin(), [](char c) { return c - 'a' + 'A'; });
  std::string text =
      "  " + padded(mark, 5) + "  " + padded(finding.check.id, id_width) + "  " + finding.check.demands + "\n";
  const std::string indent(9, ' ');
  if (with_reason && !verdict.reason.empty()) text += indent + verdict.reason + "\n";
  if (has_failed(finding)) text += indent + "again: " + reproduce_command(arguments, finding.check) + "\n";
  return text;
}
}  // namespace

std::string row(const Arguments& arguments, const std::vector<Finding>& findings, size_t id_width) {
  return row_of(arguments, findings.back(), id_width, !repeats_reason(findings));
}

std::string closing(const Arguments& arguments, const Identity& identity, const std::vector<Finding>& findings,
                    const Counts& counts, size_t id_width) {
  std::string text;
  if (findings.size() > 1) {
    for (const Finding& finding : findings) {
      if (has_failed(finding)) text += row_of(arguments, finding, id_width, true);
    }
    if (!text.empty()) text = "\nfailed checks\n" + text;
  }
  text += "\n" + std::to_string(counts.pass) + " pass, " + std::to_string(counts.fail) + " fail, " +
          std::to_string(counts.crash) + " crash, " + std::to_string(counts.warn) + " warn, " +
          std::to_string(counts.skip) + " skip\n";
  if (checks_of(identity.kind).size() == checks_of("").size()) {
    text += "kind " + (identity.kind.empty() ? "(none)" : identity.kind) +
            " has no checks of its own: only those for every plugin ran\n";
  }
  return text;
}

std::string list_text(const std::vector<Check>& checks) {
  size_t width = 0;
  for (const Check& check : checks) width = std::max(width, std::strlen(check.id));
  std::string text;
  for (const Check& check : checks) text += padded(check.id, width) + "  " + check.demands + "\n";
  return text;
}

std::string report_json(const Arguments& arguments, const Identity& identity, const std::vector<Finding>& findings) {
  Counts counts;
  std::string checks;
  for (const Finding& finding : findings) {
    const Verdict& verdict = finding.verdict;
    counts.add(verdict.result);
    checks += std::string(checks.empty() ? "" : ",") + "{" + check_json(finding.check) + "," +
              field("result", quoted(name_of(verdict.result)));
    if (!verdict.reason.empty()) checks += "," + field("reason", quoted(verdict.reason));
    if (verdict.signal != 0) checks += "," + field("signal", std::to_string(verdict.signal));
    if (has_failed(finding)) {
      checks += "," + field("reproduce", quoted(reproduce_command(arguments, finding.check)));
    }
    checks += "," + field("seconds", seconds_json(verdict.seconds)) + "}";
  }
  const int exit_code = counts.fail + counts.crash > 0 ? 1 : 0;
  return "{" + field("schema", quoted("pliant.plugin_check/1")) + "," + field("exit_code", std::to_string(exit_code)) +
         "," + field("file", quoted(arguments.subject.file)) + "," + field("kind", quoted(identity.kind)) + "," +
         field("name", quoted(identity.name)) + "," + field("version", quoted(identity.version)) + "," +
         field("seed", std::to_string(arguments.subject.seed)) + "," +
         field("counts", "{" + field("pass", std::to_string(counts.pass)) + "," +
                             field("fail", std::to_string(counts.fail)) + "," +
                             field("crash", std::to_string(counts.crash)) + "," +
                             field("warn", std::to_string(counts.warn)) + "," +
                             field("skip", std::to_string(counts.skip)) + "}") +
         "," + field("checks", "[" + checks + "]") + "}\n";
}

std::string list_json(const std::vector<Check>& checks) {
  std::string rows;
  for (const Check& check : checks) rows += (rows.empty() ? "{" : ",{") + check_json(check) + "}";
  return "{" + field("schema", quoted("pliant.plugin_check_list/1")) + "," + field("checks", "[" + rows + "]") + "}\n";
}

std::string error_json(int exit_code, const std::string& message) {
  return "{" + field("schema", quoted("pliant.error/1")) + "," + field("exit_code", std::to_string(exit_code)) + "," +
         field("error", quoted(message)) + "}\n";
}

}  // namespace pliant::testkit
