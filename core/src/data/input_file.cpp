// Reading a file that others may write to meanwhile.
#include "data/input_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace pliant::data {

namespace {

tl::unexpected<Error> cannot_read(const std::filesystem::path& file, const std::string& why,
                                  Status status = Status::kFailedPrecondition) {
  return failed(status, fmt::format("cannot read {}: {}", file.string(), why), Origin::kInput);
}

tl::unexpected<Error> cannot_read(const std::filesystem::path& file, int reason) {
  return cannot_read(file, std::generic_category().message(reason),
                     reason == ENOENT ? Status::kNotFound : Status::kFailedPrecondition);
}

}  // namespace

Result<InputFile> InputFile::open(const std::filesystem::path& file) {
  FileDescriptor fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return cannot_read(file, errno);
  InputFile input(file, std::move(fd));
  if (::fstat(input.fd_.get(), &input.opened_) != 0) return cannot_read(file, errno);
  if (S_ISDIR(input.opened_.st_mode)) return cannot_read(file, EISDIR);
  if (!S_ISREG(input.opened_.st_mode)) return cannot_read(file, "it is not a regular file");
  return input;
}

Result<> InputFile::read(char* into, size_t size, uint64_t offset) const {
  size_t got = 0;
  if (const int error = read_at(fd_.get(), into, size, offset, got); error != 0) return cannot_read(path_, error);
  if (got == size) return {};
  return cannot_read(
      path_, fmt::format("it shrank while being read, from {} to {} bytes; start again when no process writes to it",
                         opened_.st_size, offset + got));
}

Result<> InputFile::check_unchanged() const {
  struct stat now {};
  if (::fstat(fd_.get(), &now) != 0) return cannot_read(path_, errno);
  const bool same = now.st_size == opened_.st_size && now.st_mtim.tv_sec == opened_.st_mtim.tv_sec &&
                    now.st_mtim.tv_nsec == opened_.st_mtim.tv_nsec;
  if (same) return {};
  return cannot_read(path_, "it changed while being read; start again when no process writes to it");
}

Result<std::shared_ptr<const FileBytes>> read_whole(const std::filesystem::path& file) {
  const Result<InputFile> input = InputFile::open(file);
  if (!input) return tl::unexpected<Error>(input.error());
  std::unique_ptr<char[]> bytes(new (std::nothrow) char[input->size()]);
  if (!bytes) {
    return cannot_read(file, fmt::format("its {} bytes do not fit memory", input->size()), Status::kResourceExhausted);
  }
  if (Result<> read = input->read(bytes.get(), input->size(), 0); !read) return failed(std::move(read));
  if (Result<> same = input->check_unchanged(); !same) return failed(std::move(same));
  return std::make_shared<const FileBytes>(std::move(bytes), input->size());
}

}  // namespace pliant::data
