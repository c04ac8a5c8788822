// Spool: bytes that a program wrote, kept in a file without a name: beside its own state they take no memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string_view>
#include <utility>

#include "base/durable_file.hpp"
#include "base/result.hpp"

namespace pliant::elastic {

class Spool {
 public:
  /// What `write` writes, in `folder`, which is made where it is not there. kResourceExhausted for a full disk,
  /// kInternal where it marks the stream as failed. What it throws is thrown on.
  static Result<Spool> of(const std::filesystem::path& folder, const std::function<void(std::ostream&)>& write);

  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] uint64_t checksum() const { return checksum_; }
  /// Hands all of it to `read`. What it throws is thrown on.
  [[nodiscard]] Result<> read(const std::function<void(std::istream&)>& read) const;
  /// Writes all of it into another file, which `action` and `file` name in messages.
  [[nodiscard]] Result<> copy_to(int fd, uint64_t offset, std::string_view action,
                                 const std::filesystem::path& file) const;

 private:
  Spool(std::filesystem::path name, FileDescriptor fd) : name_(std::move(name)), fd_(std::move(fd)) {}

  std::filesystem::path name_;  ///< that it had, for messages
  FileDescriptor fd_;
  uint64_t bytes_ = 0;
  uint64_t checksum_ = 0;
};

}  // namespace pliant::elastic
