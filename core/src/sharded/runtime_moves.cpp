// Runtime: what it owns goes from rank to rank when the group changes.
#include <fmt/format.h>

#include <utility>

#include "base/result.hpp"
#include "pliant/error.hpp"
#include "sharded/moves.hpp"
#include "sharded/runtime.hpp"

namespace pliant::sharded {

struct Runtime::Change {
  const Ownership& from;
  MovePlan plan;
  std::vector<int32_t> now;  ///< rank in the group of each rank of `from`
  int32_t before = -1;       ///< this rank there; -1: it had none
};

uint64_t Runtime::enter_group(Communicator& communicator, const Ownership& from, std::span<const int32_t> was,
                              int32_t stay, const std::function<void()>& begins) {
  leave_group();
  const auto ranks = static_cast<size_t>(from.world_size());
  if (from.chunks() != layout_.chunks() || was.size() != static_cast<size_t>(communicator.world_size())) {
    throw Error(Status::kInternal, fmt::format("a map of {} chunks for {} ranks does not fit {} chunks and {} ranks",
                                               from.chunks(), was.size(), layout_.chunks(), communicator.world_size()));
  }
  Change change{from, {}, std::vector<int32_t>(ranks, kLeaves), was[static_cast<size_t>(communicator.rank())]};
  std::vector<int32_t> next(ranks, kLeaves);
  for (size_t i = 0; i < was.size(); ++i) {
    if (was[i] < 0) continue;
    const auto place = static_cast<size_t>(was[i]);
    change.now.at(place) = static_cast<int32_t>(i);
    if (static_cast<int32_t>(i) < stay) next[place] = static_cast<int32_t>(i);
  }
  change.plan = or_throw(plan_moves(from, stay, next));
  uint64_t sent = 0;
  if (!change.plan.moves.empty()) {
    begins();
    sent = move(communicator, change);
  }
  ownership_ = std::move(change.plan.to);
  rank_ = communicator.rank();
  if (stay == communicator.world_size()) begin_group(communicator);
  return sent;
}

// Array after array, so that a rank holds one array twice at most. What is sent goes straight from the old shard to its
// place in the new one.
uint64_t Runtime::move(Communicator& communicator, const Change& change) {
  const Ownership& to = change.plan.to;
  const int32_t after = communicator.rank() < to.world_size() ? communicator.rank() : kLeaves;
  const int32_t chunks = after == kLeaves ? 0 : to.chunks_of(after);
  const std::vector<Kept> kept = change.before == kLeaves || after == kLeaves
                                     ? std::vector<Kept>{}
                                     : kept_by(change.from, change.before, to, after);
  const auto elements = [this](int32_t count) {
    return static_cast<uint64_t>(count) * static_cast<uint64_t>(layout_.chunk_elements());
  };
  uint64_t sent = 0;
  std::vector<Buffer> made;
  sums_.resize(0);
  for (size_t i = 0; i < state_names_.size() + 1; ++i) {
    Buffer shard = make_shard(chunks);
    auto* const new_values = static_cast<float*>(shard.pointer());
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
      if (one.to == after) {
        communicator.recv(new_values + elements(to.slot_of(one.chunks.first)), count, DType::kF32,
                          change.now[static_cast<size_t>(one.from)], exchange_stream_);
      }
    }
    communicator.end_group();
    exchange_stream_.synchronize();
    if (change.before != kLeaves) shards_[i] = Buffer(accelerator_, device_, 0);  // before the next is made
    made.push_back(std::move(shard));
  }
  shards_ = std::move(made);
  sums_.resize(elements(chunks));
  return sent;
}

}  // namespace pliant::sharded
