// plan_moves(): which chunks go from whom to whom when the world size changes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "sharded/shards/ownership.hpp"

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
};

/// Runs that a plan makes of a map at most, but for about one for each rank where it has as many already: a map goes
/// from process to process in one message. With up to 64 ranks that is less than a quarter of the longest one.
inline constexpr int64_t kMostRuns = 40'000;

/// A rank that has no place after the change.
inline constexpr int32_t kLeaves = -1;

/// `new_rank_of[r]`: the rank that r has after the change, or kLeaves; ranks below `new_world_size` that nobody has
/// then join. All who own chunks must be alive to give them. Afterwards two ranks differ by at most one chunk, and no
/// fewer chunks could move for that: of K chunks and S ranks that stay of N, K * (1 - S / max(N, M)) and at most one
/// more for each rank, when the old map was balanced; |N - M| / max(N, M) of them where ranks only leave or only join.
/// A rank gives of every segment what it has more of it than its part, and others get what they lack of it: where ranks
/// shared each, they do afterwards. Where that would take more runs than kMostRuns, no piece is cut that is shorter
/// than need be, so that ranks share short segments not one by one, but several together. `ends`: where segments end,
/// as of Ownership::deal. Equal arguments, equal plan. O(chunks + segments * ranks), some six times over where runs are
/// short. kInvalidArgument where the ranks are none, or two become one.
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
