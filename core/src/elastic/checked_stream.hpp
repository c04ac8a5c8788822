// Checked streams: stream buffers over a file descriptor that keep a running checksum and never throw.
#pragma once

#include <boost/crc.hpp>
#include <cstdint>
#include <streambuf>
#include <string>
#include <string_view>

namespace pliant::elastic {

/// CRC-64 of the XZ format: finds every burst of up to 64 damaged bits.
using Crc64 = boost::crc_optimal<64, 0x42F0E1EBA9EA3693U, 0xFFFFFFFFFFFFFFFFU, 0xFFFFFFFFFFFFFFFFU, true, true>;

/// Writes a file from its beginning. After a failure it takes no more bytes.
class CheckedSink final : public std::streambuf {
 public:
  /// `fd` outlives this.
  explicit CheckedSink(int fd);
  /// Writes what is buffered. 0, or the errno value of the first failure.
  [[nodiscard]] int flush();
  /// Bytes taken so far.
  [[nodiscard]] uint64_t size() const;
  /// Of all bytes up to the last flush.
  [[nodiscard]] uint64_t checksum() const { return crc_.checksum(); }
  [[nodiscard]] int error() const { return error_; }

 protected:
  int_type overflow(int_type next) override;
  std::streamsize xsputn(const char* bytes, std::streamsize size) override;
  int sync() override;
  pos_type seekoff(off_type offset, std::ios_base::seekdir from, std::ios_base::openmode which) override;

 private:
  int write(std::string_view bytes);

  int fd_;
  int error_ = 0;
  uint64_t written_ = 0;
  Crc64 crc_;
  std::string buffer_;
};

/// Reads bytes first..first+size of a file as a stream of their own, seekable.
class CheckedSource final : public std::streambuf {
 public:
  /// `fd` outlives this.
  CheckedSource(int fd, uint64_t first, uint64_t size);
  /// The errno value of the first failure; EIO when the file has become shorter. 0 for none.
  [[nodiscard]] int error() const { return error_; }

 protected:
  int_type underflow() override;
  std::streamsize xsgetn(char* bytes, std::streamsize size) override;
  pos_type seekoff(off_type offset, std::ios_base::seekdir from, std::ios_base::openmode which) override;
  pos_type seekpos(pos_type position, std::ios_base::openmode which) override;

 private:
  [[nodiscard]] uint64_t position() const { return next_ - static_cast<uint64_t>(egptr() - gptr()); }
  bool read(char* bytes, size_t size);

  int fd_;
  int error_ = 0;
  uint64_t first_;
  uint64_t size_;
  uint64_t next_ = 0;  ///< position behind what is buffered
  std::string buffer_;
};

}  // namespace pliant::elastic
