// Durable files: POSIX calls that end on disk or in an Error which names the file and says what to do about it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.hpp"

namespace pliant {

/// Owns a file descriptor.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  [[nodiscard]] int get() const { return fd_; }
  /// The caller owns it from here on.
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

/// `cannot <action> <file>: <system's reason>; <what to do>`. kResourceExhausted: no space, quota, file size limit,
/// descriptors or memory left; kNotFound; kFailedPrecondition: not allowed there; kDataLoss: the device failed;
/// kInternal: anything else.
Error file_error(int error_number, std::string_view action, const std::filesystem::path& file);

/// `flags` as for open(2); O_CLOEXEC is added, and O_NONBLOCK: nobody is waited for where a pipe lies instead. New
/// files get mode 0644 less the umask. Without O_DIRECTORY, what is no regular file is kFailedPrecondition.
Result<FileDescriptor> open_file(const std::filesystem::path& file, int flags, std::string_view action);

/// Takes the writer's lock of an open file. False when another process (or descriptor) holds it. A file system without
/// locks counts as unlocked.
[[nodiscard]] bool lock_for_writing(int fd);

/// Writes all of `bytes` at `offset`. 0 or an errno value; part of the bytes may have been written then.
[[nodiscard]] int write_all_at(int fd, std::string_view bytes, uint64_t offset);

/// Reads `size` bytes at `offset`, fewer only at the end of the file. 0 or an errno value.
[[nodiscard]] int read_at(int fd, char* bytes, size_t size, uint64_t offset, size_t& got);

/// 12 random hex digits: for the names of runs and of files that are being written, which nobody else may have.
std::string random_hex();

/// True when `file` names the file that `fd` has open, false when that was removed, replaced or cannot be reached.
[[nodiscard]] bool names(const std::filesystem::path& file, int fd);

/// Makes names created, replaced or removed in the folder of `file` permanent.
Result<> sync_folder_of(const std::filesystem::path& file);

}  // namespace pliant
