// Writing results and complaints.
#include "output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/environment.hpp"
#include "base/printable.hpp"
#include "base/stderr_writer.hpp"
#include "exit_codes.hpp"

namespace pliant::cli {

void note(std::string_view text) noexcept {
  write_stderr(text);
}

int emit(std::string_view text) {
  flush_stderr();  // what happened comes before the result of it
  const std::string shown = printable(text);
  const size_t written = std::fwrite(shown.data(), 1, shown.size(), stdout);
  if (written == shown.size() && std::fflush(stdout) == 0) return 0;
  const int reason = errno;
  if (reason == EPIPE) return exit_code_of_signal(SIGPIPE);
  note(fmt::format("pliant: error: cannot write the result: {}\n", std::generic_category().message(reason)));
  return static_cast<int>(ExitCode::kFailed);
}

bool colored(const Invocation& invocation) {
  if (invocation.color != Color::kAuto) return invocation.color == Color::kAlways;
  return ::isatty(STDERR_FILENO) == 1 && environment_variable("NO_COLOR") == nullptr;
}

void complain(const Invocation& invocation, std::string_view text) {
  std::string shown = printable(text);
  if (colored(invocation)) {
    for (const auto& [word, paint] :
         {std::pair<const char*, const char*>{"error:", "\033[1;31m"}, {"warning:", "\033[1;33m"}}) {
      const size_t at = shown.find(word);
      if (at == std::string::npos) continue;
      const std::string_view found(word);
      shown.replace(at, found.size(), fmt::format("{}{}\033[0m", paint, word));
      break;
    }
  }
  note(shown + "\n");
}

std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

std::string counted(int64_t number, std::string_view unit) {
  const std::string_view ending = unit.ends_with("ch") ? "es" : "s";
  return fmt::format("{} {}{}", grouped(number), unit, number == 1 ? "" : ending);
}

std::string table(const std::vector<std::vector<std::string>>& rows, size_t texts) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      line += i < texts ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("{:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace pliant::cli
