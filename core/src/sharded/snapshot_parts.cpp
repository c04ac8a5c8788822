// Parts of snapshots: written as whole files, read by chunks that are checked one by one.
#include "sharded/snapshot_parts.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>
#include <system_error>

#include "base/whole_file.hpp"
#include "sharded/chunk_digest.hpp"

namespace pliant::sharded {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kElementsAtOnce = int64_t{1} << 20;  // 4 MiB

/// Chunks that are read or written at once.
int32_t chunks_at_once(const ShardLayout& layout) {
  return static_cast<int32_t>(std::max<int64_t>(1, kElementsAtOnce / layout.chunk_elements()));
}

/// `run`, cut into what is read or written at once.
template <class Take>
bool each_batch(const ShardLayout& layout, const OwnedRun& run, const Take& take) {
  const int32_t most = chunks_at_once(layout);
  for (int32_t done = 0; done < run.chunks.count; done += most) {
    const int32_t now = std::min(most, run.chunks.count - done);
    if (!take(OwnedRun{{advanced(run.chunks.first, done), now}, run.owner, run.slot + done})) return false;
  }
  return true;
}

std::string_view bytes_of_floats(const float* elements, int64_t count) {
  return {reinterpret_cast<const char*>(elements), static_cast<size_t>(count) * sizeof(float)};
}

/// Writes the arrays and takes the digests of their chunks. 0 or an errno value.
int fill_part(int fd, const PartFile& part, const SnapshotContent& content, const ShardLayout& layout, int32_t rank,
              std::span<const ShardReader> arrays, std::vector<uint64_t>& digests) {
  int error = write_all_at(fd, part.head(), 0);
  const int64_t elements = layout.chunk_elements();
  for (size_t kind = 0; kind < arrays.size() && error == 0; ++kind) {
    for (const OwnedRun& run : content.ownership.runs_of(rank)) {
      each_batch(layout, run, [&](const OwnedRun& batch) {
        const int64_t count = batch.chunks.count * elements;
        const float* from = arrays[kind](batch.slot * elements, count);
        for (int32_t i = 0; i < batch.chunks.count; ++i) {
          digests.push_back(digest_of_chunk(layout, advanced(batch.chunks.first, i), from + i * elements));
        }
        error = write_all_at(fd, bytes_of_floats(from, count), part.offset_of(kind, batch.slot));
        return error == 0;
      });
      if (error != 0) break;
    }
  }
  if (error != 0) return error;
  std::vector<uint64_t> table = digests;
  table.push_back(part.digest(digests));
  return write_all_at(fd, {reinterpret_cast<const char*>(table.data()), table.size() * sizeof(uint64_t)},
                      part.digests_offset());
}

Result<> make_folder(const fs::path& folder) {
  std::error_code error;
  const bool made = fs::create_directories(folder, error);
  if (error) return tl::unexpected<Error>(file_error(error.value(), "create the folder", folder));
  return made ? sync_folder_of(folder) : Result<>();
}

}  // namespace

fs::path parts_folder(const fs::path& snapshot_file) {
  return snapshot_file.string() + ".parts";
}

Result<SnapshotPart> write_part(const fs::path& folder, const SnapshotContent& content, int32_t rank,
                                std::span<const ShardReader> arrays) {
  const auto refused = [&](std::string_view reason) {
    return failed(Status::kInvalidArgument,
                  fmt::format("cannot write a part of a snapshot to {}: {}", folder.string(), reason));
  };
  const Result<ShardLayout> layout = content.checked_layout();
  if (!layout) return refused(layout.error().message());
  const int32_t ranks = content.ownership.world_size();
  if (rank < 0 || rank >= ranks) return refused(fmt::format("rank {} is none of {}", rank, ranks));
  if (arrays.size() != content.kinds.size()) {
    return refused(fmt::format("{} arrays came for {} names", arrays.size(), content.kinds.size()));
  }
  if (Result<> made = make_folder(folder); !made) return failed(std::move(made));
  const PartFile file(content, *layout, rank);
  SnapshotPart part;
  part.file = fmt::format("rank-{}-of-{}.{}", rank, ranks, random_hex());
  part.bytes = file.file_bytes();
  WholeFile contents;
  contents.fill = [&](int fd) {
    std::vector<uint64_t> digests;
    digests.reserve(static_cast<size_t>(file.digests()));
    const int error = fill_part(fd, file, content, *layout, rank, arrays, digests);
    part.digest = file.digest(digests);
    return error;
  };
  if (Result<> written = write_whole(folder / part.file, contents, false); !written) return failed(std::move(written));
  return part;
}

void remove_unlisted(const fs::path& folder, const SnapshotIndex& index) {
  std::set<std::string> listed;
  for (const SnapshotPart& part : index.parts) listed.insert(part.file);
  std::error_code ignored;
  std::vector<fs::path> others;
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end; entry.increment(ignored)) {
    if (listed.count(entry->path().filename().string()) == 0) others.push_back(entry->path());
  }
  for (const fs::path& other : others) fs::remove(other, ignored);
}

void remove_parts(const fs::path& folder) {
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

PartsReader::PartsReader(fs::path folder, SnapshotIndex index, ShardLayout layout)
    : folder_(std::move(folder)),
      index_(std::move(index)),
      layout_(std::move(layout)),
      open_rank_(index_.parts.size()) {
  for (size_t rank = 0; rank < index_.parts.size(); ++rank) {
    files_.emplace_back(index_.content, layout_, static_cast<int32_t>(rank));
  }
  digests_.resize(index_.parts.size());
}

Result<PartsReader> PartsReader::open(const fs::path& folder, SnapshotIndex index) {
  Result<ShardLayout> layout = index.content.checked_layout();
  if (!layout || index.parts.size() != static_cast<size_t>(index.content.ownership.world_size())) {
    return failed(Status::kDataLoss,
                  fmt::format("the index of the parts in {} does not hold together", folder.string()));
  }
  PartsReader reader(folder, std::move(index), std::move(*layout));
  for (size_t rank = 0; rank < reader.files_.size(); ++rank) {
    if (Result<> sound = reader.check_part(rank); !sound) return failed(std::move(sound));
  }
  return reader;
}

tl::unexpected<Error> PartsReader::unusable(size_t rank, Status status, std::string_view reason) const {
  return failed(status, fmt::format("the snapshot's part {} cannot be used: {}; restore it from a copy, or remove the "
                                    "snapshot to resume from an older one",
                                    file_of(rank).string(), reason));
}

Result<> PartsReader::open_file_of(size_t rank) {
  if (open_rank_ == rank) return {};
  open_rank_ = files_.size();
  Result<FileDescriptor> fd = open_file(file_of(rank), O_RDONLY, "read the snapshot's part");
  if (!fd && fd.error().status() == Status::kNotFound) return unusable(rank, Status::kDataLoss, "it is missing");
  if (!fd) return failed(std::move(fd));
  open_ = std::move(*fd);
  open_rank_ = rank;
  return {};
}

Result<> PartsReader::read_at_offset(size_t rank, void* to, uint64_t bytes, uint64_t offset) {
  if (Result<> opened = open_file_of(rank); !opened) return opened;
  size_t got = 0;
  if (const int error = pliant::read_at(open_.get(), static_cast<char*>(to), static_cast<size_t>(bytes), offset, got);
      error != 0) {
    return tl::unexpected<Error>(file_error(error, "read the snapshot's part", file_of(rank)));
  }
  if (got < bytes) return unusable(rank, Status::kDataLoss, "it is cut short");
  return {};
}

Result<> PartsReader::check_part(size_t rank) {
  const PartFile& file = files_[rank];
  const SnapshotPart& part = index_.parts[rank];
  std::string head(PartFile::kPrefixBytes, '\0');
  if (Result<> got = read_at_offset(rank, head.data(), head.size(), 0); !got) return got;
  const uint64_t head_bytes = PartFile::head_bytes(head);
  if (head_bytes == 0) return unusable(rank, Status::kDataLoss, "it does not begin like a part");
  head.resize(static_cast<size_t>(head_bytes));
  if (Result<> got = read_at_offset(rank, head.data(), head_bytes, 0); !got) return got;
  if (const Result<> same = file.check(head); !same) {
    return unusable(rank, same.error().status(), same.error().message());
  }
  struct stat status {};
  if (::fstat(open_.get(), &status) != 0) {
    return tl::unexpected<Error>(file_error(errno, "read the snapshot's part", file_of(rank)));
  }
  const auto bytes = static_cast<uint64_t>(status.st_size);
  if (bytes != file.file_bytes() || part.bytes != file.file_bytes()) {
    return unusable(rank, Status::kDataLoss,
                    fmt::format("it has {} bytes, of {}{}", bytes, file.file_bytes(),
                                bytes < file.file_bytes() ? "; it is cut short" : ""));
  }
  std::vector<uint64_t> table(static_cast<size_t>(file.digests()) + 1);
  if (Result<> got = read_at_offset(rank, table.data(), table.size() * sizeof(uint64_t), file.digests_offset()); !got) {
    return got;
  }
  const uint64_t own = table.back();
  table.pop_back();
  if (file.digest(table) != own) return unusable(rank, Status::kDataLoss, "its digests do not match");
  if (part.digest != own) {
    return unusable(rank, Status::kDataLoss, "it holds other numbers than the part that the snapshot lists");
  }
  digests_[rank] = std::move(table);
  return {};
}

Result<> PartsReader::read(std::string_view kind, FlatRange range, float* to) {
  const auto& kinds = index_.content.kinds;
  const auto found = std::find(kinds.begin(), kinds.end(), kind);
  if (found == kinds.end()) {
    return failed(Status::kNotFound, fmt::format("the snapshot in {} has no array '{}'", folder_.string(), kind));
  }
  if (range.first < 0 || range.count < 0 || range.first > layout_.flat_elements() ||
      range.count > layout_.flat_elements() - range.first) {
    return failed(Status::kOutOfRange, fmt::format("elements {} and {} more are not in a snapshot of {}", range.first,
                                                   range.count, layout_.flat_elements()));
  }
  const auto place = static_cast<size_t>(found - kinds.begin());
  for (const OwnedRun& run : index_.content.ownership.runs_in(layout_.chunks_of(range))) {
    if (Result<> done = read_run(place, run, range, to); !done) return done;
  }
  return {};
}

Result<> PartsReader::read_run(size_t kind, const OwnedRun& run, FlatRange range, float* to) {
  Result<> done;
  each_batch(layout_, run, [&](const OwnedRun& batch) {
    const FlatRange whole = layout_.range_of(batch.chunks);
    if (whole.first >= range.first && whole.end() <= range.end()) {
      done = read_chunks(kind, batch, to + (whole.first - range.first));
      return done.has_value();
    }
    chunks_.resize(static_cast<size_t>(whole.count));
    done = read_chunks(kind, batch, chunks_.data());
    const int64_t first = std::max(whole.first, range.first);
    const int64_t end = std::min(whole.end(), range.end());
    if (done) std::copy_n(chunks_.data() + (first - whole.first), end - first, to + (first - range.first));
    return done.has_value();
  });
  return done;
}

Result<> PartsReader::read_chunks(size_t kind, const OwnedRun& run, float* to) {
  const auto rank = static_cast<size_t>(run.owner);
  const PartFile& file = files_[rank];
  const int64_t elements = layout_.chunk_elements();
  const auto bytes = static_cast<uint64_t>(run.chunks.count * elements) * sizeof(float);
  if (Result<> got = read_at_offset(rank, to, bytes, file.offset_of(kind, run.slot)); !got) return got;
  for (int32_t i = 0; i < run.chunks.count; ++i) {
    const ChunkId chunk = advanced(run.chunks.first, i);
    const uint64_t expected = digests_[rank][static_cast<size_t>(file.place_of(kind, run.slot + i))];
    if (digest_of_chunk(layout_, chunk, to + i * elements) != expected) {
      return unusable(
          rank, Status::kDataLoss,
          fmt::format("chunk {} of its array '{}' is damaged", index_of(chunk), index_.content.kinds[kind]));
    }
  }
  return {};
}

}  // namespace pliant::sharded
