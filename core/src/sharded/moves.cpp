// The plan of a change: targets, what is above them, and who gets it.
#include "sharded/moves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace pliant::sharded {

namespace {

/// What a rank before the change gives away.
struct Gift {
  ChunkRange chunks;
  int32_t from = 0;
};

Result<> check_change(const Ownership& from, int32_t new_world_size, std::span<const int32_t> new_rank_of) {
  if (new_world_size < 1 || new_world_size > Ownership::kMostRanks) {
    return failed(Status::kInvalidArgument, fmt::format("a world size of {} cannot own a model; 1 to {} can",
                                                        new_world_size, Ownership::kMostRanks));
  }
  if (new_rank_of.size() != static_cast<size_t>(from.world_size())) {
    return failed(Status::kInvalidArgument, fmt::format("a change of {} ranks says of {} what becomes of them",
                                                        from.world_size(), new_rank_of.size()));
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

/// `surplus` chunks of one rank: its short runs first, so that maps do not go to pieces over many changes; the last
/// from its end.
void give(std::vector<OwnedRun>& runs, int32_t surplus, std::vector<Gift>& gifts) {
  std::stable_sort(runs.begin(), runs.end(),
                   [](const OwnedRun& left, const OwnedRun& right) { return left.chunks.count < right.chunks.count; });
  for (const OwnedRun& run : runs) {
    if (surplus == 0) return;
    const int32_t count = std::min(surplus, run.chunks.count);
    gifts.push_back({{advanced(run.chunks.first, run.chunks.count - count), count}, run.owner});
    surplus -= count;
  }
}

/// Deals the gifts out in the order of the flat space.
std::vector<Move> deal_out(std::vector<Gift>& gifts, std::vector<int32_t>& needs) {
  std::sort(gifts.begin(), gifts.end(),
            [](const Gift& left, const Gift& right) { return left.chunks.first < right.chunks.first; });
  std::vector<Move> moves;
  size_t to = 0;
  for (Gift& gift : gifts) {
    while (gift.chunks.count > 0) {
      while (needs[to] == 0) ++to;
      const int32_t count = std::min(gift.chunks.count, needs[to]);
      moves.push_back({{gift.chunks.first, count}, gift.from, static_cast<int32_t>(to)});
      gift.chunks = {advanced(gift.chunks.first, count), gift.chunks.count - count};
      needs[to] -= count;
    }
  }
  return moves;
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

}  // namespace

int64_t MovePlan::chunks_moved() const {
  return std::accumulate(moves.begin(), moves.end(), int64_t{0},
                         [](int64_t sum, const Move& move) { return sum + move.chunks.count; });
}

Result<MovePlan> plan_moves(const Ownership& from, int32_t new_world_size, std::span<const int32_t> new_rank_of) {
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

  std::vector<std::vector<OwnedRun>> runs_of(new_rank_of.size());
  for (const OwnedRun& run : from.runs()) runs_of[static_cast<size_t>(run.owner)].push_back(run);
  std::vector<Gift> gifts;
  for (size_t rank = 0; rank < new_rank_of.size(); ++rank) {
    const int32_t becomes = new_rank_of[rank];
    const int32_t keeps = becomes == kLeaves ? 0 : targets[static_cast<size_t>(becomes)];
    const int32_t surplus = from.chunks_of(static_cast<int32_t>(rank)) - keeps;
    if (surplus > 0) give(runs_of[rank], surplus, gifts);
  }
  MovePlan plan;
  plan.moves = deal_out(gifts, needs);
  Result<Ownership> to = map_after(from, new_world_size, new_rank_of, plan.moves);
  if (!to) return failed(std::move(to));
  plan.to = std::move(*to);
  return plan;
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
