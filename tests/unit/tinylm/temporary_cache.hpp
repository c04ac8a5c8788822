// A cache directory of its own for one test, through XDG_CACHE_HOME.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tinylm {

class TemporaryCache {
 public:
  TemporaryCache() {
    std::string pattern = (std::filesystem::temp_directory_path() / "pliant-tinylm-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    if (const char* const before = std::getenv("XDG_CACHE_HOME")) before_ = before;
    ::setenv("XDG_CACHE_HOME", root_.c_str(), 1);
  }
  ~TemporaryCache() {
    if (before_.empty()) {
      ::unsetenv("XDG_CACHE_HOME");
    } else {
      ::setenv("XDG_CACHE_HOME", before_.c_str(), 1);
    }
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  TemporaryCache(const TemporaryCache&) = delete;
  TemporaryCache& operator=(const TemporaryCache&) = delete;
  [[nodiscard]] const std::filesystem::path& root() const { return root_; }

 private:
  std::filesystem::path root_;
  std::string before_;
};

}  // namespace tinylm
