// Runtime: gradients on their way to their owners, and what a step makes of them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <utility>

#include "base/result.hpp"
#include "pliant/error.hpp"
#include "pliant/optimizer.hpp"
#include "sharded/memory/arena_needs.hpp"
#include "sharded/runtime.hpp"

namespace pliant::sharded {
namespace {

/// That gradients are cast to f32 at once, at least: the elements of the smallest piece of a budget.
constexpr uint64_t kLeastFloats = 64;

/// They are gone before anything else is put anywhere. Where gradients will lie, the program would wait for the casts.
constexpr WholePlace kFloatsSide{std::nullopt, ArenaSide::kBegin};

/// What `take` makes of `block` elements; of fewer, which `block` is then, where there is no room for that many, also
/// not after `make_room`. What that meets is thrown: fewer elements would not mend it. `has_least`: where there is no
/// room at all nothing is made, for kLeastFloats elements.
template <class Take>
auto of_as_many(uint64_t& block, const Take& take, bool has_least, const std::function<void()>& make_room = nullptr) {
  for (bool is_tried = make_room == nullptr;; is_tried = true) {
    try {
      return take();
    } catch (const Error& error) {
      const bool is_least = is_tried && block <= kLeastFloats;
      if (error.status() != Status::kResourceExhausted || (is_least && !has_least)) throw;
      if (is_least) return decltype(take()){};
    }
    if (is_tried) {
      block = std::max(block / 2, kLeastFloats);
    } else {
      make_room();
    }
  }
}

}  // namespace

void Runtime::begin_step(int64_t rows, int64_t granule, const Assignment& assignment, bool look_for_not_finite) {
  sums_.begin_step(rows, granule, assignment);
  const std::span<const RowRange> own = assignment.of(communicator_->rank());
  blocks_.assign(own.begin(), own.end());
  done_ = 0;
  is_finite_.assign(sums_.rounds(), true);
  page_.begin_step();
  look_for_not_finite_ = look_for_not_finite;
  if (look_) look_->begin(sums_.rounds());
  is_looking_ = false;
  has_looked_ = true;
  is_step_ = true;
  may_update_ = has_norm_ = false;
  // The first step of a group touches memory that is new, and records a trace.
  costs_.begin_step(coordinator_.takes_costs() && ++steps_of_group_ == 2);
}

bool Runtime::is_complete() const {
  return is_step_ && !in_pass_ && done_ == sums_.rounds();
}

void Runtime::begin_pass(std::span<const RowRange> micro_batches) {
  require_group();
  if (!is_step_) {
    throw Error(Status::kFailedPrecondition,
                "no step is open, or it was abandoned by an exception; call Session::next");
  }
  if (done_ >= sums_.rounds()) {
    throw Error(Status::kFailedPrecondition, "all passes of the step are done; call Step::commit");
  }
  require_no_pass();
  if (micro_batches.empty() || micro_batches.size() > sums_.rounds() - done_) {
    throw Error(
        Status::kInvalidArgument,
        fmt::format("a pass cannot cover {} micro-batches: it needs at least one, and {} of the step's {} are left",
                    micro_batches.size(), sums_.rounds() - done_, sums_.rounds()));
  }
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    const RowRange& rows = micro_batches[i];
    if (has_rows(i) ? rows == blocks_[done_ + i] : rows.count == 0) continue;
    throw Error(Status::kInvalidArgument,
                fmt::format("a pass over {} rows from {} on is out of order: micro-batch {} of {} is next; make one "
                            "pass over each of Step::micro_batches, in order",
                            rows.count, rows.first, done_ + i, sums_.rounds()));
  }
  begin(true, micro_batches.size());
  rounds_.clear();
  for (size_t i = 0; i < micro_batches.size(); ++i) rounds_.push_back(&sums_.begin_round());
}

void* Runtime::gradient(uint32_t parameter) {
  require_group();
  Held& one = held_[parameter];
  const ParameterRow& row = model.parameter(parameter);
  if (!in_pass_ || !with_gradient_ || row.frozen || one.is_reduced) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("{} {}", row.name,
                            row.frozen       ? "is frozen and has no gradient"
                            : one.is_reduced ? "has left the last module that used it: its gradient was sent already"
                                             : "has a gradient only in a pass with gradients"));
  }
  if (!one.gradient && !is_backward_ && memory_->budget() > 0) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("{} has no memory for its gradient yet: within a budget it is allocated when a module is "
                            "entered backward, on all ranks alike",
                            row.name));
  }
  const size_t micro_batch = micro_batch_in_hand(parameter);
  if (!one.gradient) one.gradient = take_gradient_room(parameter);
  if (!one.is_zeroed[micro_batch]) zero_gradient(parameter, micro_batch);
  return gradient_at(parameter, micro_batch);
}

void Runtime::take_gradients(const std::vector<uint32_t>& used) {
  if (memory_->budget() == 0) return;
  if (!std::exchange(is_backward_, true)) {
    for (uint32_t parameter = 0; parameter < held_.size(); ++parameter) {
      if (model.parameter(parameter).external) take_room_of_gradient(parameter);
    }
  }
  for (const uint32_t parameter : used) take_room_of_gradient(parameter);
}

void Runtime::take_room_of_gradient(uint32_t parameter) {
  Held& one = held_[parameter];
  const ParameterRow& row = model.parameter(parameter);
  if (row.frozen || one.is_reduced || one.gradient) return;
  one.gradient = take_gradient_room(parameter);
}

uint64_t Runtime::float_block(uint64_t count) const {
  const uint64_t most = here_ ? kFloatsHere : uint64_t{1} << 18U;
  return memory_->budget() == 0 ? count : std::min(count, most);
}

const float* Runtime::as_floats(const void* values, uint64_t count, float* room) {
  if (reduce_ == DType::kF32) return static_cast<const float*>(values);
  sums_.cast(room, values, reduce_, count);
  return room;
}

void Runtime::look_at(uint32_t parameter, size_t micro_batch, const void* gradient, float* least_room) {
  const ParameterRow& row = model.parameter(parameter);
  uint64_t block = row.elements;
  WholePiece room;
  if (reduce_ != DType::kF32) {
    block = float_block(row.elements);
    const auto take_floats = [&] {
      return memory_->take(block * sizeof(float), {"", row.name, " as f32"}, kFloatsSide);
    };
    room = of_as_many(block, take_floats, least_room != nullptr, [this] { make_room(); });
  }
  float* const floats = room ? room.floats() : least_room;
  for (uint64_t at = 0; at < row.elements; at += block) {
    const uint64_t count = std::min(block, row.elements - at);
    const float* const values = as_floats(static_cast<const char*>(gradient) + at * bytes_of(reduce_), count, floats);
    if (look_for_not_finite_) look_for_not_finite(micro_batch, values, count);
    if (measure_) measure(micro_batch, row.offset + at, values, count);
  }
}

// Where the device can it only enqueues: nobody waits for what it finds before the step is to be committed.
void Runtime::look_for_not_finite(size_t micro_batch, const float* values, uint64_t count) {
  if (look_ && look_->add(values, static_cast<size_t>(count))) {
    is_looking_ = true;
  } else if (!sums_.finite(values, count)) {
    is_finite_[done_ + micro_batch] = false;
  }
}

std::optional<bool> Runtime::is_finite(size_t micro_batch) {
  if (std::exchange(is_looking_, false)) {
    const auto found = look_->not_finite();
    has_looked_ = found.has_value();
    for (const size_t one : found.value_or(std::vector<size_t>())) is_finite_[one] = false;
  }
  if (!is_finite_[micro_batch]) return false;
  return has_looked_ ? std::optional(true) : std::nullopt;
}

// Takes no room that would have others added first: they need the same.
void Runtime::add_received(const Scattering& arrived) {
  const auto world_size = static_cast<size_t>(exchange_->world_size());
  std::vector<const float*> at(world_size);
  std::vector<WholePiece> rooms;
  const auto place = [this](const void* of, uint64_t element) {
    return static_cast<const char*>(of) + element * bytes_of(reduce_);
  };
  for (size_t i = 0; i < arrived.parameters.size(); ++i) {
    const ParameterRow& row = model.parameter(arrived.parameters[i]);
    const ScatterItem& item = arrived.items[i];
    const OwnersOfRange& owners = *item.of;
    uint64_t done = 0;
    for (const ShardPiece& piece : owners.own) {
      const auto all = static_cast<uint64_t>(piece.range.count);
      uint64_t block = all;
      if (reduce_ != DType::kF32) {
        block = float_block(all);
        rooms.clear();
        const auto take_rooms = [&] {
          std::vector<WholePiece> made(world_size);
          for (size_t rank = 0; rank < world_size; ++rank) {
            if (!arrived.round->adds[rank]) continue;
            made[rank] =
                memory_->take(block * sizeof(float), {"parts of the gradient of ", row.name, " as f32"}, kFloatsSide);
          }
          return made;
        };
        rooms = of_as_many(block, take_rooms, arrived.least_room[i] != nullptr);
      }
      for (uint64_t begin = 0; begin < all; begin += block) {
        const uint64_t count = std::min(block, all - begin);
        for (size_t rank = 0; rank < world_size; ++rank) {
          if (!arrived.round->adds[rank]) continue;
          const auto from = static_cast<int32_t>(rank);
          const void* const there =
              from == exchange_->rank()
                  ? place(item.addend, static_cast<uint64_t>(piece.range.first) - row.offset + begin)
                  : place(item.received, exchange_->place_of(from) * owners.owned + done + begin);
          float* floats = nullptr;
          if (!rooms.empty()) {
            floats = rooms[rank].floats();
          } else if (arrived.least_room[i] != nullptr) {
            floats = arrived.least_room[i] + rank * kLeastFloats;
          }
          at[rank] = as_floats(there, count, floats);
        }
        sums_.add(*arrived.round, static_cast<uint64_t>(piece.shard_offset) + begin, count, at);
      }
      done += all;
    }
  }
}

void Runtime::drain_scatterings(bool all, bool lingering) {
  or_give_up([&] {
    while (!scatterings_.empty() && (lingering || !scatterings_.front().lingers)) {
      if (!all && !scatterings_.front().is_passed) return;
      add_up_oldest();
    }
  });
}

void Runtime::add_up_oldest() {
  if (here_) {
    synchronize(*scatterings_.front().done, TracedTransfer::Kind::kReduce, scatterings_.front().parameters.front());
  }
  Scattering oldest = std::move(scatterings_.front());
  scatterings_.pop_front();
  on_way_bytes_ -= oldest.bytes;
  add_received(oldest);
  if (here_) {
    spare_events_.push_back(std::move(*oldest.done));
    return;
  }
  Room room{std::move(oldest.gradients), std::move(oldest.received)};
  if (memory_->budget() == 0) {
    room.received.clear();  // none but the exchange's stream uses that
    room.done.emplace(take_event());
    room.done->record(exchange_stream_);
  }
  if (oldest.lingers) {
    for (std::vector<WholePiece>* const pieces : {&room.gradients, &room.received}) {
      for (WholePiece& piece : *pieces) piece.end_use();
    }
    lingering_ = std::move(room);
  } else {
    let_go(std::move(room));
  }
}

void Runtime::bound_on_way(uint64_t bytes) {
  if (!here_ || memory_->budget() > 0) return;
  or_give_up([&] {
    const uint64_t most = on_way_bytes(whole_gradient_);
    while (scatterings_.size() >= kGroupsOnWay && on_way_bytes_ + bytes > most) add_up_oldest();
  });
}

// On a device nobody waits but the program's stream, for the additions that are enqueued already.
void Runtime::keep_from_being_whole(uint64_t bytes) {
  const auto is_whole = [&] { return memory_->gradients() + bytes >= whole_gradient_; };
  or_give_up([&] {
    while (here_ && !scatterings_.empty() && is_whole()) add_up_oldest();
  });
  if (here_ || !lingering_ || !is_whole()) return;
  retire();
  wait_for_let_go();
}

// An arena knows by events who used what last, and has others wait for it.
void Runtime::let_go(Room room) {
  if (memory_->budget() == 0) let_go_.push_back(std::move(room));
}

void Runtime::retire() {
  if (memory_->budget() > 0 && lingers_here()) drain_scatterings(true);
  if (!lingering_) return;
  let_go(std::move(*lingering_));
  lingering_.reset();
}

void Runtime::wait_for_let_go() {
  while (!let_go_.empty()) {
    Room& room = let_go_.front();
    program_.wait(*room.done);
    spare_events_.push_back(std::move(*room.done));
    let_go_.pop_front();
  }
}

void Runtime::measure(size_t micro_batch, uint64_t offset, const float* there, uint64_t count) {
  const size_t of_step = done_ + micro_batch;
  if (here_ && there != nullptr) return measure_(of_step, offset, std::span(there, count));
  measured_.assign(count, 0.0F);
  if (there != nullptr) {
    exchange_stream_.copy(measured_.data(), there, count * sizeof(float));
    exchange_stream_.synchronize();
  }
  measure_(of_step, offset, measured_);
}

void Runtime::end_pass() {
  if (!in_pass_) throw Error(Status::kFailedPrecondition, "no pass is open; call begin_pass first");
  require_sound();
  if (!visits_.empty()) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("{} was entered but not left; leave every module before the pass ends",
                            model.modules()[visits_.back().module].name));
  }
  const RecordedCall recorded(recorder_, *memory_, TracedCall::Kind::kEndPass);
  clear_way();
  note(Visited::Kind::kEndPass);
  follow([&] { return coordinator_.end_pass(); });
  if (with_gradient_) {
    std::vector<uint32_t> rest;
    for (uint32_t parameter = 0; parameter < held_.size(); ++parameter) {
      const bool is_left = std::binary_search(complete_.begin(), complete_.end(), parameter);
      if (!model.parameter(parameter).frozen && (!held_[parameter].is_reduced || is_left)) rest.push_back(parameter);
    }
    complete_.clear();
    or_give_up([&] { reduce_rest(rest); });
    drain_scatterings(true);
    retire();
    wait_for_let_go();  // the next forward has better use for that memory
    for (size_t micro_batch = 0; measure_ && micro_batch < micro_batches_ && has_rows(micro_batch); ++micro_batch) {
      for (const ParameterRow& row : model.parameters()) {
        if (row.frozen)
          measure(micro_batch, row.offset, nullptr, row.elements);  // zeros, as a whole gradient has there
      }
    }
    done_ += micro_batches_;
    last_pass_.swap(pass_);
    last_pass_micro_batches_ = micro_batches_;
  }
  in_pass_ = false;
  const int32_t trace = coordinator_.trace();
  if (trace == PLIANT_TRACE_NONE) return;
  ++traced_passes_.all;
  if (follows_trace_ && trace == PLIANT_TRACE_COMPLETE) ++traced_passes_.followed;
}

GradientFacts Runtime::finish_gradient(double scale) {
  const RecordedCall recorded(recorder_, *memory_, TracedCall::Kind::kEndStep);
  follow([&] { return coordinator_.end_step(); });
  const uint64_t elements = model.elements();
  float* const total = sums_.total();
  const FlatRange all{0, static_cast<int64_t>(elements)};
  const std::vector<ShardPiece> pieces = exchange_->owners_of(layout_, ownership_, all).own;
  const auto world_size = static_cast<size_t>(exchange_->world_size());
  std::vector<uint64_t> counts(world_size);
  for (const ShardPiece& piece : ownership_.pieces_of(layout_, all)) {
    counts[static_cast<size_t>(piece.owner)] += norm_chunks(static_cast<uint64_t>(piece.range.count));
  }
  uint64_t chunks = 0;
  for (const uint64_t count : counts) chunks += count;
  const uint64_t own = counts[static_cast<size_t>(exchange_->rank())];
  Buffer norms(accelerator_, device_, std::max<uint64_t>(own + chunks, 1) * sizeof(double));
  auto* const own_norms = static_cast<double*>(norms.pointer());
  double* const all_norms = own_norms + own;
  uint64_t done = 0;
  for (const ShardPiece& piece : pieces) {
    float* const at = total + piece.shard_offset;
    const std::array<const void*, 1> from{at};
    const auto count = static_cast<uint64_t>(piece.range.count);
    exchange_stream_.reduce(at, from, count, DType::kF32, ReduceOp::kSum, scale);
    squared_norms(exchange_stream_, own_norms + done, at, count);
    done += norm_chunks(count);
  }
  communicator_->all_gather_v(own_norms, all_norms, counts, DType::kF64, exchange_stream_);
  std::vector<double> of_ranks(chunks);
  exchange_stream_.copy(of_ranks.data(), all_norms, chunks * sizeof(double));
  exchange_stream_.synchronize();
  while (!gatherings_.empty()) forget_oldest_gather();
  // In the order of the flat space, whoever owns what.
  std::vector<uint64_t> next(world_size);
  for (size_t rank = 1; rank < world_size; ++rank) next[rank] = next[rank - 1] + counts[rank - 1];
  NormTree tree;
  for (const ShardPiece& piece : ownership_.pieces_of(layout_, all)) {
    uint64_t& at = next[static_cast<size_t>(piece.owner)];
    const uint64_t count = norm_chunks(static_cast<uint64_t>(piece.range.count));
    tree.add(std::span(of_ranks).subspan(at, count));
    at += count;
  }
  if (recorder_ != nullptr) recorder_->end_step(exchange_stream_);
  facts_.squared_norm = tree.sum();
  facts_.finite = std::isfinite(facts_.squared_norm);
  if (costs_.measures()) agree_on_costs();
  return facts_;
}

void Runtime::agree_on_costs() {
  std::vector<uint64_t> bytes;
  for (const ParameterRow& row : model.parameters()) bytes.push_back(row.elements * bytes_of(compute_));
  std::vector<uint64_t> costs = costs_.nanoseconds(bytes);
  costs_.begin_step(false);
  combine_over_ranks(costs, ReduceOp::kMin);  // of the rank that came last, and waited for none
  coordinator_.set_costs(costs);
}

void Runtime::for_each_owned(bool to_update, const std::function<void(const ShardRange&)>& each) {
  std::vector<float*> states(state_names_.size());
  for (uint32_t parameter = 0; parameter < model.parameters().size(); ++parameter) {
    const ParameterRow& row = model.parameter(parameter);
    if ((row.frozen && to_update) || row.elements == 0) continue;
    for (const ShardPiece& piece : owners_[parameter].own) {
      for (size_t i = 0; i < states.size(); ++i) states[i] = array(i + 1) + piece.shard_offset;
      ShardRange range;
      range.parameter = ParameterId{parameter};
      range.first = static_cast<uint64_t>(piece.range.first) - row.offset;
      range.count = static_cast<uint64_t>(piece.range.count);
      range.weights = array(0) + piece.shard_offset;
      if (to_update) range.gradient = sums_.total() + piece.shard_offset;
      range.state = states;
      each(range);
    }
  }
}

void Runtime::visit_owned(const std::function<void(const ShardRange&)>& each) {
  require_group();
  require_no_pass();
  for_each_owned(false, each);
}

double Runtime::squared_gradient_norm() const {
  if (has_norm_) return facts_.squared_norm;
  throw Error(Status::kFailedPrecondition,
              "squared_gradient_norm was called without a committed step that was not skipped; call it after "
              "Step::commit, which sums the gradient over the ranks, and before Session::next");
}

void Runtime::update(const std::function<void(const ShardRange&)>& each) {
  require_group();
  if (!may_update_) {
    throw Error(Status::kFailedPrecondition,
                "update was called without a committed step that was not skipped; call it once after each Step::commit "
                "that returned a value");
  }
  require_no_pass();
  release_what_is_left();  // by a pass since the commit; it would stay as it was
  timed([this] { shards_.require_unchanged(); });
  may_update_ = false;  // and not before: an update that was refused is still owed
  shards_.begin_change();
  for_each_owned(true, each);
  follow_program();
  shards_.end_change(after_update_);
  if (std::exchange(digests_after_update_, false)) {
    // At once: what changes from here on until the next update is none of its doing.
    program_.synchronize();
    timed([this] { static_cast<void>(shards_.digests()); });
  }
  is_cast_ = false;
  for (uint32_t parameter = 0; parameter < held_.size(); ++parameter) {
    if (!held_[parameter].by_hand) continue;
    release(parameter);
    held_[parameter].was_let_go = true;
  }
}

void Runtime::combine_over_ranks(std::span<uint64_t> values, ReduceOp how) {
  if (exchange_->world_size() == 1 || values.empty()) return;
  Buffer there(accelerator_, device_, values.size_bytes());
  exchange_stream_.copy(there.pointer(), values.data(), values.size_bytes());
  communicator_->all_reduce(there.pointer(), there.pointer(), values.size(), DType::kI64, how, exchange_stream_);
  exchange_stream_.copy(values.data(), there.pointer(), values.size_bytes());
  exchange_stream_.synchronize();
}

}  // namespace pliant::sharded
