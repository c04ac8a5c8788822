// What owners give away when the world size changes, and who gets it, segment by segment. What plan_moves() is made of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sharded/shards/moves.hpp"
#include "sharded/shards/ownership.hpp"

namespace pliant::sharded {

/// Chunks side by side that a rank of the old map gives away.
struct Gift {
  ChunkRange chunks;
  int32_t from = 0;
};

/// Chunks: nothing shorter is cut from a run, unless there is no other way to a rank's number of chunks; whole runs are
/// given whatever their length. At 1 all is shared as evenly as it goes, at kWholeRuns the runs become no more than
/// that about one is cut for each rank.
enum class Grain : int32_t {};
inline constexpr Grain kWholeRuns{FlatLayout::kMostChunks};

inline int32_t begin_of(const ChunkRange& chunks) {
  return static_cast<int32_t>(chunks.first);
}
inline int32_t end_of(const ChunkRange& chunks) {
  return begin_of(chunks) + chunks.count;
}
inline ChunkRange taken_from_front(ChunkRange& chunks, int32_t count) {
  const ChunkRange taken{chunks.first, count};
  chunks = {advanced(chunks.first, count), chunks.count - count};
  return taken;
}
inline ChunkRange taken_from_back(ChunkRange& chunks, int32_t count) {
  chunks.count -= count;
  return {advanced(chunks.first, chunks.count), count};
}

/// What is the same for all who give, and for all who get.
struct Cutting {
  std::span<const int32_t> ends;  ///< of segments; none: all chunks are one
  int32_t chunks = 0;             ///< of the model
  Grain grain{1};
};

/// The number of the segment that a chunk is in; those before it may have no chunks.
inline size_t segment_at(const Cutting& cutting, int32_t chunk) {
  const auto end = std::upper_bound(cutting.ends.begin(), cutting.ends.end(), chunk);
  return static_cast<size_t>(end - cutting.ends.begin());
}
inline ChunkRange segment_of(const Cutting& cutting, int32_t chunk) {
  const size_t at = segment_at(cutting, chunk);
  const int32_t first = at == 0 ? 0 : cutting.ends[at - 1];
  return {ChunkId{first}, (at == cutting.ends.size() ? cutting.chunks : cutting.ends[at]) - first};
}

/// Calls with the owner of each run in a segment and how many chunks of it the run has. `run`: one that does not lie
/// behind the segment's begin; returns the one that has its first chunk.
template <class Call>
size_t each_piece(const Ownership& map, const ChunkRange& segment, size_t run, const Call& call) {
  const std::vector<OwnedRun>& runs = map.runs();
  while (end_of(runs[run].chunks) <= begin_of(segment)) ++run;
  for (size_t i = run; i < runs.size() && begin_of(runs[i].chunks) < end_of(segment); ++i) {
    call(runs[i].owner,
         std::min(end_of(runs[i].chunks), end_of(segment)) - std::max(begin_of(runs[i].chunks), begin_of(segment)));
  }
  return run;
}

/// A rank of the old map that has more chunks than it is to have.
struct Giver {
  int32_t rank = 0;
  int32_t world_size = 0;  ///< of the old map
  int64_t has = 0;         ///< chunks
  int64_t surplus = 0;     ///< of them it gives
  /// What it owns, ascending, and whether it gives the front of each: where two cut into runs that lie side by side,
  /// what both give is one run at whom they give it to.
  struct Run {
    ChunkRange chunks;
    bool gives_front = false;
  };
  std::vector<Run> runs;
};

/// For each segment the weight of what those who give and stay have more of it than will be their part: so that they
/// give of it, together with those who leave, what those who get lack of it. O(runs + segments * ranks).
std::vector<int64_t> scales_of(std::span<const Giver> givers, const std::vector<int32_t>& needs, const Ownership& from,
                               std::span<const int32_t> new_rank_of, const Cutting& cutting);

/// Adds what `giver` gives: of each segment by what it has more of it than will be its part. What does not divide goes
/// with other segments at other ranks. In a segment its short runs go first. `scales`: as of scales_of().
void add_gifts(const Giver& giver, std::span<const int64_t> scales, const Cutting& cutting, std::vector<Gift>& gifts);

/// Who gets what, ascending: of the gifts of a segment each who needs chunks gets by what he lacks of it to have as
/// much as others, what lies beside chunks of his first. `needs`: chunks for each rank of the new map, in sum as many
/// as are given. Sorts the gifts.
std::vector<Move> deal_out(std::vector<Gift>& gifts, const std::vector<int32_t>& needs, const Ownership& from,
                           std::span<const int32_t> new_rank_of, const Cutting& cutting);

}  // namespace pliant::sharded
