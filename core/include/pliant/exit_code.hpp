// ExitCode: what the `pliant` command and run_worker() end with, for programs that want to end as they do.
#pragma once

#include <optional>

#include "pliant/error.hpp"

namespace pliant {

/// Process exit codes of the `pliant` command, and of run_worker() (pliant/session.hpp), but for 128 + n after signal
/// n. The agent of a job reads those of its workers (origin_of): all that end with kUsage or kPlugin before one was
/// ready end the job.
enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,
  kUsage = 2,   ///< Origin::kInput
  kPlugin = 3,  ///< Origin::kPlugin
  kNoWorldSize = 75,
};

/// What a process ends with for an error; never kOk.
[[nodiscard]] constexpr ExitCode exit_code_of(Origin origin) noexcept {
  switch (origin) {
    case Origin::kInput:
      return ExitCode::kUsage;
    case Origin::kPlugin:
      return ExitCode::kPlugin;
    case Origin::kWorldSize:
      return ExitCode::kNoWorldSize;
    case Origin::kRun:
      break;
  }
  return ExitCode::kFailed;
}
[[nodiscard]] inline ExitCode exit_code_of(const Error& error) noexcept {
  return exit_code_of(error.origin());
}

/// What a worker refuses that ends with `exit_code`: kInput or kPlugin; nullopt for a code that says nothing of it.
[[nodiscard]] constexpr std::optional<Origin> origin_of(int exit_code) noexcept {
  if (exit_code == static_cast<int>(ExitCode::kUsage)) return Origin::kInput;
  if (exit_code == static_cast<int>(ExitCode::kPlugin)) return Origin::kPlugin;
  return std::nullopt;
}

}  // namespace pliant
