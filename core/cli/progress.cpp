// Drawing the line, and what it has in common with the view of a run.
#include "progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/printable.hpp"
#include "output.hpp"

namespace pliant::cli {

ProgressLine::ProgressLine(const Invocation& invocation) : live_(!invocation.quiet && ::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  clear();
}

void ProgressLine::show(const std::string& task, double part) {
  constexpr auto kInterval = std::chrono::milliseconds(100);
  if (!live_) return;
  const auto now = std::chrono::steady_clock::now();
  if (drawn_ && task == task_ && now - drawn_at_ < kInterval) return;
  task_ = task;
  drawn_at_ = now;
  drawn_ = true;
  const std::string line = part < 0 ? task : fmt::format("{}  {:3.0f} %  {}", progress_bar(part), 100 * part, task);
  note(fmt::format("\r\033[K{}", printable(line)));
}

void ProgressLine::clear() {
  if (drawn_) note("\r\033[K");
  drawn_ = false;
}

std::string progress_bar(double part) {
  constexpr int kCells = 24;
  const int full = static_cast<int>(std::clamp(part, 0.0, 1.0) * kCells);
  std::string cells;
  for (int i = 0; i < kCells; ++i) cells += i < full ? "━" : "─";
  return cells;
}

size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 100;
}

}  // namespace pliant::cli
