// Files of the user, read into memory: whole, or line by line. Never mapped: a mapped file that is cut off while it is
// in use kills the process.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "base/durable_file.hpp"
#include "base/result.hpp"

namespace pliant::data {

/// A regular file that is open for reading, of the size that it had then.
class InputFile {
 public:
  /// kNotFound or kFailedPrecondition, kInput, with the file's name. Does not wait for a pipe's writer: that is
  /// refused.
  static Result<InputFile> open(const std::filesystem::path& file);

  [[nodiscard]] uint64_t size() const { return static_cast<uint64_t>(opened_.st_size); }
  /// Reads `size` bytes at `offset`. kFailedPrecondition, kInput, when the file has become too short for that.
  Result<> read(char* into, size_t size, uint64_t offset) const;
  /// kFailedPrecondition, kInput, when somebody has written to the file since it was opened. Called after the last
  /// read.
  [[nodiscard]] Result<> check_unchanged() const;

 private:
  InputFile(std::filesystem::path path, FileDescriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::filesystem::path path_;
  FileDescriptor fd_;
  struct stat opened_ {};
};

/// The bytes of a file as they once were. Aligned for any number.
class FileBytes {
 public:
  FileBytes(std::unique_ptr<const char[]> bytes, size_t size) : bytes_(std::move(bytes)), size_(size) {}
  [[nodiscard]] std::string_view bytes() const { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<const char[]> bytes_;
  size_t size_;
};

/// All of `file`. Errors as above; kResourceExhausted when the memory has no room for it.
Result<std::shared_ptr<const FileBytes>> read_whole(const std::filesystem::path& file);

}  // namespace pliant::data
