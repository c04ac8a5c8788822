// Which number the next file gets that a process opens.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace pliant::test {

/// As RLIMIT_NOFILE it leaves the process none to open.
inline rlim_t first_free_descriptor(pid_t pid) {
  const std::filesystem::path open = "/proc/" + std::to_string(pid) + "/fd";
  rlim_t number = 0;
  std::error_code ignored;
  while (std::filesystem::is_symlink(open / std::to_string(number), ignored)) ++number;
  return number;
}

}  // namespace pliant::test
