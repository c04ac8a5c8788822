// Runtime: what the program does by hand, outside of passes: fetches and releases, reads and writes.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "pliant/error.hpp"
#include "sharded/runtime.hpp"

namespace pliant::sharded {
namespace {

/// A read has one part of so many of a budget at once, and at least so many elements.
constexpr uint64_t kPartOfBudget = 16;
constexpr uint64_t kLeastRead = 64;

}  // namespace

bool Runtime::release_what_is_left() {
  bool is_left = false;
  for (uint32_t parameter = 0; parameter < held_.size(); ++parameter) {
    const Held& one = held_[parameter];
    // One that is held by hand may count as whole with the coordinator, too, which would not gather it again.
    is_left = is_left || (one.presence != Presence::kAway && (!one.by_hand || coordinator_.is_whole(parameter)));
  }
  if (!is_left) return false;
  if (!is_sound_) give_model();  // a pass was given up
  const RecordedCall recorded(recorder_, *memory_, TracedCall::Kind::kEndStep);
  follow([&] { return coordinator_.end_step(); });
  return true;
}

// What is whole depends on the visits alone, so that all ranks do the same.
template <class Work>
void Runtime::or_after_release(const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (error.status() != Status::kResourceExhausted || memory_->budget() == 0 || !release_what_is_left()) throw;
  }
  work();
}

void Runtime::prefetch(uint32_t parameter) {
  require_group();
  Held& one = held_[parameter];
  if (in_pass_) {
    throw Error(
        Status::kFailedPrecondition,
        fmt::format("{} cannot be fetched by hand inside a pass; enter a module that uses it", name(parameter)));
  }
  if (!is_sound_) give_model();  // a pass was given up
  // In an arena it may lie where the coordinator puts others once it has released it.
  if (memory_->budget() > 0 && !one.by_hand) release_what_is_left();
  if (one.presence == Presence::kAway) {
    const pliant_action action{PLIANT_ACTION_GATHER, parameter, 1, 0, PLIANT_ANY_PLACE};
    // A coordinator that chooses places does not know of it: beside the gradients.
    or_after_release([&] {
      const RecordedCall recorded(recorder_, *memory_, PLIANT_ACTION_GATHER, parameter);
      gather(std::span(&action, 1), ArenaSide::kEnd);
    });
  }
  // What found no room may be asked for again.
  if (!std::exchange(one.by_hand, true)) note(Visited::Kind::kByHand, parameter);
  one.was_let_go = false;
}

void Runtime::fetch(uint32_t parameter) {
  prefetch(parameter);
  const RecordedCall recorded(recorder_, *memory_, PLIANT_ACTION_WAIT, parameter);
  wait(parameter);
}

void Runtime::write(uint32_t parameter, std::span<const float> values) {
  require_group();
  require_no_pass();
  was_touched_ = true;
  if (may_update_) {
    throw Error(
        Status::kFailedPrecondition,
        fmt::format("{} cannot be written between a commit and its update; write it after update", name(parameter)));
  }
  if (held_[parameter].by_hand) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("{} cannot be written while it is fetched by hand; call release first", name(parameter)));
  }
  note(Visited::Kind::kWrite, parameter);
  if (held_[parameter].presence != Presence::kAway) release_what_is_left();  // it would stay as it was
  exchange_stream_.synchronize();                                            // others read what this rank owns
  const int64_t step = shards_.step();
  const ParameterRow& row = model.parameter(parameter);
  ShardArray& weights = shards_.array(0);
  std::vector<OwnedRun> written = ownership_.runs_in(layout_.chunks_of(range_of(parameter)));
  std::erase_if(written, [this](const OwnedRun& run) { return run.owner != rank_; });
  timed([&] { shards_.require_unchanged(0, written); });  // a chunk may hold a part of a neighbour, too
  weights.begin_change();
  for (const ShardPiece& piece : owners_[parameter].own) {
    program_.copy(weights.values() + piece.shard_offset,
                  values.data() + (piece.range.first - static_cast<int64_t>(row.offset)),
                  static_cast<uint64_t>(piece.range.count) * sizeof(float));
  }
  program_.synchronize();
  timed([&] { weights.end_change(step, shards_.taker(), written); });
  is_cast_ = false;
}

void Runtime::read(uint32_t parameter, std::span<float> values) {
  require_group();
  require_no_pass();
  was_touched_ = true;
  // Within a budget a part of it at a time, on every rank the same: whole parameters may have half the bytes.
  const uint64_t most = std::max(memory_->budget() / kPartOfBudget / sizeof(float), kLeastRead);
  const uint64_t block = memory_->budget() == 0 ? values.size() : std::min<uint64_t>(values.size(), most);
  WholePiece part;
  or_after_release([&] { part = take(block, DType::kF32, {"a part of ", name(parameter)}); });
  note(Visited::Kind::kByHand, parameter);
  const FlatRange all = range_of(parameter);
  const RecordedCall recorded(recorder_, *memory_, TracedCall::Kind::kByHand);
  if (recorder_ != nullptr) recorder_->begin_transfer(exchange_stream_);
  for (uint64_t done = 0; done < values.size(); done += block) {
    const uint64_t count = std::min<uint64_t>(block, values.size() - done);
    const OwnersOfRange owners = exchange_->owners_of(
        layout_, ownership_, {all.first + static_cast<int64_t>(done), static_cast<int64_t>(count)});
    const GatherItem item{&owners, part.pointer()};
    exchange_->gather(std::span(&item, 1), array(0), DType::kF32);
    exchange_stream_.copy(values.data() + done, part.pointer(), count * sizeof(float));
    exchange_stream_.synchronize();
  }
  if (recorder_ != nullptr) {
    recorder_->end_transfer(exchange_stream_, TracedTransfer::Kind::kGather, std::span(&parameter, 1),
                            values.size() * sizeof(float), false);
  }
}

void Runtime::release(uint32_t parameter) {
  require_group();
  if (std::exchange(held_[parameter].was_let_go, false)) return;
  if (!std::exchange(held_[parameter].by_hand, false)) {
    throw Error(Status::kFailedPrecondition, fmt::format("{} was not fetched by hand", name(parameter)));
  }
  note(Visited::Kind::kRelease, parameter);  // passes gather it from now on
  if (coordinator_.is_whole(parameter)) return;
  const RecordedCall recorded(recorder_, *memory_, PLIANT_ACTION_RELEASE, parameter);
  wait(parameter);  // the CPU may write to what is given back, and what is on its way would come after that
  release_whole(parameter);
}

}  // namespace pliant::sharded
