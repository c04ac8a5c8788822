// plan_moves(): which chunks go from whom to whom when the world size changes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "sharded/ownership.hpp"

namespace pliant::sharded {

/// Chunks that lie side by side in the flat space and in the shards of both.
struct Move {
  ChunkRange chunks;
  int32_t from = 0;  ///< rank before the change
  int32_t to = 0;    ///< rank after it
  friend bool operator==(const Move&, const Move&) = default;
};

struct MovePlan {
  Ownership to;             ///< one epoch later
  std::vector<Move> moves;  ///< ascending; no two have a chunk in common
  [[nodiscard]] int64_t chunks_moved() const;
};

/// A rank that has no place after the change.
inline constexpr int32_t kLeaves = -1;

/// `new_rank_of[r]`: the rank that r has after the change, or kLeaves; ranks below `new_world_size` that nobody has
/// then join. All who own chunks must be alive to give them. Afterwards two ranks differ by at most one chunk, and no
/// fewer chunks could move for that: of K chunks and S ranks that stay of N, K * (1 - S / max(N, M)) and at most one
/// more for each rank, when the old map was balanced; |N - M| / max(N, M) of them where ranks only leave or only join.
/// What a rank gives it gives of every segment alike, and what others get they get of every segment alike: where ranks
/// shared each, they do afterwards. `ends`: where segments end, as of Ownership::deal.
/// Equal arguments, equal plan. O(chunks + segments * ranks). kInvalidArgument where the ranks are none, or two become
/// one.
Result<MovePlan> plan_moves(const Ownership& from, int32_t new_world_size, std::span<const int32_t> new_rank_of,
                            std::span<const int32_t> ends = {});

/// Chunks that a rank keeps: from slot `from` of its old shard to slot `to` of its new one.
struct Kept {
  int32_t from = 0;
  int32_t to = 0;
  int32_t count = 0;
  friend bool operator==(const Kept&, const Kept&) = default;
};

/// What rank `before` of the old map keeps as rank `after` of the new one, ascending. O(runs).
std::vector<Kept> kept_by(const Ownership& from, int32_t before, const Ownership& to, int32_t after);

}  // namespace pliant::sharded
