// Writing and reading lengths files.
#include "data/lengths_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <boost/crc.hpp>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <system_error>

#include "data/input_file.hpp"

namespace pliant::data {

namespace {

static_assert(std::endian::native == std::endian::little, "lengths files are written as memory has them");

constexpr std::array<char, 8> kLengthsMagic{'P', 'L', 'I', 'A', 'N', 'T', 'D', 'S'};
constexpr uint32_t kVersion = 4;
constexpr uint32_t kWithoutRows = 3;     // what is written where there are neither rows nor costs
constexpr uint32_t kWithoutContent = 2;  // the version before, which is still read
constexpr size_t kHeaderWithoutContent = 32;
constexpr size_t kHeaderWithoutRows = 40;

struct Header {
  std::array<char, 8> magic = kLengthsMagic;
  uint32_t version = kVersion;
  uint32_t reserved = 0;
  uint64_t lengths = 0;
  uint64_t loss_tokens = 0;
  uint64_t content = 0;      ///< Dataset::content; since version 3
  uint64_t row_offsets = 0;  ///< as the next two: numbers of 64 bits that follow; since version 4
  uint64_t row_ids = 0;
  uint64_t costs = 0;
  [[nodiscard]] size_t size() const {
    if (version == kWithoutContent) return kHeaderWithoutContent;
    return version == kWithoutRows ? kHeaderWithoutRows : sizeof(Header);
  }
  [[nodiscard]] bool has_rows() const { return version == kVersion; }
  [[nodiscard]] uint64_t counts() const { return lengths + loss_tokens; }
  /// So that numbers of 64 bits lie where memory wants them.
  [[nodiscard]] uint64_t padding() const { return has_rows() ? counts() % 2 * sizeof(int32_t) : 0; }
  [[nodiscard]] uint64_t numbers() const { return row_offsets + row_ids + costs; }
};
static_assert(sizeof(Header) == 64);

Error system_error(std::string_view action, const std::filesystem::path& file, int number) {
  const auto status = number == ENOENT                                           ? Status::kNotFound
                      : number == ENOSPC || number == EDQUOT || number == EMFILE ? Status::kResourceExhausted
                                                                                 : Status::kFailedPrecondition;
  return {status, fmt::format("cannot {} {}: {}", action, file.string(), std::generic_category().message(number))};
}

/// A file being written beside `file`, under a name that nobody else has; that name is gone when the draft is.
class Draft {
 public:
  explicit Draft(const std::filesystem::path& file) {
    constexpr int kTries = 1000;  // other threads of this process, and drafts of killed ones, have names too
    for (int i = 0; i < kTries && fd_ < 0; ++i) {
      name_ = fmt::format("{}.part-{}-{}", file.string(), ::getpid(), i);
      fd_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);  // less the umask
      if (fd_ < 0 && errno != EEXIST && errno != EINTR) break;
    }
    if (fd_ < 0) errno_ = errno;
  }
  ~Draft() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(name_.c_str());
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  void append(const void* bytes, size_t size) {
    crc_.process_bytes(bytes, size);
    append_raw(bytes, size);
  }
  /// Adds the check sum and puts everything on disk. 0 or an errno value.
  [[nodiscard]] int finish() {
    const uint32_t sum = crc_.checksum();
    append_raw(&sum, sizeof(sum));
    if (errno_ == 0 && ::fsync(fd_) != 0) errno_ = errno;
    return errno_;
  }
  /// Gives the file its final name. 0, EEXIST when that is taken, or another errno value.
  [[nodiscard]] int publish(const std::filesystem::path& file) const {
    if (::link(name_.c_str(), file.c_str()) == 0) return 0;
    const bool no_links = errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS || errno == EMLINK;
    if (!no_links) return errno;
    return ::rename(name_.c_str(), file.c_str()) == 0 ? 0 : errno;
  }
  [[nodiscard]] const std::filesystem::path& name() const { return name_; }

 private:
  void append_raw(const void* bytes, size_t size) {
    const char* from = static_cast<const char*>(bytes);
    while (errno_ == 0 && size > 0) {
      const ssize_t written = ::write(fd_, from, size);
      if (written < 0) {
        if (errno != EINTR) errno_ = errno;
        continue;
      }
      from += written;
      size -= static_cast<size_t>(written);
    }
  }

  std::filesystem::path name_;
  int fd_ = -1;
  int errno_ = 0;
  boost::crc_32_type crc_;
};

void append(Draft& draft, const Lengths& values) {
  draft.append(values.data(), values.size() * sizeof(int32_t));
}

void append(Draft& draft, const Integers& values) {
  draft.append(values.data(), values.size() * sizeof(int64_t));
}

/// What differs in words, where the data set itself is the same.
std::string other_rows(const Dataset& there, const Dataset& dataset) {
  const bool same_rows = there.rows.offsets == dataset.rows.offsets && there.rows.ids == dataset.rows.ids;
  if (same_rows && there.costs == dataset.costs) return {};
  return same_rows ? "costs" : "rows";
}

Result<> same_as_there(const std::filesystem::path& file, const Dataset& dataset) {
  Result<Dataset> there = read_dataset(file);
  if (!there) return failed(std::move(there));
  const bool other_content = there->content != 0 && dataset.content != 0 && there->content != dataset.content;
  if (there->lengths == dataset.lengths && there->loss_tokens == dataset.loss_tokens && !other_content) {
    const std::string other = other_rows(*there, dataset);
    if (other.empty()) return {};
    return failed(Status::kFailedPrecondition,
                  fmt::format("the given {0} have changed: this job began with others, in {1}. All workers, also of a "
                              "resumed job, must give the same {0}: restore them, or start a new run",
                              other, file.string()),
                  Origin::kInput);
  }
  return failed(
      Status::kFailedPrecondition,
      fmt::format(
          "{} has changed: it has {} sequences, but this job began with other data ({}, in {}). All workers, also of a "
          "resumed job, must load the same data in the same order: restore the data, or start a new run",
          dataset.source.empty() ? "the data set" : dataset.source, dataset.lengths.size(), there->lengths.size(),
          file.string()),
      Origin::kInput);
}

/// The header, checked against the size of the file.
Result<Header> checked_header(const std::filesystem::path& file, std::string_view bytes) {
  const auto damaged = [&](const std::string& how) {
    return failed(Status::kDataLoss,
                  fmt::format("{} is damaged: {}; remove it, and the job writes it again", file.string(), how));
  };
  Header header;
  if (bytes.size() >= sizeof(header.magic) &&
      std::memcmp(bytes.data(), kLengthsMagic.data(), kLengthsMagic.size()) != 0) {
    return failed(Status::kDataLoss,
                  fmt::format("{} is not a lengths file: it does not start with PLIANTDS", file.string()));
  }
  const auto too_short = [&] { return damaged(fmt::format("{} bytes are fewer than its header has", bytes.size())); };
  if (bytes.size() < kHeaderWithoutContent) return too_short();
  std::memcpy(static_cast<void*>(&header), bytes.data(), kHeaderWithoutContent);
  if (header.version < kWithoutContent || header.version > kVersion) {
    return failed(Status::kUnimplemented, fmt::format("{} has format version {}; this Pliant reads versions {} to {}",
                                                      file.string(), header.version, kWithoutContent, kVersion));
  }
  if (bytes.size() < header.size()) return too_short();
  std::memcpy(&header, bytes.data(), header.size());
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max() / 32;
  if (header.lengths > kMost / 4 || (header.loss_tokens != 0 && header.loss_tokens != header.lengths)) {
    return damaged(fmt::format("it declares {} lengths and {} loss token counts", header.lengths, header.loss_tokens));
  }
  const bool has_costs = header.costs == 0 || header.costs == header.lengths;
  if (header.row_offsets > kMost / 4 || header.row_ids > kMost / 4 || !has_costs) {
    return damaged(fmt::format("it declares {} offsets and {} ids of rows, and {} costs", header.row_offsets,
                               header.row_ids, header.costs));
  }
  const uint64_t expected = header.size() + header.counts() * sizeof(int32_t) + header.padding() +
                            header.numbers() * sizeof(int64_t) + sizeof(uint32_t);
  if (bytes.size() != expected) {
    return damaged(fmt::format("{} sequences need {} bytes, it has {}", header.lengths, expected, bytes.size()));
  }
  boost::crc_32_type crc;
  crc.process_bytes(bytes.data(), bytes.size() - sizeof(uint32_t));
  uint32_t stored = 0;
  std::memcpy(&stored, bytes.data() + bytes.size() - sizeof(stored), sizeof(stored));
  if (stored != crc.checksum()) return damaged("its checksum does not match its contents");
  return header;
}

}  // namespace

Result<> write_dataset_once(const std::filesystem::path& file, const Dataset& dataset) {
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored)) return same_as_there(file, dataset);
  Draft draft(file);
  Header header;
  header.lengths = dataset.lengths.size();
  header.loss_tokens = dataset.loss_tokens.size();
  header.content = dataset.content;
  header.row_offsets = dataset.rows.offsets.size();
  header.row_ids = dataset.rows.ids.size();
  header.costs = dataset.costs.size();
  if (header.numbers() == 0) header.version = kWithoutRows;
  draft.append(&header, header.size());
  append(draft, dataset.lengths);
  append(draft, dataset.loss_tokens);
  constexpr std::array<char, sizeof(int32_t)> kPadding{};
  draft.append(kPadding.data(), header.padding());
  append(draft, dataset.rows.offsets);
  append(draft, dataset.rows.ids);
  append(draft, dataset.costs);
  if (const int number = draft.finish(); number != 0) {
    return tl::unexpected<Error>(system_error("write", draft.name(), number));
  }
  const int number = draft.publish(file);
  if (number == EEXIST) return same_as_there(file, dataset);
  if (number != 0) return tl::unexpected<Error>(system_error("create", file, number));
  return {};
}

Result<Dataset> read_dataset(const std::filesystem::path& file) {
  auto read = read_whole(file);
  if (!read) return failed(std::move(read));
  const std::string_view bytes = (*read)->bytes();
  const Result<Header> header = checked_header(file, bytes);
  if (!header) return tl::unexpected<Error>(header.error());
  const auto values = [&](size_t first, size_t count) {
    const auto* start = reinterpret_cast<const int32_t*>(bytes.data() + header->size()) + first;
    return count == 0 ? Lengths() : Lengths(std::span(start, count), *read);
  };
  Dataset dataset{values(0, header->lengths), values(header->lengths, header->loss_tokens), {}, header->content};
  if (!header->has_rows()) return dataset;
  const size_t start = header->size() + header->counts() * sizeof(int32_t) + header->padding();
  const auto integers = [&](uint64_t first, uint64_t count) {
    const auto* from = reinterpret_cast<const int64_t*>(bytes.data() + start) + first;
    return count == 0 ? Integers() : Integers(std::span(from, count), *read);
  };
  dataset.rows.offsets = integers(0, header->row_offsets);
  dataset.rows.ids = integers(header->row_offsets, header->row_ids);
  dataset.costs = integers(header->row_offsets + header->row_ids, header->costs);
  return dataset;
}

}  // namespace pliant::data
