// Mapping a file.
#include "data/lengths/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace pliant::data {

Result<MappedFile> MappedFile::open(const std::filesystem::path& file) {
  const auto failure = [&file](int reason) {
    return failed(reason == ENOENT ? Status::kNotFound : Status::kFailedPrecondition,
                  fmt::format("cannot read {}: {}", file.string(), std::generic_category().message(reason)),
                  ExitCode::kUsage);
  };
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not be waited for
  if (fd < 0) return failure(errno);
  struct stat status {};
  const int stated = ::fstat(fd, &status);
  MappedFile mapped;
  int reason = stated == 0 ? 0 : errno;
  if (reason == 0 && S_ISDIR(status.st_mode)) reason = EISDIR;
  if (reason == 0 && !S_ISREG(status.st_mode)) {
    ::close(fd);
    return failed(Status::kFailedPrecondition, fmt::format("cannot read {}: it is no regular file", file.string()),
                  ExitCode::kUsage);
  }
  if (reason == 0 && status.st_size > 0) {
    mapped.size_ = static_cast<size_t>(status.st_size);
    void* start = ::mmap(nullptr, mapped.size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (start == MAP_FAILED) {
      reason = errno;
    } else {
      mapped.start_ = start;
      static_cast<void>(::madvise(start, mapped.size_, MADV_SEQUENTIAL));
    }
  }
  ::close(fd);
  if (reason != 0) {
    mapped.start_ = nullptr;
    return failure(reason);
  }
  return mapped;
}

Result<std::shared_ptr<const MappedFile>> open_shared(const std::filesystem::path& file) {
  auto mapped = MappedFile::open(file);
  if (!mapped) return failed(std::move(mapped));
  return std::make_shared<const MappedFile>(std::move(*mapped));
}

MappedFile::~MappedFile() {
  if (start_ != nullptr) ::munmap(const_cast<void*>(start_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : start_(std::exchange(other.start_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(start_, other.start_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace pliant::data
