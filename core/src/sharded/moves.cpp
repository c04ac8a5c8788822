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

/// The first of `ends`, ascending, that is behind a chunk; `chunks`: there is none.
int32_t end_behind(std::span<const int32_t> ends, int32_t chunk, int32_t chunks) {
  const auto end = std::upper_bound(ends.begin(), ends.end(), chunk);
  return end == ends.end() ? chunks : *end;
}

/// `surplus` chunks of one rank, of every segment its part: what does not divide goes with other segments at other
/// ranks (`phase` of `phases`), so that together they give of every segment alike. In a segment its short runs go
/// first, so that maps do not go to pieces over many changes; the last gives from its end. `runs` ascend and hold `has`
/// chunks.
void give(const std::vector<OwnedRun>& runs, int64_t has, int64_t surplus, int64_t phase, int64_t phases,
          std::span<const int32_t> ends, int32_t chunks, std::vector<Gift>& gifts) {
  int64_t seen = 0;
  int64_t given = 0;
  std::vector<ChunkRange> pieces;  // of one segment
  const auto give_of_segment = [&](int32_t owner) {
    int64_t due = (seen * surplus * phases + has * phase) / (has * phases) - given;
    given += due;
    std::stable_sort(pieces.begin(), pieces.end(),
                     [](const ChunkRange& left, const ChunkRange& right) { return left.count < right.count; });
    for (const ChunkRange& piece : pieces) {
      if (due == 0) break;
      const auto count = static_cast<int32_t>(std::min<int64_t>(due, piece.count));
      gifts.push_back({{advanced(piece.first, piece.count - count), count}, owner});
      due -= count;
    }
    pieces.clear();
  };
  int32_t end = 0;  // of the segment
  for (const OwnedRun& run : runs) {
    for (ChunkRange rest = run.chunks; rest.count > 0;) {
      const auto first = static_cast<int32_t>(rest.first);
      if (first >= end) {
        give_of_segment(run.owner);
        end = end_behind(ends, first, chunks);
      }
      const int32_t count = std::min(rest.count, end - first);
      pieces.push_back({rest.first, count});
      seen += count;
      rest = {advanced(rest.first, count), rest.count - count};
    }
  }
  if (!runs.empty()) give_of_segment(runs.front().owner);
}

/// Who gets which gifts.
class Dealer {
 public:
  explicit Dealer(const std::vector<int32_t>& needs) : all_(std::accumulate(needs.begin(), needs.end(), int64_t{0})) {
    for (size_t rank = 0; rank < needs.size(); ++rank) {
      if (needs[rank] > 0) getting_.push_back({static_cast<int32_t>(rank), needs[rank], 0});
    }
  }

  /// The gifts of a segment, ascending: each who needs some gets the part of it that he has of all needs, and chunks
  /// that are over go to them in turn.
  void deal(std::span<Gift> gifts, std::vector<Move>& moves) {
    int64_t left = 0;
    for (const Gift& gift : gifts) left += gift.chunks.count;
    seen_ += left;
    const size_t began = turn_;
    for (const int64_t over : {0, 1}) {
      for (size_t i = 0; i < getting_.size() && left > 0; ++i) {
        const size_t number = (began + i) % getting_.size();
        Getting& one = getting_[number];
        const int64_t due = std::min(one.needs, seen_ * one.needs / all_ + over) - one.got;
        const int64_t count = std::clamp<int64_t>(due, 0, left);
        if (count == 0) continue;
        hand_over(gifts, static_cast<int32_t>(count), one.rank, moves);
        one.got += count;
        left -= count;
        if (over > 0) turn_ = (number + 1) % getting_.size();
      }
    }
  }

 private:
  struct Getting {
    int32_t rank = 0;
    int64_t needs = 0;
    int64_t got = 0;
  };

  static void hand_over(std::span<Gift>& gifts, int32_t count, int32_t to, std::vector<Move>& moves) {
    while (count > 0) {
      Gift& gift = gifts.front();
      const int32_t some = std::min(gift.chunks.count, count);
      moves.push_back({{gift.chunks.first, some}, gift.from, to});
      gift.chunks = {advanced(gift.chunks.first, some), gift.chunks.count - some};
      count -= some;
      if (gift.chunks.count == 0) gifts = gifts.subspan(1);
    }
  }

  int64_t all_;
  int64_t seen_ = 0;
  std::vector<Getting> getting_;
  size_t turn_ = 0;  ///< who is the next to get one that is over
};

/// Deals the gifts out in the order of the flat space, segment by segment.
std::vector<Move> deal_out(std::vector<Gift>& gifts, const std::vector<int32_t>& needs, std::span<const int32_t> ends,
                           int32_t chunks) {
  std::sort(gifts.begin(), gifts.end(),
            [](const Gift& left, const Gift& right) { return left.chunks.first < right.chunks.first; });
  std::vector<Move> moves;
  Dealer dealer(needs);
  for (size_t begin = 0; begin < gifts.size();) {
    const int32_t end = end_behind(ends, static_cast<int32_t>(gifts[begin].chunks.first), chunks);
    size_t behind = begin;
    while (behind < gifts.size() && static_cast<int32_t>(gifts[behind].chunks.first) < end) ++behind;
    dealer.deal(std::span(gifts).subspan(begin, behind - begin), moves);
    begin = behind;
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

  std::vector<std::vector<OwnedRun>> runs_of(new_rank_of.size());
  for (const OwnedRun& run : from.runs()) runs_of[static_cast<size_t>(run.owner)].push_back(run);
  std::vector<Gift> gifts;
  for (size_t rank = 0; rank < new_rank_of.size(); ++rank) {
    const int32_t becomes = new_rank_of[rank];
    const int32_t keeps = becomes == kLeaves ? 0 : targets[static_cast<size_t>(becomes)];
    const int32_t has_now = from.chunks_of(static_cast<int32_t>(rank));
    if (has_now <= keeps) continue;
    give(runs_of[rank], has_now, has_now - keeps, static_cast<int64_t>(rank), from.world_size(), ends, from.chunks(),
         gifts);
  }
  MovePlan plan;
  plan.moves = deal_out(gifts, needs, ends, from.chunks());
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
