#include "sharded/step_clock.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/result.hpp"
#include "sharded/arena_needs.hpp"
#include "sharded/exchange.hpp"
#include "sharded/segments.hpp"
#include "sharded/shard_memory.hpp"

namespace pliant::sharded {
namespace {

/// Elements of a gradient that a device casts at once within a budget, and looks through at once: Runtime::float_block
/// and DeviceSums.
constexpr uint64_t kBlock = uint64_t{1} << 18U;

constexpr uint64_t kFloat = sizeof(float);

/// `each` is told of all `elements`, so many at a time.
template <class Each>
void in_blocks(uint64_t elements, uint64_t block, const Each& each) {
  for (uint64_t at = 0; at < elements; at += block) each(std::min(block, elements - at));
}

}  // namespace

uint64_t WorkCost::of(uint64_t bytes) const {
  return start_ns + static_cast<uint64_t>(std::ceil(static_cast<double>(bytes) / gbps));
}

StepClock::StepClock(const ModelTables& model, const Job& job, const StepCosts& costs)
    : model_(model),
      job_(job),
      costs_(costs),
      of_ranks_(static_cast<size_t>(job.world_size)),
      ranks_(static_cast<size_t>(job.world_size)) {
  const FlatLayout layout = or_throw(FlatLayout::create(static_cast<int64_t>(model.elements())));
  const Ownership ownership = dealt(model, layout, job.world_size);
  add_pieces(layout, ownership);
  const auto parameters = static_cast<uint32_t>(model.parameters().size());
  for (uint32_t i = 0; i < parameters; ++i) cost_.push_back(cost_of(i));
  if (job.whole != DType::kF32) add_casts_of_weights(layout, ownership);
  arrives_.resize(parameters);
  gradients_.resize(parameters);
  if (job.budget > 0 && job.reduce != DType::kF32) {
    arena_.emplace(model, job.world_size, bytes_of(job.whole), bytes_of(job.reduce), job.budget);
  }
  plan_rounds();
}

void StepClock::add_pieces(const FlatLayout& layout, const Ownership& ownership) {
  for (const ParameterRow& row : model_.parameters()) {
    first_piece_.push_back(pieces_.size());
    const FlatRange range{static_cast<int64_t>(row.offset), static_cast<int64_t>(row.elements)};
    for (const ShardPiece& piece : ownership.pieces_of(layout, range)) {
      const auto count = static_cast<uint64_t>(piece.range.count);
      pieces_.push_back({static_cast<uint32_t>(piece.owner), count, sums_of(count, block_of(count))});
    }
  }
  first_piece_.push_back(pieces_.size());
}

void StepClock::add_casts_of_weights(const FlatLayout& layout, const Ownership& ownership) {
  for (int32_t rank = 0; rank < job_.world_size; ++rank) {
    const uint64_t shard = ShardArray::value_bytes(layout, ownership.chunks_of(rank)) / kFloat;
    ranks_[static_cast<size_t>(rank)].cast_weights_ns = costs_.local.of(shard * (kFloat + bytes_of(job_.whole)));
  }
}

// Runtime::add_received.
StepClock::Sums StepClock::sums_of(uint64_t elements, uint64_t block) const {
  Sums made;
  in_blocks(elements, block, [&](uint64_t count) {
    made.set += costs_.local.of(2 * kFloat * count);
    made.add += costs_.local.of(3 * kFloat * count);
    if (job_.reduce != DType::kF32) made.cast += costs_.local.of((kFloat + bytes_of(job_.reduce)) * count);
  });
  return made;
}

StepClock::Together StepClock::together(std::span<const uint32_t> parameters) {
  Together made;
  size_t owners = 0;
  for (const uint32_t parameter : parameters) {
    for (const Piece& piece : pieces(parameter)) {
      uint64_t& owned = of_ranks_[piece.rank];
      owners += owned == 0 ? 1 : 0;
      owned += piece.count;
      made.all += piece.count;
      made.most = std::max(made.most, owned);
    }
  }
  if (owners == of_ranks_.size()) made.least = *std::min_element(of_ranks_.begin(), of_ranks_.end());
  for (const uint32_t parameter : parameters) {
    for (const Piece& piece : pieces(parameter)) of_ranks_[piece.rank] = 0;
  }
  return made;
}

uint64_t StepClock::gather_takes(std::span<const uint32_t> parameters, uint64_t sum) {
  if (costs_.by == StepCosts::By::kWhole) return sum;
  const Together group = together(parameters);
  return group.all == 0 ? 0 : costs_.gather.of((group.all - group.least) * bytes_of(job_.whole));
}

uint64_t StepClock::reduce_takes(std::span<const uint32_t> parameters, uint64_t sum) {
  if (costs_.by == StepCosts::By::kWhole) return sum;
  const Together group = together(parameters);
  return group.all == 0 ? 0 : costs_.reduce.of(received_elements(group.most, job_.world_size) * bytes_of(job_.reduce));
}

void StepClock::plan_rounds() {
  const int64_t rows = job_.passes * job_.world_size;
  SumRounds sums(job_.deterministic);
  sums.begin_step(rows, 1,
                  share_out(rows, {.world_size = job_.world_size,
                                   .micro_batch = 1,
                                   .granule = 1,
                                   .deterministic = job_.deterministic,
                                   .in_turn = true}));
  for (size_t i = 0; i < sums.rounds(); ++i) {
    Round round;
    for (const SumRound::Operation& one : sums.begin_round().operations)
      (one.kind == SumRound::Operation::kSet ? round.sets : round.adds) += 1;
    rounds_.push_back(round);
  }
}

uint64_t StepClock::block_of(uint64_t elements) const {
  return job_.budget > 0 && job_.reduce != DType::kF32 ? std::min(elements, kBlock) : elements;
}

// DeviceSums::finite_there, a block at a time; the host reads what is left of each.
uint64_t StepClock::look_cost(uint64_t elements, uint64_t block) const {
  uint64_t takes = 0;
  const auto look = [&](uint64_t several) {
    uint64_t done = 0;
    in_blocks(several, kBlock, [&](uint64_t count) {
      takes += costs_.local.of(2 * kFloat * count);
      if (std::exchange(done, done + count) > 0) takes += costs_.local.of(3 * kFloat * count);
    });
    takes += costs_.local.of(2 * kFloat * std::min(several, kBlock));
  };
  if (job_.reduce == DType::kF32) {
    look(elements);
  } else {
    in_blocks(elements, block, [&](uint64_t count) {
      takes += costs_.local.of((kFloat + bytes_of(job_.reduce)) * count);
      look(count);
    });
  }
  return takes;
}

StepClock::Cost StepClock::cost_of(uint32_t parameter) {
  Cost made;
  const uint64_t all = elements(parameter);
  if (all == 0) return made;
  const std::span<const uint32_t> alone(&parameter, 1);
  made.gather = gather_takes(alone, costs_.gather.of(all * bytes_of(job_.whole)));
  made.reduce = job_.world_size == 1 ? 0 : reduce_takes(alone, costs_.reduce.of(all * bytes_of(job_.reduce)));
  made.zero = costs_.local.of(all * bytes_of(job_.reduce));
  if (job_.looks_at_gradients) made.look = look_cost(all, block_of(all));
  return made;
}

void StepClock::follow_program() {
  for (Rank& rank : ranks_) {
    rank.program = std::max(rank.program, rank.host);
    rank.exchange = std::max(rank.exchange, rank.program);
  }
}

void StepClock::exchange(uint64_t takes) {
  for (Rank& rank : ranks_) rank.exchange = std::max(rank.exchange, rank.host) + takes;
}

void StepClock::compute(uint64_t takes, uint64_t after) {
  for (Rank& rank : ranks_) rank.program = std::max({rank.program, rank.host, after}) + takes;
}

uint64_t StepClock::collective(uint64_t takes) {
  uint64_t begin = 0;
  for (const Rank& rank : ranks_) begin = std::max({begin, rank.exchange, rank.host});
  for (Rank& rank : ranks_) rank.exchange = begin + takes;
  return begin + takes;
}

uint64_t StepClock::end() const {
  uint64_t last = 0;
  for (const Rank& rank : ranks_) last = std::max({last, rank.host, rank.program, rank.exchange});
  return last;
}

void StepClock::hear(const RehearsedCall& call, uint64_t compute_ns) {
  if (call.kind == RehearsedCall::Kind::kBeginPass) begin_pass();
  carry_out(call.actions);
  if (call.kind == RehearsedCall::Kind::kEnter && call.backward) {
    const std::vector<uint32_t>& used = model_.modules()[*call.module].used;
    if (arena_) arena_->take_gradients(used);
    for (const uint32_t parameter : used) take_gradient(parameter);
  }
  if (compute_ns > 0) {
    compute(compute_ns);
    step_.compute_ns += compute_ns;
  }
  if (call.kind == RehearsedCall::Kind::kEndPass) end_pass(call.with_gradient);
  if (call.kind == RehearsedCall::Kind::kEndStep) {
    const uint64_t ended = end();
    for (Rank& rank : ranks_) rank.host = rank.program = rank.exchange = ended;
    in_step_ = is_cast_ = false;
    pass_ = 0;
  }
}

void StepClock::begin_pass() {
  std::fill(gradients_.begin(), gradients_.end(), Gradient{});
  if (arena_) arena_->begin_pass();
  if (std::exchange(in_step_, true)) return;
  begin_ns_ = end();
  step_ = {};
}

// Runtime::reduce_rest.
void StepClock::end_pass(bool with_gradient) {
  std::vector<uint32_t> rest;
  for (uint32_t parameter = 0; with_gradient && parameter < gradients_.size(); ++parameter) {
    if (!model_.parameter(parameter).frozen && !gradients_[parameter].is_reduced) rest.push_back(parameter);
  }
  for (size_t begin = 0, ends = 0; begin < rest.size(); begin = ends) {
    ends = rest_ends(model_, rest, begin, job_.budget);
    reduce(std::span(rest).subspan(begin, ends - begin));
  }
  pass_ += with_gradient ? 1 : 0;
  step_.all_ns = end() - begin_ns_;
}

void StepClock::carry_out(std::span<const pliant_action> actions) {
  for (size_t i = 0; i < actions.size();) {
    const pliant_action& action = actions[i];
    const bool is_of_group = action.kind == PLIANT_ACTION_GATHER || action.kind == PLIANT_ACTION_REDUCE;
    size_t end = i + 1;
    while (is_of_group && end < actions.size() && actions[end].kind == action.kind &&
           actions[end].group == action.group) {
      ++end;
    }
    const std::span<const pliant_action> group = actions.subspan(i, end - i);
    i = end;
    // A bound of waits holds up the host until gathers have ended that the program waits for anyway.
    if (action.kind == PLIANT_ACTION_GATHER) gather(group);
    if (action.kind == PLIANT_ACTION_WAIT) compute(0, arrives_[action.parameter]);
    if (action.kind == PLIANT_ACTION_RELEASE) {
      follow_program();
      if (arena_) arena_->release(action.parameter);
    }
    if (action.kind != PLIANT_ACTION_REDUCE) continue;
    reduced_.clear();
    for (const pliant_action& one : group) reduced_.push_back(one.parameter);
    reduce(reduced_);
  }
}

void StepClock::gather(std::span<const pliant_action> group) {
  group_.clear();
  uint64_t takes = 0;
  for (const pliant_action& action : group) {
    if (arena_) arena_->gather(action);
    takes += cost_[action.parameter].gather;
    if (elements(action.parameter) > 0) group_.push_back(action.parameter);
  }
  if (group_.size() > 1) takes = gather_takes(group_, takes);
  if (!group_.empty() && job_.whole != DType::kF32 && !std::exchange(is_cast_, true)) {
    for (Rank& rank : ranks_) rank.exchange = std::max(rank.exchange, rank.host) + rank.cast_weights_ns;
  }
  const uint64_t arrives = collective(takes);
  for (const pliant_action& action : group) arrives_[action.parameter] = arrives;
  if (step_.gather_ns == 0) step_.first_gather_ns = takes;
  step_.gather_ns += takes;
}

// Zeros come on the exchange's stream, which had the memory before; the program waits for all that is there.
void StepClock::take_gradient(uint32_t parameter) {
  Gradient& one = gradients_[parameter];
  if (model_.parameter(parameter).frozen || one.is_reduced || std::exchange(one.is_zeroed, true)) return;
  if (elements(parameter) == 0) return;
  exchange(cost_[parameter].zero);
  for (Rank& rank : ranks_) rank.program = std::max(rank.program, rank.exchange);
}

void StepClock::reduce(std::span<const uint32_t> parameters) {
  if (arena_) arena_->send(parameters);
  uint64_t takes = 0;
  uint64_t all = 0;
  const Round round = rounds_[std::min(pass_, rounds_.size() - 1)];
  for (const uint32_t parameter : parameters) {
    const Cost& cost = cost_[parameter];
    take_gradient(parameter);
    gradients_[parameter].is_reduced = true;
    takes += cost.reduce;
    for (const Piece& piece : pieces(parameter)) {
      Sums sums = piece.sums;
      if (arena_) {
        sums = sums_of(piece.count, arena_->float_block(block_of(piece.count), ranks_.size()));
      }
      ranks_[piece.rank].sums_ns += round.sets * sums.set + round.adds * sums.add + ranks_.size() * sums.cast;
    }
    all += elements(parameter);
  }
  if (all == 0) return;
  follow_program();
  for (const uint32_t parameter : parameters) {
    uint64_t look = cost_[parameter].look;
    if (look == 0) continue;
    if (arena_) look = look_cost(elements(parameter), arena_->float_block(block_of(elements(parameter)), 1));
    exchange(look);
    for (Rank& rank : ranks_) rank.host = rank.exchange;
  }
  if (job_.world_size > 1 && parameters.size() > 1) takes = reduce_takes(parameters, takes);
  collective(takes);
  step_.reduce_ns += takes;
  step_.last_reduce_ns = takes;
  for (Rank& rank : ranks_) rank.exchange += std::exchange(rank.sums_ns, 0);
  if (arena_) arena_->added();
}

}  // namespace pliant::sharded
