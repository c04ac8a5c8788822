#include "sharded/step_clock.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "accelerator/device_look.hpp"
#include "base/result.hpp"
#include "pliant/optimizer.hpp"
#include "sharded/action_group.hpp"
#include "sharded/memory/arena_needs.hpp"
#include "sharded/memory/shard_memory.hpp"
#include "sharded/shards/exchange.hpp"
#include "sharded/shards/segments.hpp"

namespace pliant::sharded {
namespace {

/// Elements of a gradient that a device casts at once within a budget: Runtime::float_block.
constexpr uint64_t kBlock = uint64_t{1} << 18U;

constexpr uint64_t kFloat = sizeof(float);
constexpr uint64_t kDouble = sizeof(double);

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
      side_by_side_(side_by_side(model)),
      ranks_(static_cast<size_t>(job.world_size)) {
  const FlatLayout layout = or_throw(FlatLayout::create(static_cast<int64_t>(model.elements())));
  const Ownership ownership = dealt(model, layout, job.world_size);
  add_pieces(layout, ownership);
  const auto parameters = static_cast<uint32_t>(model.parameters().size());
  for (uint32_t i = 0; i < parameters; ++i) cost_.push_back(cost_of(i));
  if (job.whole != DType::kF32) add_casts_of_weights(layout, ownership);
  arrives_.resize(parameters);
  measuring_.resize(parameters);
  gradients_.resize(parameters);
  if (job.budget > 0) {
    arena_.emplace(model, StepArena::Of{job.world_size, job.whole, job.reduce, job.budget, job.micro_batches},
                   [this] { return now(); });
  }
  look_capacity_ = norm_chunks(looked_at_together(model)) + detail::DeviceLook::kPartsAtOnce;
  plan_rounds();
}

StepArena::Moment StepClock::now() {
  const size_t named = moments_.size();
  bool is_new = named == 0;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    moments_.push_back(std::max(ranks_[i].exchange, ranks_[i].host));
    is_new = is_new || moments_.back() != moments_[named + i - ranks_.size()];
  }
  if (!is_new) moments_.resize(named);  // the newest one is the same
  return static_cast<StepArena::Moment>(moments_.size() / ranks_.size() - 1);
}

void StepClock::add_pieces(const FlatLayout& layout, const Ownership& ownership) {
  for (const ParameterRow& row : model_.parameters()) {
    first_piece_.push_back(pieces_.size());
    const FlatRange range{static_cast<int64_t>(row.offset), static_cast<int64_t>(row.elements)};
    for (const ShardPiece& piece : ownership.pieces_of(layout, range)) {
      const auto count = static_cast<uint64_t>(piece.range.count);
      pieces_.push_back({static_cast<uint32_t>(piece.owner), count});
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

// Runtime::add_received, and ShardSums on a device.
uint64_t StepClock::sums_of(const Round& round, uint64_t elements, uint64_t block) const {
  uint64_t takes = 0;
  in_blocks(elements, block, [&](uint64_t count) {
    for (const uint64_t sources : round) takes += costs_.local.of((sources + 1) * kFloat * count);
    if (job_.reduce == DType::kF32) return;
    takes += ranks_.size() * costs_.local.of((kFloat + bytes_of(job_.reduce)) * count);
  });
  return takes;
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
  const int64_t rows = job_.rounds * job_.world_size;
  SumRounds sums(job_.deterministic);
  sums.begin_step(rows, 1,
                  share_out(rows, {.world_size = job_.world_size,
                                   .micro_batch = 1,
                                   .granule = 1,
                                   .deterministic = job_.deterministic,
                                   .in_turn = true}));
  for (size_t i = 0; i < sums.rounds(); ++i) {
    const SumRound& of_step = sums.begin_round();
    Round round;
    for (size_t begin = 0, end = 0; begin < of_step.operations.size(); begin = end) {
      end = of_step.run_ends(begin);
      round.push_back(end - begin + (of_step.operations[begin].kind == SumRound::Operation::kSet ? 0 : 1));
    }
    rounds_.push_back(std::move(round));
  }
}

uint64_t StepClock::block_of(uint64_t elements) const {
  return job_.budget > 0 && job_.reduce != DType::kF32 ? std::min(elements, kBlock) : elements;
}

StepClock::Cost StepClock::cost_of(uint32_t parameter) {
  Cost made;
  const uint64_t all = elements(parameter);
  if (all == 0) return made;
  const std::span<const uint32_t> alone(&parameter, 1);
  made.gather = gather_takes(alone, costs_.gather.of(all * bytes_of(job_.whole)));
  made.reduce = job_.world_size == 1 ? 0 : reduce_takes(alone, costs_.reduce.of(all * bytes_of(job_.reduce)));
  made.zero = costs_.local.of(all * bytes_of(job_.reduce));
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
  if (call.kind == RehearsedCall::Kind::kBeginPass) begin_pass(call);
  carry_out(call.actions);
  so_far_.compute_ns += compute_ns;
  if (call.kind == RehearsedCall::Kind::kEnter && call.backward) {
    enter_backward(model_.modules()[*call.module], compute_ns);
  } else if (compute_ns > 0) {
    compute(compute_ns);
  }
  if (call.kind == RehearsedCall::Kind::kEndPass) end_pass(call.with_gradient);
  if (call.kind == RehearsedCall::Kind::kEndStep) end_step();
}

void StepClock::begin_step() {
  step_ = {};
  is_begun_ = is_looking_ = false;
  look_ = {};
  round_ = 0;
  std::fill(measuring_.begin(), measuring_.end(), 0);
}

void StepClock::begin_pass(const RehearsedCall& call) {
  std::fill(gradients_.begin(), gradients_.end(), Gradient{});
  micro_batches_ = call.micro_batches;
  whole_gradient_ = whole_gradient_bytes(model_, side_by_side_, job_.reduce, micro_batches_);
  if (arena_) arena_->begin_pass();
  if (!call.with_gradient || std::exchange(is_begun_, true)) return;
  wait_for_all();  // an evaluation before it has a result
  begin_ns_ = end();
  so_far_ = {};
}

// Runtime::begin_micro_batch: what enters no other modules has one gradient, which leaves before the next one's turn.
void StepClock::enter_backward(const ModuleRow& module, uint64_t compute_ns) {
  if (arena_) arena_->take_gradients(module.used);
  if (arena_) wait_for_room();
  for (size_t micro_batch = 0; micro_batch < micro_batches_; ++micro_batch) {
    if (micro_batch > 0 && !module.has_inner()) send_early(module.used, micro_batch - 1);
    for (const uint32_t parameter : module.used) {
      if (!gradients_[parameter].is_reduced) zero_gradient(parameter, micro_batch);
    }
    const bool is_last = micro_batch + 1 == micro_batches_;
    const uint64_t each = compute_ns / micro_batches_;
    const uint64_t takes = is_last ? compute_ns - each * micro_batch : each;
    if (takes > 0) compute(takes);
  }
}

void StepClock::wait_for_all() {
  const uint64_t ended = end();
  for (Rank& rank : ranks_) rank.host = rank.program = rank.exchange = ended;
}

// Runtime::finish_gradient.
void StepClock::end_step() {
  wait_for_all();
  is_cast_ = false;
  if (arena_) arena_->end_step();
  moments_.clear();
  let_go_.clear();
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
  retire();
  if (with_gradient && !arena_) wait_for_room();
  if (!with_gradient) return;
  round_ += micro_batches_;
  so_far_.all_ns = end() - begin_ns_;
  step_ = so_far_;
}

void StepClock::carry_out(std::span<const pliant_action> actions) {
  while (!actions.empty()) {
    const std::span<const pliant_action> group = take_group(actions);
    const pliant_action& action = group.front();
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
    reduce(reduced_, (action.flags & PLIANT_ACTION_LINGER) != 0);
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
  measure(takes);
  for (const pliant_action& action : group) arrives_[action.parameter] = arrives;
  if (so_far_.gather_ns == 0) so_far_.first_gather_ns = takes;
  so_far_.gather_ns += takes;
}

// GatherCosts.
void StepClock::measure(uint64_t takes) {
  uint64_t all = 0;
  for (const uint32_t parameter : group_) all += elements(parameter);
  for (const uint32_t parameter : group_) {
    const double share = static_cast<double>(elements(parameter)) / static_cast<double>(all);
    const auto cost = static_cast<uint64_t>(std::max(static_cast<double>(takes) * share, 1.0));
    uint64_t& least = measuring_[parameter];
    least = least == 0 ? cost : std::min(least, cost);
  }
}

// Runtime::retire.
void StepClock::retire() {
  if (arena_) return arena_->retire();
  if (lingering_) let_go_.push_back(*std::exchange(lingering_, std::nullopt));
  taken_.let_go += std::exchange(taken_.lingering, 0);
}

uint64_t StepClock::room_of_gradient(uint32_t parameter) const {
  const size_t several = side_by_side_[parameter] ? micro_batches_ : 1;
  return several * WholeMemory::taken_by(elements(parameter) * bytes_of(job_.reduce));
}

// Runtime::take_gradient_room and keep_from_being_whole.
void StepClock::take_room(uint32_t parameter) {
  wait_for_room();
  const uint64_t bytes = room_of_gradient(parameter);
  if (lingering_ && taken_.all + bytes >= whole_gradient_) {
    retire();
    wait_for_room();
  }
  taken_.all += bytes;
}

void StepClock::wait_for_room() {
  waits_.clear();
  if (arena_) {
    arena_->take_waits(waits_);
  } else {
    waits_.swap(let_go_);
    taken_.all -= std::exchange(taken_.let_go, 0);
  }
  for (const StepArena::Moment until : waits_) {
    const uint64_t* const of_ranks = moments_.data() + until * ranks_.size();
    for (size_t i = 0; i < ranks_.size(); ++i) ranks_[i].program = std::max(ranks_[i].program, of_ranks[i]);
  }
  if (!arena_ && !lingering_) moments_.clear();
}

// Zeros come on the program's stream, which waits for who had the memory before: also for the gradient of the
// micro-batch before.
void StepClock::zero_gradient(uint32_t parameter, size_t micro_batch) {
  Gradient& one = gradients_[parameter];
  if (model_.parameter(parameter).frozen || one.zeroed > micro_batch) return;
  one.zeroed = micro_batch + 1;
  const bool is_next = micro_batch > 0 && !side_by_side_[parameter];
  if (!arena_ && (micro_batch == 0 || is_next)) take_room(parameter);
  if (elements(parameter) == 0) return;
  for (Rank& rank : ranks_) {
    if (arena_ && is_next) rank.program = std::max({rank.program, rank.exchange, rank.host});
  }
  compute(cost_[parameter].zero);
}

// DeviceLook.
bool StepClock::fold(uint64_t numbers) {
  bool lies_apart = false;
  if (numbers > 1) exchange(costs_.local.of(2 * kDouble * numbers));
  while (numbers > 1) {
    lies_apart = !lies_apart;
    const uint64_t fewer = norm_chunks(2 * numbers);
    exchange(costs_.local.of(2 * kFloat * numbers + kDouble * fewer));
    numbers = fewer;
  }
  return lies_apart;
}

void StepClock::settle() {
  if (look_.first < look_.closed) {
    fold(look_.closed - look_.first);
    exchange(costs_.local.of(3 * kDouble));
  }
  look_.first = look_.closed;
  if (look_.first == look_.used) look_.first = look_.closed = look_.used = 0;
}

void StepClock::look(uint64_t count) {
  const uint64_t more = norm_chunks(count);
  if (!std::exchange(is_looking_, true)) exchange(costs_.local.of(kDouble * rounds_.size()));
  if (look_.used + more > look_capacity_) settle();
  if (look_.used + more > look_capacity_) {
    if (fold(look_.used - look_.first) || look_.first > 0) exchange(costs_.local.of(2 * kDouble));
    look_.first = look_.closed = 0;
    look_.used = 1;
  }
  exchange(costs_.local.of(kFloat * count + kDouble * more));
  look_.used += more;
}

// Runtime::look_at, of each.
void StepClock::look_at(std::span<const uint32_t> parameters, size_t of) {
  for (const uint32_t parameter : parameters) {
    const uint64_t all = elements(parameter);
    if (all == 0) continue;
    if (job_.reduce == DType::kF32) {
      look(all);
      continue;
    }
    uint64_t block = block_of(all);
    if (arena_) block = arena_->float_block(block, 1);
    in_blocks(all, block, [&](uint64_t count) {
      exchange(costs_.local.of((kFloat + bytes_of(job_.reduce)) * count));
      look(count);
    });
    if (arena_) arena_->were_cast();
  }
  if (look_.used == look_.closed) return;
  if (of != look_.block) settle();
  look_.block = of;
  look_.closed = look_.used;
}

void StepClock::reduce(std::span<const uint32_t> parameters, bool lingers) {
  for (const uint32_t parameter : parameters) gradients_[parameter].is_reduced = true;
  for (size_t micro_batch = 0; micro_batch < micro_batches_; ++micro_batch) {
    sent_.clear();
    for (const uint32_t parameter : parameters) {
      if (gradients_[parameter].sent == micro_batch) sent_.push_back(parameter);
    }
    send(sent_, micro_batch, lingers && micro_batch + 1 == micro_batches_);
  }
}

void StepClock::send_early(std::span<const uint32_t> used, size_t micro_batch) {
  sent_.clear();
  for (const uint32_t parameter : used) {
    const bool has_left = gradients_[parameter].is_reduced || model_.parameter(parameter).frozen;
    if (!has_left && !side_by_side_[parameter]) sent_.push_back(parameter);
  }
  if (!sent_.empty()) send(sent_, micro_batch, false);
}

void StepClock::send(std::span<const uint32_t> parameters, size_t micro_batch, bool lingers) {
  retire();
  uint64_t takes = 0;
  uint64_t all = 0;
  uint64_t freed = 0;  // bytes, once it is added up
  const Round& round = rounds_[std::min(round_ + micro_batch, rounds_.size() - 1)];
  for (const uint32_t parameter : parameters) {
    const Cost& cost = cost_[parameter];
    if (arena_ && elements(parameter) > 0) {
      arena_->send(parameter, micro_batch + 1 == micro_batches_);
      wait_for_room();
    }
    zero_gradient(parameter, micro_batch);
    gradients_[parameter].sent = micro_batch + 1;
    takes += cost.reduce;
    all += elements(parameter);
    const bool has_others = side_by_side_[parameter] && micro_batch + 1 < micro_batches_;
    if (!has_others) freed += room_of_gradient(parameter);
  }
  if (all == 0) return;
  follow_program();
  if (job_.looks_at_gradients) look_at(parameters, round_ + micro_batch);
  if (job_.world_size > 1 && parameters.size() > 1) takes = reduce_takes(parameters, takes);
  collective(takes);
  so_far_.reduce_ns += takes;
  so_far_.last_reduce_ns = takes;
  for (const uint32_t parameter : parameters) {
    for (const Piece& piece : pieces(parameter)) {
      uint64_t block = block_of(piece.count);
      if (arena_ && job_.reduce != DType::kF32) block = arena_->float_block(block, ranks_.size());
      ranks_[piece.rank].exchange += sums_of(round, piece.count, block);
    }
    if (arena_) arena_->were_cast();
  }
  if (arena_) {
    arena_->added(lingers);
  } else if (lingers) {
    lingering_ = now();
    taken_.lingering = freed;
  } else {
    let_go_.push_back(now());
    taken_.let_go += freed;
  }
}

}  // namespace pliant::sharded
