#include "elastic/snapshot_draft.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "data/digest.hpp"
#include "elastic/checked_stream.hpp"

namespace pliant::elastic {
namespace {

constexpr const char* kDraftExtension = ".draft";
constexpr const char* kAction = "write the snapshot";
constexpr uint64_t kReadAtOnce = uint64_t{1} << 20;

Result<> put(int fd, const std::filesystem::path& file, std::string_view bytes, uint64_t offset) {
  const int error = write_all_at(fd, bytes, offset);
  if (error == 0) return {};
  return tl::unexpected<Error>(file_error(error, kAction, file));
}

Result<uint64_t> checksum_of(int fd, const std::filesystem::path& file, uint64_t end) {
  Crc64 crc;
  std::string piece;
  for (uint64_t offset = 0; offset < end; offset += piece.size()) {
    piece.resize(static_cast<size_t>(std::min(kReadAtOnce, end - offset)));
    size_t got = 0;
    if (const int error = read_at(fd, piece.data(), piece.size(), offset, got); error != 0) {
      return tl::unexpected<Error>(file_error(error, "read back the snapshot", file));
    }
    if (got < piece.size()) {
      return failed(Status::kDataLoss, fmt::format("the draft {} shrank while being written", file.string()));
    }
    crc.process_bytes(piece.data(), piece.size());
  }
  return crc.checksum();
}

// The snapshot that a draft is of: `step-00000020.snapshot`.
std::string snapshot_of(const std::filesystem::path& draft) {
  return draft.stem().stem().string();
}

template <class Stays>
void remove_drafts_unless(const std::filesystem::path& folder, const Stays& stays) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() != kDraftExtension || stays(entry->path())) continue;
    std::error_code ignored;  // one that stays costs room only
    std::filesystem::remove(entry->path(), ignored);
  }
}

// Drafts of later steps stay: other ranks may be writing theirs while this one finishes.
void remove_drafts_up_to(const std::filesystem::path& file) {
  const std::string newest = file.filename().string();
  remove_drafts_unless(file.parent_path(), [&newest](const std::filesystem::path& draft) {
    const std::string name = snapshot_of(draft);
    return name.size() != newest.size() ? name.size() > newest.size() : name > newest;
  });
}

Result<> finish(const std::filesystem::path& draft, const std::filesystem::path& file, const SnapshotHeader& header,
                uint64_t array_bytes, const Spool& rest) {
  Result<FileDescriptor> fd = open_file(draft, O_RDWR, kAction);
  if (!fd) return failed(std::move(fd));
  const std::string head = head_of_snapshot(header);
  struct stat status {};
  const uint64_t behind_arrays = head.size() + array_bytes;
  const uint64_t written = array_bytes == 0 ? 0 : behind_arrays;  // nobody has a part where there is nothing to cut
  if (::fstat(fd->get(), &status) != 0) return tl::unexpected<Error>(file_error(errno, kAction, draft));
  const auto size_now = static_cast<uint64_t>(status.st_size);
  if (size_now < written) {
    return failed(Status::kDataLoss, fmt::format("the draft {} has {} bytes instead of {}: a part of it is missing",
                                                 draft.string(), size_now, written));
  }
  // One who died as it finished has left more.
  if (size_now > written && ::ftruncate(fd->get(), static_cast<off_t>(written)) != 0)
    return tl::unexpected<Error>(file_error(errno, kAction, draft));
  if (Result<> done = put(fd->get(), draft, head, 0); !done) return done;
  if (Result<> done = rest.copy_to(fd->get(), behind_arrays, kAction, draft); !done) return done;
  const std::string end = end_of_snapshot(header, array_bytes + rest.bytes());
  const uint64_t behind_rest = behind_arrays + rest.bytes();
  if (Result<> done = put(fd->get(), draft, end, behind_rest); !done) return done;
  const uint64_t size = behind_rest + end.size();
  const Result<uint64_t> checksum = checksum_of(fd->get(), draft, size);
  if (!checksum) return tl::unexpected<Error>(checksum.error());
  if (Result<> done = put(fd->get(), draft, checksum_of_snapshot(*checksum), size); !done) return done;
  if (::fsync(fd->get()) != 0) return tl::unexpected<Error>(file_error(errno, kAction, draft));
  if (::rename(draft.c_str(), file.c_str()) != 0) {
    return tl::unexpected<Error>(file_error(errno, "rename the snapshot", file));
  }
  remove_drafts_up_to(file);
  return sync_folder_of(file);
}

}  // namespace

std::filesystem::path draft_of(const std::filesystem::path& file, int64_t generation, const std::string& agent) {
  return fmt::format("{}.generation-{}-of-{}{}", file.string(), generation, agent, kDraftExtension);
}

void remove_drafts(const std::filesystem::path& folder) {
  remove_drafts_unless(folder, [](const std::filesystem::path&) { return false; });
}

uint64_t digest_of_cut(std::span<const sharded::OwnedRun> own) {
  data::Digest digest;
  digest.add(own.size());
  for (const sharded::OwnedRun& run : own) {
    digest.add(static_cast<uint64_t>(run.chunks.first));
    digest.add(static_cast<uint64_t>(run.chunks.count));
  }
  return digest.value();
}

Result<SnapshotDraft> SnapshotDraft::open(const std::filesystem::path& draft) {
  std::error_code error;
  std::filesystem::create_directories(draft.parent_path(), error);
  if (error) return tl::unexpected<Error>(file_error(error.value(), "create the folder", draft.parent_path()));
  Result<FileDescriptor> fd = open_file(draft, O_RDWR | O_CREAT, kAction);
  if (!fd) return failed(std::move(fd));
  return SnapshotDraft(draft, std::move(*fd));
}

Result<> SnapshotDraft::write(uint64_t offset, const void* data, uint64_t bytes) {
  return put(fd_.get(), file_, {static_cast<const char*>(data), static_cast<size_t>(bytes)}, offset);
}

Result<> SnapshotDraft::sync() {
  if (::fdatasync(fd_.get()) == 0) return {};
  return tl::unexpected<Error>(file_error(errno, kAction, file_));
}

Result<> finish_draft(const std::filesystem::path& draft, const std::filesystem::path& file,
                      const SnapshotHeader& header, uint64_t array_bytes, const Spool& rest) {
  Result<> done = finish(draft, file, header, array_bytes, rest);
  std::error_code ignored;
  if (!done) std::filesystem::remove(draft, ignored);
  return done;
}

}  // namespace pliant::elastic
