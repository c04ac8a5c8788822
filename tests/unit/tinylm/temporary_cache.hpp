// A cache directory of its own for one test, through XDG_CACHE_HOME.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "scratch_folder.hpp"

namespace tinylm {

class TemporaryCache {
 public:
  TemporaryCache() {
    if (const char* const before = std::getenv("XDG_CACHE_HOME")) before_ = before;
    ::setenv("XDG_CACHE_HOME", root().c_str(), 1);
  }
  ~TemporaryCache() {
    if (before_.empty()) {
      ::unsetenv("XDG_CACHE_HOME");
    } else {
      ::setenv("XDG_CACHE_HOME", before_.c_str(), 1);
    }
  }
  TemporaryCache(const TemporaryCache&) = delete;
  TemporaryCache& operator=(const TemporaryCache&) = delete;
  [[nodiscard]] const std::filesystem::path& root() const { return folder_.path(); }

 private:
  pliant::test::ScratchFolder folder_;
  std::string before_;
};

}  // namespace tinylm
