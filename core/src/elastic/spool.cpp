#include "elastic/spool.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <istream>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include "elastic/checked_stream.hpp"

namespace pliant::elastic {
namespace {

constexpr const char* kKeep = "keep a part of the state in";
constexpr uint64_t kCopiedAtOnce = uint64_t{1} << 20;

}  // namespace

Result<Spool> Spool::of(const std::filesystem::path& folder, const std::function<void(std::ostream&)>& write) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return tl::unexpected<Error>(file_error(error.value(), "create the folder", folder));
  // A name that who clears up after dead writers of snapshots knows.
  std::filesystem::path name = folder / fmt::format("rest.{}.partial", random_hex());
  Result<FileDescriptor> fd = open_file(name, O_RDWR | O_CREAT | O_EXCL, kKeep);
  if (!fd) return failed(std::move(fd));
  ::unlink(name.c_str());
  Spool spool(std::move(name), std::move(*fd));
  CheckedSink sink(spool.fd_.get());
  std::ostream out(&sink);
  write(out);
  const int flushed = sink.flush();
  if (flushed != 0) return tl::unexpected<Error>(file_error(flushed, kKeep, spool.name_));
  if (!out) return failed(Status::kInternal, "the program marked the stream as failed while it saved its state");
  spool.bytes_ = sink.size();
  spool.checksum_ = sink.checksum();
  return spool;
}

Result<> Spool::read(const std::function<void(std::istream&)>& read) const {
  CheckedSource source(fd_.get(), 0, bytes_);
  std::istream in(&source);
  read(in);
  if (source.error() == 0) return {};
  return tl::unexpected<Error>(file_error(source.error(), "read back", name_));
}

Result<> Spool::copy_to(int fd, uint64_t offset, std::string_view action, const std::filesystem::path& file) const {
  std::string piece;
  for (uint64_t at = 0; at < bytes_; at += piece.size()) {
    piece.resize(static_cast<size_t>(std::min(kCopiedAtOnce, bytes_ - at)));
    size_t got = 0;
    const int error = read_at(fd_.get(), piece.data(), piece.size(), at, got);
    if (error != 0 || got < piece.size()) {
      return tl::unexpected<Error>(file_error(error != 0 ? error : EIO, "read back", name_));
    }
    const int failure = write_all_at(fd, piece, offset + at);
    if (failure != 0) return tl::unexpected<Error>(file_error(failure, action, file));
  }
  return {};
}

}  // namespace pliant::elastic
