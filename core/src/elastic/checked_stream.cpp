// Checked streams over pread and pwrite, with one buffer each. Large pieces bypass the buffer.
#include "elastic/checked_stream.hpp"

#include <algorithm>
#include <cerrno>

#include "base/durable_file.hpp"

namespace pliant::elastic {

namespace {
constexpr size_t kBufferSize = size_t{256} << 10;
}

CheckedSink::CheckedSink(int fd) : fd_(fd), buffer_(kBufferSize, '\0') {
  setp(buffer_.data(), buffer_.data() + buffer_.size());
}

uint64_t CheckedSink::size() const {
  return written_ + static_cast<uint64_t>(pptr() - pbase());
}

int CheckedSink::write(std::string_view bytes) {
  if (error_ != 0 || bytes.empty()) return error_;
  error_ = write_all_at(fd_, bytes, written_);
  if (error_ != 0) return error_;
  crc_.process_bytes(bytes.data(), bytes.size());
  written_ += bytes.size();
  return 0;
}

int CheckedSink::flush() {
  static_cast<void>(write(std::string_view(pbase(), static_cast<size_t>(pptr() - pbase()))));
  setp(buffer_.data(), buffer_.data() + buffer_.size());
  return error_;
}

CheckedSink::int_type CheckedSink::overflow(int_type next) {
  if (flush() != 0) return traits_type::eof();
  if (!traits_type::eq_int_type(next, traits_type::eof())) sputc(traits_type::to_char_type(next));
  return traits_type::not_eof(next);
}

std::streamsize CheckedSink::xsputn(const char* bytes, std::streamsize size) {
  const std::string_view piece(bytes, static_cast<size_t>(size));
  if (size > epptr() - pptr() && flush() != 0) return 0;
  if (size > epptr() - pptr()) return write(piece) == 0 ? size : 0;
  std::copy(piece.begin(), piece.end(), pptr());
  pbump(static_cast<int>(size));
  return size;
}

int CheckedSink::sync() {
  return flush() == 0 ? 0 : -1;
}

CheckedSink::pos_type CheckedSink::seekoff(off_type offset, std::ios_base::seekdir from, std::ios_base::openmode) {
  // Only tellp: what is written is final.
  if (offset != 0 || from != std::ios_base::cur) return pos_type(off_type(-1));
  return pos_type(static_cast<off_type>(size()));
}

CheckedSource::CheckedSource(int fd, uint64_t first, uint64_t size)
    : fd_(fd), first_(first), size_(size), buffer_(static_cast<size_t>(std::min<uint64_t>(kBufferSize, size)), '\0') {}

bool CheckedSource::read(char* bytes, size_t size) {
  if (error_ != 0) return false;
  size_t got = 0;
  error_ = read_at(fd_, bytes, size, first_ + next_, got);
  if (error_ == 0 && got < size) error_ = EIO;
  if (error_ != 0) return false;
  next_ += size;
  return true;
}

CheckedSource::int_type CheckedSource::underflow() {
  if (gptr() < egptr()) return traits_type::to_int_type(*gptr());
  const auto size = static_cast<size_t>(std::min<uint64_t>(buffer_.size(), size_ - next_));
  if (size == 0 || !read(buffer_.data(), size)) return traits_type::eof();
  setg(buffer_.data(), buffer_.data(), buffer_.data() + size);
  return traits_type::to_int_type(*gptr());
}

std::streamsize CheckedSource::xsgetn(char* bytes, std::streamsize size) {
  const std::streamsize buffered = std::min<std::streamsize>(size, egptr() - gptr());
  std::copy(gptr(), gptr() + buffered, bytes);
  setg(eback(), gptr() + buffered, egptr());
  const std::streamsize rest = size - buffered;
  if (rest < static_cast<std::streamsize>(buffer_.size()))
    return buffered + std::streambuf::xsgetn(bytes + buffered, rest);
  const auto direct = static_cast<std::streamsize>(std::min<uint64_t>(static_cast<uint64_t>(rest), size_ - next_));
  if (!read(bytes + buffered, static_cast<size_t>(direct))) return buffered;
  setg(nullptr, nullptr, nullptr);
  return buffered + direct;
}

CheckedSource::pos_type CheckedSource::seekoff(off_type offset, std::ios_base::seekdir from,
                                               std::ios_base::openmode which) {
  if (offset == 0 && from == std::ios_base::cur) return pos_type(static_cast<off_type>(position()));
  off_type base = 0;
  if (from == std::ios_base::cur) base = static_cast<off_type>(position());
  if (from == std::ios_base::end) base = static_cast<off_type>(size_);
  if (offset < -base || offset > static_cast<off_type>(size_) - base) return pos_type(off_type(-1));
  return seekpos(pos_type(base + offset), which);
}

CheckedSource::pos_type CheckedSource::seekpos(pos_type target, std::ios_base::openmode) {
  if (off_type(target) < 0 || off_type(target) > static_cast<off_type>(size_)) return pos_type(off_type(-1));
  next_ = static_cast<uint64_t>(off_type(target));
  setg(nullptr, nullptr, nullptr);
  return target;
}

}  // namespace pliant::elastic
