// Runtime: what it owns goes from rank to rank when the group changes.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "base/result.hpp"
#include "pliant/error.hpp"
#include "sharded/runtime.hpp"
#include "sharded/shards/moves.hpp"
#include "sharded/shards/segments.hpp"

namespace pliant::sharded {

struct Runtime::Change {
  const Ownership& from;
  MovePlan plan;
  int64_t step;              ///< that all of it is of
  std::vector<int32_t> now;  ///< rank in the group of each rank of `from`
  int32_t before = -1;       ///< this rank there; -1: it had none
  int32_t after = -1;        ///< this rank in the new map; -1: it owns nothing then
};

uint64_t Runtime::enter_group(Communicator& communicator, const Ownership& from, std::span<const int32_t> was,
                              int32_t stay, int64_t step, const std::function<void()>& begins) {
  leave_group();
  const auto ranks = static_cast<size_t>(from.world_size());
  if (from.chunks() != layout_.chunks() || was.size() != static_cast<size_t>(communicator.world_size())) {
    throw Error(Status::kInternal, fmt::format("a map of {} chunks for {} ranks does not match {} chunks and {} ranks",
                                               from.chunks(), was.size(), layout_.chunks(), communicator.world_size()));
  }
  Change change{from,   {}, step, std::vector<int32_t>(ranks, kLeaves), was[static_cast<size_t>(communicator.rank())],
                kLeaves};
  std::vector<int32_t> next(ranks, kLeaves);
  for (size_t i = 0; i < was.size(); ++i) {
    if (was[i] < 0) continue;
    const auto place = static_cast<size_t>(was[i]);
    change.now.at(place) = static_cast<int32_t>(i);
    if (static_cast<int32_t>(i) < stay) next[place] = static_cast<int32_t>(i);
  }
  change.plan = or_throw(plan_moves(from, stay, next, segments_of(model, layout_, std::max(from.world_size(), stay))));
  change.after = communicator.rank() < stay ? communicator.rank() : kLeaves;
  uint64_t sent = 0;
  const bool owns = change.before != kLeaves;
  const bool knows = !owns || owns_by(from, change.before);
  if (!change.plan.moves.empty() || !knows) begins();
  if (!knows) {
    throw Error(
        Status::kDataLoss,
        fmt::format("rank {} owns other chunks than rank {} of the group's map (epoch {}; its own map has epoch {})",
                    communicator.rank(), change.before, from.epoch(), ownership_.epoch()));
  }
  if (!change.plan.moves.empty()) {
    sent = move(communicator, change);
  } else if (owns && shards_.step() != step) {
    begins();  // nobody can go on with it
    require_step(step);
  } else if (!owns && change.after != kLeaves) {  // there are no chunks for it
    shards_.make(layout_, change.plan.to, change.after);
    sums_.resize(shards_.bytes() / sizeof(float));
    shards_.end_change(step);
  }
  after_update_ = step + 1;
  ownership_ = std::move(change.plan.to);
  rank_ = communicator.rank();
  if (stay == communicator.world_size()) begin_group(communicator);
  return sent;
}

bool Runtime::owns_by(const Ownership& map, int32_t rank) const {
  const std::vector<OwnedRun> said = map.runs_of(rank);
  const std::vector<OwnedRun> own = owned();
  return std::equal(said.begin(), said.end(), own.begin(), own.end(),
                    [](const OwnedRun& left, const OwnedRun& right) { return left.chunks == right.chunks; });
}

Runtime::MovedStamps Runtime::exchange_stamps(Communicator& communicator, const Change& change) {
  const std::vector<Move>& moves = change.plan.moves;
  const int32_t rank = communicator.rank();
  MovedStamps rows(moves.size());
  uint64_t words = 0;
  for (size_t i = 0; i < moves.size(); ++i) {
    const Move& one = moves[i];
    if (one.from != change.before && one.to != rank) continue;
    if (one.from == change.before) {
      rows[i].push_back(static_cast<uint64_t>(shards_.step()));
      for (size_t array = 0; array < shards_.count(); ++array) {
        const std::vector<uint64_t> taken =
            shards_.array(array).digests_of(shards_.taker(), one.chunks, change.from.slot_of(one.chunks.first));
        rows[i].insert(rows[i].end(), taken.begin(), taken.end());
      }
    }
    rows[i].resize(1 + shards_.count() * static_cast<size_t>(one.chunks.count));
    words += rows[i].size();
  }
  Buffer there(accelerator_, device_, words * sizeof(uint64_t));
  const auto each_row = [&](const auto& call) {
    auto* at = static_cast<uint64_t*>(there.pointer());
    for (size_t i = 0; i < moves.size(); ++i) {
      if (!rows[i].empty()) call(moves[i], rows[i], at);
      at += rows[i].size();
    }
  };
  each_row([&](const Move& one, const std::vector<uint64_t>& row, uint64_t* at) {
    if (one.from == change.before) exchange_stream_.copy(at, row.data(), row.size() * sizeof(uint64_t));
  });
  exchange_stream_.synchronize();
  communicator.begin_group();
  each_row([&](const Move& one, const std::vector<uint64_t>& row, uint64_t* at) {
    if (one.from == change.before) {
      communicator.send(at, row.size(), DType::kI64, one.to, exchange_stream_);
    } else {
      communicator.recv(at, row.size(), DType::kI64, change.now[static_cast<size_t>(one.from)], exchange_stream_);
    }
  });
  communicator.end_group();
  each_row([&](const Move& one, std::vector<uint64_t>& row, const uint64_t* at) {
    if (one.from != change.before) exchange_stream_.copy(row.data(), at, row.size() * sizeof(uint64_t));
  });
  exchange_stream_.synchronize();
  return rows;
}

void Runtime::require_steps(const Change& change, const MovedStamps& stamps) const {
  for (size_t i = 0; i < stamps.size(); ++i) {
    const Move& one = change.plan.moves[i];
    if (one.to != change.after || static_cast<int64_t>(stamps[i].front()) == change.step) continue;
    const auto step = static_cast<int64_t>(stamps[i].front());
    const auto first = static_cast<int32_t>(one.chunks.first);
    throw Error(
        Status::kDataLoss,
        fmt::format("rank {} gives rank {} chunks {} to {} of {}; the group continues from step {}",
                    change.now[static_cast<size_t>(one.from)], change.after, first, first + one.chunks.count - 1,
                    step == kNoStep ? "no step" : fmt::format("step {}", step), change.step));
  }
  if (change.before != kLeaves) require_step(change.step);
}

void Runtime::require_digests(size_t array, const ShardArray& arrived, const Change& change,
                              const MovedStamps& stamps) {
  for (size_t i = 0; i < stamps.size(); ++i) {
    const Move& one = change.plan.moves[i];
    if (one.to != change.after) continue;
    const std::vector<uint64_t> taken =
        arrived.digests_of(shards_.taker(), one.chunks, change.plan.to.slot_of(one.chunks.first));
    const auto said = stamps[i].begin() + 1 + static_cast<std::ptrdiff_t>(array * taken.size());
    const auto [here, there] = std::mismatch(taken.begin(), taken.end(), said);
    if (here == taken.end()) continue;
    throw Error(Status::kDataLoss,
                fmt::format("chunk {} of {} arrived from rank {} at rank {} with other bytes than its stamp of step {} "
                            "(digest {:016x} instead of {:016x})",
                            static_cast<int32_t>(one.chunks.first) + (here - taken.begin()), shards_.name(array),
                            change.now[static_cast<size_t>(one.from)], change.after, change.step, *here, *there));
  }
}

std::vector<uint64_t> Runtime::digests_after(size_t array, const Change& change, const MovedStamps& stamps,
                                             std::span<const Kept> kept) const {
  const std::vector<uint64_t>* const before = change.before == kLeaves ? nullptr : shards_.array(array).known_digests();
  if (change.after == kLeaves || (!kept.empty() && before == nullptr)) return {};
  std::vector<uint64_t> made(static_cast<size_t>(change.plan.to.chunks_of(change.after)));
  for (const Kept& one : kept) std::copy_n(before->begin() + one.from, one.count, made.begin() + one.to);
  for (size_t i = 0; i < stamps.size(); ++i) {
    const Move& one = change.plan.moves[i];
    if (one.to != change.after) continue;
    const auto count = static_cast<std::ptrdiff_t>(one.chunks.count);
    const auto said = stamps[i].begin() + 1 + static_cast<std::ptrdiff_t>(array) * count;
    std::copy_n(said, count, made.begin() + change.plan.to.slot_of(one.chunks.first));
  }
  return made;
}

// Array after array, so that a rank holds one array twice at most. What is sent goes straight from the old shard to its
// place in the new one.
uint64_t Runtime::move(Communicator& communicator, const Change& change) {
  const Ownership& to = change.plan.to;
  const MovedStamps stamps = exchange_stamps(communicator, change);
  require_steps(change, stamps);
  const std::vector<Kept> kept = change.before == kLeaves || change.after == kLeaves
                                     ? std::vector<Kept>{}
                                     : kept_by(change.from, change.before, to, change.after);
  // By array, those of what this rank gets and keeps; none where they are not known of all that it keeps.
  std::vector<std::vector<uint64_t>> digests;
  const auto elements = [this](int32_t count) {
    return static_cast<uint64_t>(count) * static_cast<uint64_t>(layout_.chunk_elements());
  };
  uint64_t sent = 0;
  ShardMemory::Arrays made;
  sums_.resize(0);
  for (size_t i = 0; i < shards_.count(); ++i) {
    std::unique_ptr<ShardArray> shard = shards_.make_array(layout_, to, change.after);
    float* const new_values = shard->values();
    const float* const old_values = change.before == kLeaves ? nullptr : array(i);
    for (const Kept& one : kept) {
      exchange_stream_.copy(new_values + elements(one.to), old_values + elements(one.from),
                            elements(one.count) * sizeof(float));
    }
    communicator.begin_group();
    for (const Move& one : change.plan.moves) {
      const uint64_t count = elements(one.chunks.count);
      if (one.from == change.before) {
        communicator.send(old_values + elements(change.from.slot_of(one.chunks.first)), count, DType::kF32, one.to,
                          exchange_stream_);
        sent += count * sizeof(float);
      }
      if (one.to == change.after) {
        communicator.recv(new_values + elements(to.slot_of(one.chunks.first)), count, DType::kF32,
                          change.now[static_cast<size_t>(one.from)], exchange_stream_);
      }
    }
    communicator.end_group();
    exchange_stream_.synchronize();
    require_digests(i, *shard, change, stamps);
    digests.push_back(digests_after(i, change, stamps, kept));
    if (change.before != kLeaves) shards_.drop(i);  // before the next is made
    made.push_back(std::move(shard));
  }
  sums_.resize(made.front()->bytes() / sizeof(float));
  shards_.adopt(std::move(made));
  shards_.end_change(change.step);
  for (size_t i = 0; i < shards_.count(); ++i) {
    if (!digests[i].empty() && config_.run().digest_every > 0) shards_.array(i).know_digests(std::move(digests[i]));
  }
  return sent;
}

}  // namespace pliant::sharded
