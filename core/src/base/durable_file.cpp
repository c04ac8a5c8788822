// Durable files over open, pwrite, pread, fsync and flock.
#include "base/durable_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <string>
#include <system_error>

namespace pliant {

namespace {

struct Advice {
  Status status;
  std::string_view remedy;
};

Advice advice_for(int error_number) {
  switch (error_number) {
    case ENOSPC:
      return {Status::kResourceExhausted, "free space on that file system and start again"};
    case EDQUOT:
      return {Status::kResourceExhausted, "the disk quota is used up: remove files or raise it, and start again"};
    case EFBIG:
      return {Status::kResourceExhausted, "the file size limit is reached: raise it (`ulimit -f`) and start again"};
    case EMFILE:
    case ENFILE:
      return {Status::kResourceExhausted, "too many files are open: raise the limit (`ulimit -n`) and start again"};
    case ENOMEM:
      return {Status::kResourceExhausted, "the system is out of memory: end other programs and start again"};
    case ENOENT:
    case ENOTDIR:
      return {Status::kNotFound, "check the path"};
    case EACCES:
    case EPERM:
    case EROFS:
    case EISDIR:
      return {Status::kFailedPrecondition, "choose a place where this user may write, or change its permissions"};
    case EIO:
      return {Status::kDataLoss, "the device reports a failure: check the system log, and use another disk"};
    default:
      return {Status::kInternal, "check the file and its file system"};
  }
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Error file_error(int error_number, std::string_view action, const std::filesystem::path& file) {
  const Advice advice = advice_for(error_number);
  return Error(advice.status, fmt::format("cannot {} {}: {}; {}", action, file.string(),
                                          std::generic_category().message(error_number), advice.remedy));
}

Result<FileDescriptor> open_file(const std::filesystem::path& file, int flags, std::string_view action) {
  int fd = -1;
  do {
    fd = ::open(file.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0644);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return tl::unexpected<Error>(file_error(errno, action, file));
  FileDescriptor opened(fd);
  struct stat kind {};
  if ((flags & O_DIRECTORY) == 0 && ::fstat(fd, &kind) == 0 && !S_ISREG(kind.st_mode)) {
    const char* const advice =
        (flags & O_ACCMODE) == O_RDONLY ? "name a file that is" : "remove it or choose another name";
    return tl::unexpected<Error>(
        Error(Status::kFailedPrecondition,
              fmt::format("cannot {} {}: it is not a regular file; {}", action, file.string(), advice)));
  }
  return opened;
}

bool lock_for_writing(int fd) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) return true;
  }
  return true;
}

int write_all_at(int fd, std::string_view bytes, uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    if (written == 0) return ENOSPC;
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return 0;
}

int read_at(int fd, char* bytes, size_t size, uint64_t offset, size_t& got) {
  got = 0;
  while (got < size) {
    const ssize_t count = ::pread(fd, bytes + got, size - got, static_cast<off_t>(offset + got));
    if (count < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    if (count == 0) return 0;
    got += static_cast<size_t>(count);
  }
  return 0;
}

std::string random_hex() {
  std::random_device device;
  const uint64_t bits = (uint64_t{device()} << 32) | device();
  return fmt::format("{:012x}", bits >> 16);
}

bool names(const std::filesystem::path& file, int fd) {
  struct stat named {};
  struct stat open {};
  return ::stat(file.c_str(), &named) == 0 && ::fstat(fd, &open) == 0 && named.st_ino == open.st_ino &&
         named.st_dev == open.st_dev;
}

Result<> sync_folder_of(const std::filesystem::path& file) {
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  Result<FileDescriptor> fd = open_file(folder, O_RDONLY | O_DIRECTORY, "open the folder");
  if (!fd) return failed(std::move(fd));
  // EINVAL and ENOTSUP: a file system whose folders need no sync.
  if (::fsync(fd->get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    return tl::unexpected<Error>(file_error(errno, "sync the folder", folder));
  }
  return {};
}

}  // namespace pliant
