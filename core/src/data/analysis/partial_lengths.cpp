// PartialLengths over pread and pwrite; the writer's lock of the file keeps other processes out.
#include "data/analysis/partial_lengths.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <boost/crc.hpp>
#include <cstring>

#include "base/whole_file.hpp"

namespace pliant::data {

namespace {

static_assert(std::endian::native == std::endian::little, "partial lengths are written as memory has them");

constexpr std::array<char, 8> kPartialMagic{'P', 'L', 'I', 'A', 'N', 'T', 'L', 'P'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kMark = 0x6b6e756863206e61U;

struct Header {
  std::array<char, 8> magic = kPartialMagic;
  uint32_t version = kVersion;
  uint32_t identity_size = 0;
  uint64_t count = 0;
  uint32_t checksum = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(Header) == 32);

struct ChunkHeader {
  uint64_t mark = 0;
  uint32_t checksum = 0;
  uint32_t size = 0;
};
static_assert(sizeof(ChunkHeader) == 16);

constexpr uint64_t kPlace = sizeof(ChunkHeader) + PartialLengths::kChunk * sizeof(int32_t);

uint32_t checksum_of(std::span<const int32_t> lengths) {
  boost::crc_32_type crc;
  crc.process_bytes(lengths.data(), lengths.size_bytes());
  return crc.checksum();
}

uint32_t checksum_of(const Header& header, std::string_view identity) {
  boost::crc_32_type crc;
  crc.process_bytes(&header.count, sizeof(header.count));
  crc.process_bytes(identity.data(), identity.size());
  return crc.checksum();
}

std::string header_of(const Measure& measure) {
  Header header;
  header.identity_size = static_cast<uint32_t>(measure.identity.size());
  header.count = static_cast<uint64_t>(measure.count);
  header.checksum = checksum_of(header, measure.identity);
  std::string bytes(sizeof(header), '\0');
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes + measure.identity;
}

/// False when the name now stands for another file than `fd`, or for none.
bool still_named(int fd, const std::filesystem::path& file) {
  struct stat open {};
  struct stat named {};
  return ::fstat(fd, &open) == 0 && ::stat(file.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

/// Opens `file` with its lock; nullopt when it vanished on the way.
Result<std::optional<FileDescriptor>> open_locked(const std::filesystem::path& file) {
  Result<FileDescriptor> fd = open_file(file, O_RDWR, "open");
  if (!fd && fd.error().status() == Status::kNotFound) return std::nullopt;
  if (!fd) return failed(fd.error().status(), fd.error().message(), Origin::kInput);
  if (!lock_for_writing(fd->get())) {
    return failed(Status::kFailedPrecondition,
                  fmt::format("another process is measuring lengths into {}; wait until it ends, then start again: its "
                              "measurements are kept",
                              file.string()),
                  Origin::kInput);
  }
  if (!still_named(fd->get(), file)) return std::nullopt;
  return std::optional(std::move(*fd));
}

}  // namespace

PartialLengths::PartialLengths(std::filesystem::path file, FileDescriptor fd, const Measure& measure)
    : file_(std::move(file)),
      fd_(std::move(fd)),
      count_(measure.count),
      header_size_(sizeof(Header) + measure.identity.size()) {}

Result<PartialLengths> PartialLengths::open(const std::filesystem::path& file, const Measure& measure) {
  for (;;) {
    Result<std::optional<FileDescriptor>> fd = open_locked(file);
    if (!fd) return failed(std::move(fd));
    if (*fd) {
      PartialLengths opened(file, std::move(**fd), measure);
      if (Result<> checked = opened.check_header(measure); !checked) return failed(std::move(checked));
      return opened;
    }
    // Whole or not at all, so that a run which is killed here leaves no header that looks damaged.
    const Result<> created = write_whole(file, header_of(measure), false);
    std::error_code ignored;
    if (!created && !std::filesystem::exists(file, ignored)) return tl::unexpected<Error>(created.error());
  }
}

Result<> PartialLengths::check_header(const Measure& measure) const {
  const auto damaged = [&](std::string_view how) {
    return failed(Status::kDataLoss, fmt::format("{} {}; remove it to measure from the start", file_.string(), how));
  };
  Header header;
  size_t got = 0;
  std::array<char, sizeof(Header)> bytes{};
  if (const int fault = read_at(fd_.get(), bytes.data(), bytes.size(), 0, got); fault != 0) {
    return tl::unexpected<Error>(file_error(fault, "read", file_));
  }
  if (!std::equal(kPartialMagic.begin(), kPartialMagic.end(), bytes.begin())) {
    return damaged("was not written by an analysis of lengths: it does not start with PLIANTLP");
  }
  if (got < bytes.size()) return damaged("is damaged: it ends within its header");
  std::memcpy(&header, bytes.data(), bytes.size());
  if (header.version != kVersion) {
    return failed(Status::kUnimplemented,
                  fmt::format("{} has format version {}; this Pliant reads version {}; remove it to measure from the "
                              "start",
                              file_.string(), header.version, kVersion));
  }
  if (header.identity_size > kLongestIdentity) return damaged("is damaged: it has no identity");
  std::string identity(header.identity_size, '\0');
  if (const int fault = read_at(fd_.get(), identity.data(), identity.size(), sizeof(header), got); fault != 0) {
    return tl::unexpected<Error>(file_error(fault, "read", file_));
  }
  if (got < identity.size() || header.checksum != checksum_of(header, identity)) {
    return damaged("is damaged: the checksum of its header does not match");
  }
  return check_measured_as(file_, {static_cast<int64_t>(header.count), identity}, measure);
}

uint64_t PartialLengths::place(int64_t chunk) const {
  return header_size_ + static_cast<uint64_t>(chunk) * kPlace;
}

Result<std::optional<std::vector<int32_t>>> PartialLengths::read(int64_t chunk) const {
  std::array<char, kPlace> bytes{};
  size_t got = 0;
  if (const int fault = read_at(fd_.get(), bytes.data(), bytes.size(), place(chunk), got); fault != 0) {
    return tl::unexpected<Error>(file_error(fault, "read", file_));
  }
  ChunkHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const auto expected = static_cast<size_t>(size(chunk));
  if (header.mark != (kMark ^ static_cast<uint64_t>(chunk)) || header.size != expected) return std::nullopt;
  std::vector<int32_t> lengths(expected);
  std::memcpy(lengths.data(), bytes.data() + sizeof(header), expected * sizeof(int32_t));
  if (checksum_of(lengths) != header.checksum) return std::nullopt;
  return lengths;
}

Result<> PartialLengths::write(int64_t chunk, std::span<const int32_t> lengths) const {
  const ChunkHeader header{kMark ^ static_cast<uint64_t>(chunk), checksum_of(lengths),
                           static_cast<uint32_t>(lengths.size())};
  std::string bytes(sizeof(header) + lengths.size_bytes(), '\0');
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::memcpy(bytes.data() + sizeof(header), lengths.data(), lengths.size_bytes());
  const int fault = write_all_at(fd_.get(), bytes, place(chunk));
  if (fault != 0) return tl::unexpected<Error>(file_error(fault, "write", file_));
  return {};
}

void PartialLengths::remove() {
  ::unlink(file_.c_str());
}

}  // namespace pliant::data
