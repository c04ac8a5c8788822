// Snapshot files. Little-endian:
//   8 bytes  magic
//   u32      format version
//   u32      size of the header
//   header:  i64 step; fingerprint, learning-rate state, from format 2 on run id, from format 3 on the layout of the
//            arrays (StateArrays::layout), in format 4 the digest of a sharded model, from format 5 on which of their
//            elements are which parameter (sharded::ParameterIndex): each u64 size and bytes
//   state    the arrays one after the other, then what the program wrote
//   from format 5 on: what the coordinator had learnt, and u64 its size
//   u64      size of the state
//   u64      CRC-64 of everything before
#include "elastic/snapshot.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <istream>
#include <limits>
#include <optional>
#include <ostream>
#include <string_view>
#include <vector>

#include "base/durable_file.hpp"
#include "elastic/checked_stream.hpp"

namespace pliant::elastic {

namespace {

constexpr std::string_view kMagic = "\x89PLIANT\n";
constexpr uint32_t kSnapshotVersion = 5;
constexpr uint32_t kOldestVersion = 1;  // of those that are still read
constexpr size_t kPrefixSize = 16;
constexpr size_t kTrailerSize = 16;
constexpr uint32_t kKeepsCoordinators = 5;  // the first version that does
constexpr std::string_view kPartialSuffix = ".partial";

template <class Integer>
void put(std::string& bytes, Integer value) {
  for (size_t i = 0; i < sizeof(Integer); ++i) bytes += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
}

void put_text(std::string& bytes, std::string_view text) {
  put<uint64_t>(bytes, text.size());
  bytes += text;
}

/// Takes a number off the front of `bytes`; nullopt when they are too few.
template <class Integer>
std::optional<Integer> take(std::string_view& bytes) {
  if (bytes.size() < sizeof(Integer)) return std::nullopt;
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(Integer); ++i) value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  bytes.remove_prefix(sizeof(Integer));
  return static_cast<Integer>(value);
}

std::optional<std::string> take_text(std::string_view& bytes) {
  const std::optional<uint64_t> size = take<uint64_t>(bytes);
  if (!size || *size > bytes.size()) return std::nullopt;
  std::string text(bytes.substr(0, static_cast<size_t>(*size)));
  bytes.remove_prefix(text.size());
  return text;
}

std::string encode(const SnapshotHeader& header) {
  std::string content;
  put<int64_t>(content, header.step);
  put_text(content, header.fingerprint);
  put_text(content, header.lr_state);
  put_text(content, header.run_id);
  put_text(content, header.arrays);
  put_text(content, header.parameters);
  std::string bytes(kMagic);
  put<uint32_t>(bytes, kSnapshotVersion);
  put<uint32_t>(bytes, static_cast<uint32_t>(content.size()));
  return bytes + content;
}

std::optional<SnapshotHeader> decode_header(std::string_view bytes, uint32_t version) {
  const std::optional<int64_t> step = take<int64_t>(bytes);
  std::optional<std::string> fingerprint = take_text(bytes);
  std::optional<std::string> lr_state = take_text(bytes);
  std::optional<std::string> run_id = version < 2 ? std::string() : take_text(bytes);
  std::optional<std::string> arrays = version < 3 ? std::string() : take_text(bytes);
  std::optional<std::string> model = version != 4 ? std::string() : take_text(bytes);
  std::optional<std::string> parameters = version < 5 ? std::string() : take_text(bytes);
  const bool is_whole = step && fingerprint && lr_state && run_id && arrays && model && parameters && bytes.empty();
  if (!is_whole) return std::nullopt;
  SnapshotHeader made{*step, std::move(*fingerprint), std::move(*lr_state), std::move(*run_id), std::move(*arrays)};
  made.parameters = std::move(*parameters);
  made.model = std::move(*model);
  return made;
}

/// Runs the program's part of the work. An error that says what the program threw.
template <class Work>
Result<> run_program(const std::filesystem::path& file, std::string_view verb, Work&& work) {
  try {
    work();
    return {};
  } catch (const Error& error) {
    return tl::unexpected<Error>(error.with_message(fmt::format(
        "the program could not {} its state in the snapshot {}: {}", verb, file.string(), error.message())));
  } catch (const std::exception& error) {
    return failed(Status::kInternal, fmt::format("the program could not {} its state in the snapshot {}: {}", verb,
                                                 file.string(), error.what()));
  } catch (...) {
    return failed(Status::kInternal,
                  fmt::format("the program could not {} its state in the snapshot {}: it threw something "
                              "other than a std::exception",
                              verb, file.string()));
  }
}

/// Removes what dead writers left in the folder. A living one holds its lock.
void remove_leftovers(const std::filesystem::path& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() != kPartialSuffix) continue;
    const FileDescriptor fd(::open(entry->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (fd.get() >= 0 && lock_for_writing(fd.get())) ::unlink(entry->path().c_str());
  }
}

/// A new file that this writer alone holds: nobody else removes, renames or writes it while it is locked. Its name is
/// its own, so that a writer that is stopped in the middle keeps no other from writing the same snapshot.
Result<FileDescriptor> open_partial(const std::filesystem::path& file, std::filesystem::path& partial) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    partial = fmt::format("{}.{}{}", file.string(), random_hex(), kPartialSuffix);
    Result<FileDescriptor> fd = open_file(partial, O_RDWR | O_CREAT | O_EXCL, "write the snapshot");
    if (!fd) return fd;
    // Another writer may have taken it for a leftover before it was locked.
    if (lock_for_writing(fd->get()) && names(partial, fd->get())) return fd;
  }
  return failed(Status::kInternal,
                fmt::format("cannot write the snapshot {}: another program keeps removing its draft", file.string()));
}

Result<> write_content(int fd, const std::filesystem::path& file, const SnapshotHeader& header,
                       const std::function<void(std::ostream&)>& write_state) {
  const auto disk_error = [&file](int error) {
    return tl::unexpected<Error>(file_error(error, "write the snapshot", file));
  };
  CheckedSink sink(fd);
  std::ostream out(&sink);
  const std::string head = encode(header);
  out.write(head.data(), static_cast<std::streamsize>(head.size()));
  const uint64_t state_begin = sink.size();
  Result<> written = run_program(file, "save", [&] { write_state(out); });
  // A full disk explains whatever the program made of it.
  if (sink.error() != 0) return disk_error(sink.error());
  if (!written) return written;
  if (!out) {
    return failed(
        Status::kInternal,
        fmt::format(
            "the program marked the stream as failed while saving its state in the snapshot {}; nothing was kept",
            file.string()));
  }
  out.exceptions(std::ios_base::goodbit);
  const std::string end = end_of_snapshot(header, sink.size() - state_begin);
  sink.sputn(end.data(), static_cast<std::streamsize>(end.size()));
  if (const int error = sink.flush(); error != 0) return disk_error(error);
  std::string checksum;
  put<uint64_t>(checksum, sink.checksum());
  sink.sputn(checksum.data(), static_cast<std::streamsize>(checksum.size()));
  if (const int error = sink.flush(); error != 0) return disk_error(error);
  if (::fsync(fd) != 0) return disk_error(errno);
  return {};
}

Result<> write_checked(const std::filesystem::path& file, const SnapshotHeader& header,
                       const std::function<void(std::ostream&)>& write_state) {
  if (header.fingerprint.size() + header.lr_state.size() + header.run_id.size() + header.arrays.size() +
          header.parameters.size() >
      std::numeric_limits<uint32_t>::max() / 2) {
    return failed(Status::kInvalidArgument, fmt::format("cannot write the snapshot {}: its learning-rate state and the "
                                                        "names of what it holds are larger than 2 GiB",
                                                        file.string()));
  }
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  std::error_code error;
  const bool made = std::filesystem::create_directories(folder, error);
  if (error) return tl::unexpected<Error>(file_error(error.value(), "create the folder", folder));
  if (made) {
    if (Result<> synced = sync_folder_of(folder); !synced) return synced;
  }
  remove_leftovers(folder);
  std::filesystem::path partial;
  Result<FileDescriptor> fd = open_partial(file, partial);
  if (!fd) return failed(std::move(fd));
  Result<> done = write_content(fd->get(), file, header, write_state);
  if (done && ::rename(partial.c_str(), file.c_str()) != 0) {
    done = tl::unexpected<Error>(file_error(errno, "rename the snapshot", file));
  }
  if (!done) {
    ::unlink(partial.c_str());
    return done;
  }
  *fd = FileDescriptor();  // the folder may need the last one that is free
  return sync_folder_of(file);
}

/// The parts of a snapshot file that is open for reading.
class SnapshotReader {
 public:
  SnapshotReader(const std::filesystem::path& file, int fd) : file_(file), fd_(fd) {}

  Result<SnapshotHeader> read(const StateReader& read_state, const std::optional<SnapshotOwner>& owner) {
    if (Result<> sized = measure(); !sized) return failed(std::move(sized));
    if (Result<> whole = verify(); !whole) return failed(std::move(whole));
    std::string content(static_cast<size_t>(header_size_), '\0');
    if (Result<> got = read_bytes(content, kPrefixSize); !got) return failed(std::move(got));
    std::optional<SnapshotHeader> header = decode_header(content, version_);
    if (!header) return damaged("its header is inconsistent");
    header->coordinator.resize(static_cast<size_t>(coordinator_size_));
    const uint64_t behind_state = kPrefixSize + header_size_ + state_size_;
    if (Result<> got = read_bytes(header->coordinator, behind_state); !got) return failed(std::move(got));
    if (owner) {
      if (Result<> same = check_owner(*header, *owner); !same) return failed(std::move(same));
    }
    CheckedSource source(fd_, kPrefixSize + header_size_, state_size_);
    std::istream in(&source);
    Result<> loaded = run_program(file_, "load", [&] { read_state(in, *header); });
    if (source.error() != 0) return tl::unexpected<Error>(file_error(source.error(), "read the snapshot", file_));
    if (!loaded) return failed(std::move(loaded));
    return std::move(*header);
  }

 private:
  /// Reads the sizes and checks that they add up.
  Result<> measure() {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) return tl::unexpected<Error>(file_error(errno, "read the snapshot", file_));
    if (!S_ISREG(status.st_mode)) return damaged("it is not a regular file");
    file_size_ = static_cast<uint64_t>(status.st_size);
    if (file_size_ < kPrefixSize + kTrailerSize) return damaged("it is cut short");
    std::string prefix(kPrefixSize, '\0');
    if (Result<> got = read_bytes(prefix, 0); !got) return got;
    std::string_view rest(prefix);
    if (rest.substr(0, kMagic.size()) != kMagic) return damaged("it does not begin with a snapshot's header");
    rest.remove_prefix(kMagic.size());
    version_ = take<uint32_t>(rest).value_or(0);
    if (version_ < kOldestVersion) return damaged(fmt::format("format version {} does not exist", version_));
    header_size_ = take<uint32_t>(rest).value_or(0);
    std::string trailer(kTrailerSize, '\0');
    if (Result<> got = read_bytes(trailer, file_size_ - kTrailerSize); !got) return got;
    rest = trailer;
    state_size_ = take<uint64_t>(rest).value_or(0);
    checksum_ = take<uint64_t>(rest).value_or(0);
    if (version_ > kSnapshotVersion) return refuse_newer();
    uint64_t content = file_size_ - kPrefixSize - kTrailerSize;
    if (version_ >= kKeepsCoordinators) {
      std::string size(sizeof(uint64_t), '\0');
      if (content < size.size()) return damaged("it is cut short");
      content -= size.size();
      if (Result<> got = read_bytes(size, file_size_ - kTrailerSize - size.size()); !got) return got;
      rest = size;
      coordinator_size_ = take<uint64_t>(rest).value_or(0);
    }
    const bool adds_up = header_size_ <= content && coordinator_size_ <= content - header_size_ &&
                         state_size_ == content - header_size_ - coordinator_size_;
    if (!adds_up) return damaged("it is cut short or its sizes are damaged");
    return {};
  }

  /// Every format ends with the checksum, so that one that is unknown can be told from a damaged one.
  Result<> refuse_newer() {
    if (Result<> whole = verify(); !whole) return whole;
    return failed(Status::kFailedPrecondition,
                  fmt::format("a newer release wrote the snapshot {}: its format version is {}, this release reads {} "
                              "to {}; resume with that release, or remove it to resume from an older snapshot",
                              file_.string(), version_, kOldestVersion, kSnapshotVersion),
                  Origin::kInput);
  }

  Result<> verify() {
    Crc64 crc;
    std::string piece(size_t{256} << 10, '\0');
    const uint64_t end = file_size_ - sizeof(uint64_t);
    for (uint64_t offset = 0; offset < end; offset += piece.size()) {
      piece.resize(static_cast<size_t>(std::min<uint64_t>(piece.size(), end - offset)));
      if (Result<> got = read_bytes(piece, offset); !got) return got;
      crc.process_bytes(piece.data(), piece.size());
    }
    if (crc.checksum() != checksum_) return damaged("its checksum does not match");
    return {};
  }

  Result<> read_bytes(std::string& bytes, uint64_t offset) {
    size_t got = 0;
    if (const int error = read_at(fd_, bytes.data(), bytes.size(), offset, got); error != 0) {
      return tl::unexpected<Error>(file_error(error, "read the snapshot", file_));
    }
    if (got < bytes.size()) return damaged("it shrank while being read");
    return {};
  }

  [[nodiscard]] Result<> check_owner(const SnapshotHeader& header, const SnapshotOwner& owner) const {
    std::string whose;
    if (header.fingerprint != owner.fingerprint) {
      whose = fmt::format("that of a job with other data or options (fingerprint {} instead of {})", header.fingerprint,
                          owner.fingerprint);
    }
    if (!header.run_id.empty() && header.run_id != owner.run_id) {
      whose = fmt::format("that of run {}, not of {}", header.run_id, owner.run_id);
    }
    if (whose.empty()) return {};
    return failed(
        Status::kFailedPrecondition,
        fmt::format("the snapshot {} is {}; restore this run's own file, or remove it to resume from an older snapshot",
                    file_.string(), whose),
        Origin::kInput);
  }

  [[nodiscard]] tl::unexpected<Error> damaged(std::string_view reason) const {
    return failed(Status::kDataLoss,
                  fmt::format("the snapshot {} is damaged: {}; restore it from a copy, or remove it to "
                              "resume from an older snapshot",
                              file_.string(), reason));
  }

  const std::filesystem::path& file_;
  int fd_;
  uint32_t version_ = 0;
  uint64_t file_size_ = 0;
  uint64_t header_size_ = 0;
  uint64_t state_size_ = 0;
  uint64_t coordinator_size_ = 0;
  uint64_t checksum_ = 0;
};

}  // namespace

std::string head_of_snapshot(const SnapshotHeader& header) {
  return encode(header);
}

std::string end_of_snapshot(const SnapshotHeader& header, uint64_t state_bytes) {
  std::string bytes = header.coordinator;
  put<uint64_t>(bytes, header.coordinator.size());
  put<uint64_t>(bytes, state_bytes);
  return bytes;
}

std::string checksum_of_snapshot(uint64_t checksum) {
  std::string bytes;
  put<uint64_t>(bytes, checksum);
  return bytes;
}

std::filesystem::path snapshot_file(int64_t step) {
  return std::filesystem::path("snapshots") / fmt::format("step-{:08}{}", step, kSnapshotExtension);
}

Result<> write_snapshot(const std::filesystem::path& file, const SnapshotHeader& header,
                        const std::function<void(std::ostream&)>& write_state) {
  try {
    return write_checked(file, header, write_state);
  } catch (const std::exception& error) {
    return failed(Status::kResourceExhausted,
                  fmt::format("cannot write the snapshot {}: {}", file.string(), error.what()));
  }
}

Result<SnapshotHeader> read_snapshot(const std::filesystem::path& file, const StateReader& read_state,
                                     const std::optional<SnapshotOwner>& owner) {
  Result<FileDescriptor> fd = open_file(file, O_RDONLY, "open the snapshot");
  if (!fd) return failed(std::move(fd));
  return SnapshotReader(file, fd->get()).read(read_state, owner);
}

}  // namespace pliant::elastic
