// WorkerLog: shows people what a worker has written to its log.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace pliant::elastic {

class WorkerLog {
 public:
  /// What the file holds already counts as shown.
  explicit WorkerLog(std::filesystem::path file);

  [[nodiscard]] const std::filesystem::path& file() const { return file_; }
  /// Whole lines of the next MiB that was added since the last call; with `all` also one that has no end yet. A line of
  /// more than 64 KiB comes in pieces.
  std::vector<std::string> added_lines(bool all);
  /// Leaves out what comes before the last MiB that was not shown yet; its bytes.
  int64_t skip_to_last();
  [[nodiscard]] int64_t shown() const { return shown_; }  ///< bytes
  [[nodiscard]] int64_t size() const;                     ///< of the file, in bytes
  /// The lines of the last 32 KiB.
  [[nodiscard]] std::vector<std::string> last_lines() const;

 private:
  std::filesystem::path file_;
  int64_t shown_ = 0;  // bytes
};

/// The line that most likely says why a program failed, wherever among `lines` it stands: what ends a Python traceback,
/// one that has "error:", what a C++ exception said, a failed assertion, else the last; at most 300 bytes.
std::string cause_among(const std::vector<std::string>& lines);

}  // namespace pliant::elastic
