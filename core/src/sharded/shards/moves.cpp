// The plan of a change: targets, what is above them, and who gets it.
#include "sharded/shards/moves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <utility>

#include "sharded/shards/gifts.hpp"

namespace pliant::sharded {

namespace {

Result<> check_change(const Ownership& from, int32_t new_world_size, std::span<const int32_t> new_rank_of) {
  if (new_world_size < 1 || new_world_size > Ownership::kMostRanks) {
    return failed(Status::kInvalidArgument, fmt::format("world size {} cannot own a model; allowed: 1 to {}",
                                                        new_world_size, Ownership::kMostRanks));
  }
  if (new_rank_of.size() != static_cast<size_t>(from.world_size())) {
    return failed(Status::kInvalidArgument,
                  fmt::format("a change of {} ranks covers {} of them", from.world_size(), new_rank_of.size()));
  }
  std::vector<int32_t> had(static_cast<size_t>(new_world_size), kLeaves);
  for (size_t rank = 0; rank < new_rank_of.size(); ++rank) {
    const int32_t becomes = new_rank_of[rank];
    if (becomes == kLeaves) continue;
    if (becomes < 0 || becomes >= new_world_size) {
      return failed(Status::kInvalidArgument,
                    fmt::format("rank {} cannot become rank {} in a world of {}", rank, becomes, new_world_size));
    }
    int32_t& taken = had[static_cast<size_t>(becomes)];
    if (taken != kLeaves) {
      return failed(Status::kInvalidArgument,
                    fmt::format("ranks {} and {} cannot both become rank {}", taken, rank, becomes));
    }
    taken = static_cast<int32_t>(rank);
  }
  return {};
}

/// How many chunks each rank is to own, given what it has: the larger shares go to those who have most.
std::vector<int32_t> targets_of(int32_t chunks, const std::vector<int32_t>& has) {
  const auto ranks = static_cast<int32_t>(has.size());
  std::vector<int32_t> by_has(has.size());
  std::iota(by_has.begin(), by_has.end(), 0);
  std::stable_sort(by_has.begin(), by_has.end(), [&has](int32_t left, int32_t right) {
    return has[static_cast<size_t>(left)] > has[static_cast<size_t>(right)];
  });
  std::vector<int32_t> targets(has.size(), chunks / ranks);
  for (int32_t i = 0; i < chunks % ranks; ++i) ++targets[static_cast<size_t>(by_has[static_cast<size_t>(i)])];
  return targets;
}

/// The map after the moves: their runs cut out of the old ones.
Result<Ownership> map_after(const Ownership& from, int32_t new_world_size, std::span<const int32_t> new_rank_of,
                            const std::vector<Move>& moves) {
  std::vector<Ownership::Run> runs;
  auto move = moves.begin();
  for (const OwnedRun& run : from.runs()) {
    auto at = static_cast<int32_t>(run.chunks.first);
    const int32_t end = at + run.chunks.count;
    while (at < end) {
      const int32_t next = move == moves.end() ? end : std::min(end, static_cast<int32_t>(move->chunks.first));
      if (next > at) runs.push_back({next - at, new_rank_of[static_cast<size_t>(run.owner)]});
      at = next;
      if (at == end) break;
      runs.push_back({move->chunks.count, move->to});
      at += move->chunks.count;
      ++move;
    }
  }
  return Ownership::of_runs(runs, new_world_size, from.epoch() + 1);
}

std::vector<Giver> givers_of(const Ownership& from, std::span<const int32_t> new_rank_of,
                             const std::vector<int32_t>& targets) {
  std::vector<Giver> givers;
  std::vector<int32_t> giver_at(new_rank_of.size(), -1);
  for (size_t rank = 0; rank < new_rank_of.size(); ++rank) {
    const int32_t becomes = new_rank_of[rank];
    const int32_t keeps = becomes == kLeaves ? 0 : targets[static_cast<size_t>(becomes)];
    const int32_t has = from.chunks_of(static_cast<int32_t>(rank));
    if (has <= keeps) continue;
    giver_at[rank] = static_cast<int32_t>(givers.size());
    givers.push_back({static_cast<int32_t>(rank), from.world_size(), has, has - keeps, {}});
  }
  bool gives_front = false;
  for (const OwnedRun& run : from.runs()) {
    const int32_t at = giver_at[static_cast<size_t>(run.owner)];
    if (at >= 0) givers[static_cast<size_t>(at)].runs.push_back({run.chunks, gives_front});
    gives_front = !gives_front;
  }
  return givers;
}

/// What a plan is made from, at any grain.
struct Planning {
  const Ownership& from;
  std::span<const int32_t> new_rank_of;
  std::vector<int32_t> needs;  ///< chunks, of each rank of the new map
  std::vector<Giver> givers;
  Cutting cutting;
  std::vector<int64_t> scales;

  [[nodiscard]] Result<MovePlan> at(Grain grain) {
    cutting.grain = grain;
    std::vector<Gift> gifts;
    for (const Giver& giver : givers) add_gifts(giver, scales, cutting, gifts);
    MovePlan plan;
    plan.moves = deal_out(gifts, needs, from, new_rank_of, cutting);
    Result<Ownership> to = map_after(from, static_cast<int32_t>(needs.size()), new_rank_of, plan.moves);
    if (!to) return failed(std::move(to));
    plan.to = std::move(*to);
    return plan;
  }
};

bool has_room(const MovePlan& plan) {
  return static_cast<int64_t>(plan.to.runs().size()) <= kMostRuns;
}

/// The plan of the finest grain, a power of two, of which no more runs come than there may be.
Result<MovePlan> finest(Planning& planning) {
  Result<MovePlan> plan = planning.at(Grain{1});
  if (!plan || has_room(*plan)) return plan;
  std::optional<MovePlan> best;
  int32_t fine = 1;
  int32_t coarse = std::countr_zero(static_cast<uint32_t>(kWholeRuns));
  while (fine < coarse || !best) {
    const int32_t middle = (fine + coarse) / 2;
    plan = planning.at(Grain{1 << middle});
    if (!plan) return plan;
    if (has_room(*plan) || fine == coarse) {
      best = std::move(*plan);
      coarse = middle;
    } else {
      fine = middle + 1;
    }
  }
  return std::move(*best);
}

}  // namespace

Result<MovePlan> plan_moves(const Ownership& from, int32_t new_world_size, std::span<const int32_t> new_rank_of,
                            std::span<const int32_t> ends) {
  if (Result<> right = check_change(from, new_world_size, new_rank_of); !right) return failed(std::move(right));
  std::vector<int32_t> has(static_cast<size_t>(new_world_size), 0);
  for (size_t rank = 0; rank < new_rank_of.size(); ++rank) {
    if (new_rank_of[rank] != kLeaves) {
      has[static_cast<size_t>(new_rank_of[rank])] = from.chunks_of(static_cast<int32_t>(rank));
    }
  }
  const std::vector<int32_t> targets = targets_of(from.chunks(), has);
  std::vector<int32_t> needs(has.size());
  for (size_t rank = 0; rank < has.size(); ++rank) needs[rank] = std::max(0, targets[rank] - has[rank]);

  Planning planning{from, new_rank_of, std::move(needs), givers_of(from, new_rank_of, targets), {ends, from.chunks()},
                    {}};
  planning.scales = scales_of(planning.givers, planning.needs, from, new_rank_of, planning.cutting);
  return finest(planning);
}

std::vector<Kept> kept_by(const Ownership& from, int32_t before, const Ownership& to, int32_t after) {
  std::vector<Kept> kept;
  for (const OwnedRun& old : from.runs_of(before)) {
    for (const OwnedRun& now : to.runs_in(old.chunks)) {
      if (now.owner != after) continue;
      const int32_t steps = static_cast<int32_t>(now.chunks.first) - static_cast<int32_t>(old.chunks.first);
      kept.push_back({old.slot + steps, now.slot, now.chunks.count});
    }
  }
  return kept;
}

}  // namespace pliant::sharded
