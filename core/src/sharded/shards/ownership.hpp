// Ownership: the map from chunks to the ranks that own them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "sharded/shards/layout.hpp"

namespace pliant::sharded {

/// Chunks side by side with one owner. A rank's shard holds its chunks in ascending order; `slot` is the place of the
/// first of them there, in chunks.
struct OwnedRun {
  ChunkRange chunks;
  int32_t owner = 0;
  int32_t slot = 0;
  friend bool operator==(const OwnedRun&, const OwnedRun&) = default;
};

/// Elements side by side in the flat space and in their owner's shard: `range` of the flat space lies in the shard of
/// `owner` from element `shard_offset` on.
struct ShardPiece {
  FlatRange range;
  int32_t owner = 0;
  int64_t shard_offset = 0;
  friend bool operator==(const ShardPiece&, const ShardPiece&) = default;
};

/// Every chunk has exactly one owner. Kept as runs, so its size is that of its runs: at first as many for each segment
/// as there are ranks. Changes cut them further, each segment's into as many again, until there are kMostRuns
/// (moves.hpp). Immutable.
class Ownership {
 public:
  static constexpr int32_t kMostRanks = 1 << 20;

  /// No chunks, one rank.
  Ownership() = default;
  /// Each segment, which ends at `ends` (segments_of(); none: all chunks are one), is cut into one run for each rank,
  /// in their order. What does not go into equal runs goes to the ranks in turn, the last one first, one chunk each,
  /// from segment to segment: no two differ by more than a chunk in all. O(segments * ranks). kInvalidArgument unless 0
  /// <= chunks <= FlatLayout::kMostChunks, 1 <= world_size <= kMostRanks, 0 <= epoch, and the ends ascend to `chunks`.
  static Result<Ownership> deal(int32_t chunks, int32_t world_size, int64_t epoch = 0,
                                std::span<const int32_t> ends = {});
  /// Owners of chunks 0, 1, ... in runs of (count, owner); neighbours of one owner are put together. kInvalidArgument
  /// for counts below 1 in sum above FlatLayout::kMostChunks, owners that are no rank, and as deal().
  struct Run {
    int32_t count = 0;
    int32_t owner = 0;
  };
  static Result<Ownership> of_runs(std::span<const Run> runs, int32_t world_size, int64_t epoch);

  /// Rises with every change of a job.
  [[nodiscard]] int64_t epoch() const noexcept { return epoch_; }
  [[nodiscard]] int32_t chunks() const noexcept { return chunks_; }
  [[nodiscard]] int32_t world_size() const noexcept { return static_cast<int32_t>(held_.size()); }

  /// O(log(runs)). Chunks and ranks must be of this map, as in all below.
  [[nodiscard]] int32_t owner_of(ChunkId chunk) const { return runs_[run_at(chunk)].owner; }
  /// Place of a chunk in its owner's shard, in chunks. O(log(runs)).
  [[nodiscard]] int32_t slot_of(ChunkId chunk) const;
  /// How many chunks a rank owns. O(1).
  [[nodiscard]] int32_t chunks_of(int32_t rank) const { return held_[static_cast<size_t>(rank)]; }

  /// All runs, ascending; neighbours have different owners.
  [[nodiscard]] const std::vector<OwnedRun>& runs() const noexcept { return runs_; }
  /// Those of one rank. O(runs).
  [[nodiscard]] std::vector<OwnedRun> runs_of(int32_t rank) const;
  /// What runs() says of a range of chunks, cut to it. O(log(runs) + runs in the range).
  [[nodiscard]] std::vector<OwnedRun> runs_in(ChunkRange chunks) const;
  /// Who owns a range of the flat space of `layout`, and where it lies there: the table of a gather. O(log(runs) +
  /// runs in the range).
  [[nodiscard]] std::vector<ShardPiece> pieces_of(const FlatLayout& layout, FlatRange range) const;

  /// A line of text, "pliant-ownership 1 epoch 3 ranks 2 chunks 10 runs 5:0 5:1": same map, same text.
  [[nodiscard]] std::string save() const;
  /// Reads what save() gave. kDataLoss for anything else.
  static Result<Ownership> load(std::string_view text);
  /// Equal for equal maps of one epoch, and for no others that occur.
  [[nodiscard]] uint64_t digest() const;
  friend bool operator==(const Ownership&, const Ownership&) = default;

 private:
  [[nodiscard]] size_t run_at(ChunkId chunk) const;

  int64_t epoch_ = 0;
  int32_t chunks_ = 0;
  std::vector<OwnedRun> runs_;
  std::vector<int32_t> held_{0};
};

}  // namespace pliant::sharded
