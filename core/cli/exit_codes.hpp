// What the `pliant` command ends with besides the codes of errors (exit_code_of): after a signal, and after a job.
#pragma once

#include "pliant/exit_code.hpp"
#include "pliant/job.hpp"

namespace pliant::cli {

/// As a shell reports a process that signal `number` ended.
[[nodiscard]] constexpr int exit_code_of_signal(int number) noexcept {
  return 128 + number;
}

[[nodiscard]] inline int exit_code_of_job(const JobEnd& end) noexcept {
  switch (end.outcome) {
    case JobOutcome::kFinished:
    case JobOutcome::kEndedEarly:
      return static_cast<int>(ExitCode::kOk);
    case JobOutcome::kStopped:
      return exit_code_of_signal(end.signal);
    case JobOutcome::kNoWorldSize:
      return static_cast<int>(ExitCode::kNoWorldSize);
    case JobOutcome::kFailed:
      break;
  }
  return static_cast<int>(exit_code_of(end.origin));
}

}  // namespace pliant::cli
