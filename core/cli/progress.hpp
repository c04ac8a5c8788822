// ProgressLine: how far a command is, as one line of stderr that is redrawn; nothing where stderr is no terminal.
#pragma once

#include <chrono>
#include <string>

#include "commands.hpp"

namespace pliant::cli {

class ProgressLine {
 public:
  explicit ProgressLine(const Invocation& invocation);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// `part` 0 to 1 of `task`; below 0: nobody knows. Draws ten times a second at most.
  void show(const std::string& task, double part);
  /// Takes the line away.
  void clear();

 private:
  bool live_;
  bool drawn_ = false;
  std::string task_;
  std::chrono::steady_clock::time_point drawn_at_{};
};

/// `part` 0 to 1 as a bar of 24 cells.
std::string progress_bar(double part);
/// Columns of the terminal behind stderr; 100 where there is none.
size_t terminal_columns();

}  // namespace pliant::cli
