// Snapshots of sharded jobs in parts: each rank writes its own, side by side; an index makes them one snapshot, and any
// rank of any world size reads what it owns.
//
// The order that makes it whole or absent: every rank writes its part (write_part); when all are permanent, one rank
// writes the index into the snapshot's file; remove_unlisted() takes away what others left. Without the file with the
// index, parts are nobody's and may be removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/durable_file.hpp"
#include "base/result.hpp"
#include "sharded/part_file.hpp"
#include "sharded/snapshot_index.hpp"

namespace pliant::sharded {

/// `step-00000020.snapshot.parts`, beside the snapshot's file.
std::filesystem::path parts_folder(const std::filesystem::path& snapshot_file);

/// Elements first..first+count of the shard of one array, in memory that the CPU reads; valid until the next call.
/// Called in ascending order for whole chunks, a few MiB at once. What it throws ends the writing.
using ShardReader = std::function<const float*(int64_t first, int64_t count)>;

/// Writes the shard of `rank` as a new file of `folder`, which is made where it is missing. `arrays`: of each of
/// content.kinds. When this returns, the part is permanent; a name of its own keeps it from what another writer,
/// stopped and late, may still do. On failure nothing is left. kInvalidArgument for content that does not hold together
/// or a rank that is none; kResourceExhausted and others where the disk fails.
Result<SnapshotPart> write_part(const std::filesystem::path& folder, const SnapshotContent& content, int32_t rank,
                                std::span<const ShardReader> arrays);

/// Removes all files of `folder` that are no part of `index`: those of writers that died or came late. Nobody may be
/// writing there. What cannot be removed stays.
void remove_unlisted(const std::filesystem::path& folder, const SnapshotIndex& index);
/// Removes a folder of parts, if it is there, once no index lists them.
void remove_parts(const std::filesystem::path& folder);

/// Reads a snapshot's parts. One thread.
class PartsReader {
 public:
  /// Checks that every part is there, whole by its size, and the one that the index lists. kDataLoss where one is
  /// missing or damaged, kFailedPrecondition where one is of another step, run, rank or model; the message names its
  /// file.
  static Result<PartsReader> open(const std::filesystem::path& folder, SnapshotIndex index);

  [[nodiscard]] const SnapshotIndex& index() const { return index_; }
  [[nodiscard]] const ShardLayout& layout() const { return layout_; }
  /// Elements `range` of the array `kind`, padding included, to `to` in memory that the CPU writes. Every chunk that is
  /// touched is read whole and checked. kDataLoss where it is damaged, kNotFound for another kind, kOutOfRange for a
  /// range that is none. After an error `to` holds anything. O(chunks touched).
  Result<> read(std::string_view kind, FlatRange range, float* to);

 private:
  PartsReader(std::filesystem::path folder, SnapshotIndex index, ShardLayout layout);
  Result<> check_part(size_t rank);
  Result<> open_file_of(size_t rank);
  Result<> read_at_offset(size_t rank, void* to, uint64_t bytes, uint64_t offset);
  Result<> read_chunks(size_t kind, const OwnedRun& run, float* to);
  Result<> read_run(size_t kind, const OwnedRun& run, FlatRange range, float* to);
  [[nodiscard]] std::filesystem::path file_of(size_t rank) const { return folder_ / index_.parts[rank].file; }
  [[nodiscard]] tl::unexpected<Error> unusable(size_t rank, Status status, std::string_view reason) const;

  std::filesystem::path folder_;
  SnapshotIndex index_;
  ShardLayout layout_;
  std::vector<PartFile> files_;
  std::vector<std::vector<uint64_t>> digests_;
  size_t open_rank_ = 0;
  FileDescriptor open_;
  std::vector<float> chunks_;
};

}  // namespace pliant::sharded
