// Temporary file, fsync, rename: never half a result under the name that was asked for.
#include "base/whole_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>

#include "base/durable_file.hpp"

namespace pliant {

namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> exists_already(const fs::path& file) {
  return failed(Status::kFailedPrecondition,
                fmt::format("{} exists already; choose another name, or overwrite it with --force", file.string()),
                Origin::kInput);
}

/// A wrong path is the user's to mend, kInput; a full disk is not.
tl::unexpected<Error> cannot_write(int error_number, const fs::path& file) {
  if (error_number == ENOENT || error_number == ENOTDIR) {
    const fs::path folder = file.parent_path();
    return failed(Status::kNotFound,
                  fmt::format("cannot write {}: folder {} does not exist", file.string(), folder.string()),
                  Origin::kInput);
  }
  const Error error = file_error(error_number, "write", file);
  const Origin origin = error.status() == Status::kFailedPrecondition ? Origin::kInput : Origin::kRun;
  return failed(error.status(), error.message(), origin);
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

/// Opens `written`; where it is empty, a new file beside `target` whose name it gets. -1 and errno.
int open_draft(const fs::path& target, fs::path& written) {
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC;
  if (!written.empty()) return ::open(written.c_str(), flags | O_TRUNC, 0644);
  constexpr int kTries = 1000;  // other threads of this process, and drafts of killed ones, have names too
  for (int i = 0; i < kTries; ++i) {
    written = target.string() + fmt::format(".{}-{}.tmp", ::getpid(), i);
    const int fd = ::open(written.c_str(), flags | O_EXCL, 0644);
    if (fd >= 0 || (errno != EEXIST && errno != EINTR)) return fd;
  }
  return -1;
}

}  // namespace

Result<> write_whole(const fs::path& file, std::string_view text, bool replace) {
  const auto fill = [text](int fd) { return write_all_at(fd, text, 0); };
  return write_whole(file, WholeFile{fill, {}, {}}, replace);
}

Result<> write_whole(const fs::path& file, const WholeFile& contents, bool replace) {
  fs::path target = file;
  struct stat old {};
  if (::stat(file.c_str(), &old) == 0) {
    if (!S_ISREG(old.st_mode)) {
      return failed(Status::kFailedPrecondition,
                    fmt::format("{} is {}; name a file", file.string(),
                                S_ISDIR(old.st_mode) ? "a directory" : "not a regular file"),
                    Origin::kInput);
    }
    if (!replace) return exists_already(file);
    std::error_code error;
    target = fs::canonical(file, error);  // a link goes on pointing to the file that it names
    if (error) return cannot_write(error.value(), file);
  }
  fs::path written = contents.draft;
  const FileDescriptor fd(open_draft(target, written));
  if (fd.get() < 0) return cannot_write(errno, file);
  // Whatever happens before the file has its name, an exception of the caller too, the draft goes away.
  std::unique_ptr<const fs::path, void (*)(const fs::path*)> draft(
      &written, [](const fs::path* left) { ::unlink(left->c_str()); });
  int fault = contents.fill(fd.get());
  if (fault == 0 && ::fsync(fd.get()) != 0) fault = errno;
  Result<> ready;
  if (fault == 0 && contents.before_name) ready = contents.before_name();
  if (fault == 0 && ready) fault = give_name(written, target, replace);
  if (fault == 0 && ready) {
    static_cast<void>(draft.release());  // the name is another's now, or nobody's
    return sync_folder_of(target);
  }
  if (!ready) return ready;
  return fault == EEXIST ? exists_already(file) : cannot_write(fault, file);
}

}  // namespace pliant
