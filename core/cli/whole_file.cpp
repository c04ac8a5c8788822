// Temporary file, fsync, rename: never half a result under the name that was asked for.
#include "whole_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "elastic/durable_file.hpp"

namespace pliant::cli {

namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> exists_already(const fs::path& file) {
  return failed(Status::kFailedPrecondition,
                fmt::format("{} exists already; choose another name, or replace it with --force", file.string()),
                ExitCode::kUsage);
}

/// A wrong path is the user's to mend and exits with 2; a full disk exits with 1.
tl::unexpected<Error> cannot_write(int error_number, const fs::path& file) {
  if (error_number == ENOENT || error_number == ENOTDIR) {
    const fs::path folder = file.parent_path();
    return failed(Status::kNotFound,
                  fmt::format("cannot write {}: there is no folder {}", file.string(), folder.string()),
                  ExitCode::kUsage);
  }
  const Error error = elastic::file_error(error_number, "write", file);
  const ExitCode code = error.status() == Status::kFailedPrecondition ? ExitCode::kUsage : ExitCode::kFailed;
  return failed(error.status(), error.message(), code);
}

/// The name in one step; fails with EEXIST unless `replace`.
int give_name(const fs::path& written, const fs::path& file, bool replace) {
  if (replace) return ::rename(written.c_str(), file.c_str()) == 0 ? 0 : errno;
  if (::renameat2(AT_FDCWD, written.c_str(), AT_FDCWD, file.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;  // a file system without it: two hard links do the same
  if (::link(written.c_str(), file.c_str()) != 0) return errno;
  ::unlink(written.c_str());
  return 0;
}

}  // namespace

Result<> write_whole(const fs::path& file, std::string_view text, bool replace) {
  fs::path target = file;
  struct stat old {};
  if (::stat(file.c_str(), &old) == 0) {
    if (!S_ISREG(old.st_mode)) {
      return failed(
          Status::kFailedPrecondition,
          fmt::format("{} is {}; name a file", file.string(), S_ISDIR(old.st_mode) ? "a directory" : "no regular file"),
          ExitCode::kUsage);
    }
    if (!replace) return exists_already(file);
    std::error_code error;
    target = fs::canonical(file, error);  // a link goes on pointing to the file that it names
    if (error) return cannot_write(error.value(), file);
  }
  fs::path written = target;
  written += fmt::format(".{}.tmp", ::getpid());
  auto opened = elastic::open_file(written, O_WRONLY | O_CREAT | O_EXCL, "create");
  if (!opened) return cannot_write(errno, file);
  int fault = elastic::write_all_at(opened->get(), text, 0);
  if (fault == 0 && ::fsync(opened->get()) != 0) fault = errno;
  if (fault == 0) fault = give_name(written, target, replace);
  if (fault == 0) return elastic::sync_folder_of(target);
  ::unlink(written.c_str());
  return fault == EEXIST ? exists_already(file) : cannot_write(fault, file);
}

}  // namespace pliant::cli
