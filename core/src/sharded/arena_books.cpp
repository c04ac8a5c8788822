#include "sharded/arena_books.hpp"

#include <algorithm>
#include <utility>

#include "base/result.hpp"
#include "sharded/memory/whole_memory.hpp"
#include "sharded/shards/exchange.hpp"
#include "sharded/shards/segments.hpp"

namespace pliant::sharded {

ArenaBooks::ArenaBooks(const ModelTables& model, int32_t world_size, Types types, uint64_t budget, size_t micro_batches)
    : model_(model),
      world_size_(world_size),
      types_(types),
      budget_(budget),
      micro_batches_(micro_batches),
      side_by_side_(side_by_side(model)),
      whole_gradient_(whole_gradient_bytes(model, side_by_side_, types.reduce, micro_batches)),
      gradients_(model.parameters().size()),
      received_(static_cast<size_t>(world_size)),
      gather_of_(model.parameters().size()) {
  const FlatLayout layout = or_throw(FlatLayout::create(static_cast<int64_t>(model.elements())));
  parts_ = owned_parts(model, layout, dealt(model, layout, world_size));
  for (const std::vector<OwnedPart>& parts : parts_) {
    uint64_t& most = owned_.emplace_back();
    uint64_t& largest = largest_piece_.emplace_back();
    for (const OwnedPart& part : parts) {
      most = std::max(most, part.elements);
      largest = std::max(largest, part.largest_piece);
    }
  }
}

uint64_t ArenaBooks::take_most() {
  return std::exchange(most_, taken());
}

void ArenaBooks::take(uint64_t bytes) {
  taken_ += WholeMemory::taken_by(bytes);
  most_ = std::max(most_, taken());
}

void ArenaBooks::visit(uint64_t bytes) {
  const uint64_t there = taken() + bytes;
  most_ = std::max(most_, budget_ == 0 ? there : std::min(there, std::max(taken_, budget_)));
}

// Runtime::float_block, where the CPU adds.
uint64_t ArenaBooks::float_block(uint64_t elements) const {
  return budget_ == 0 ? elements : std::min(elements, kFloatsHere);
}

void ArenaBooks::hear(const RehearsedCall& call) {
  clear_way();
  if (call.kind == RehearsedCall::Kind::kBeginPass) {
    gradients_.assign(gradients_.size(), Gradient{});
    is_backward_ = false;
  }
  carry_out(call.actions);
  if (call.kind == RehearsedCall::Kind::kEnter) clear_way();
  if (call.kind == RehearsedCall::Kind::kEnter && call.backward) enter_backward(model_.modules()[*call.module]);
  if (call.kind == RehearsedCall::Kind::kEndPass && call.with_gradient) reduce_rest();
}

// Without a budget what enters no other modules has one gradient, which leaves before the next micro-batch's turn.
void ArenaBooks::enter_backward(const ModuleRow& module) {
  for (uint32_t parameter = 0; budget_ > 0 && !is_backward_ && parameter < gradients_.size(); ++parameter) {
    if (model_.parameter(parameter).external) take_gradient(parameter);
  }
  is_backward_ = true;
  for (const uint32_t parameter : module.used) take_gradient(parameter);
  if (budget_ > 0 || module.has_inner()) return;
  for (size_t micro_batch = 1; micro_batch < micro_batches_; ++micro_batch) {
    send_early(module.used, micro_batch - 1);
    for (const uint32_t parameter : module.used) take_gradient(parameter);
  }
}

// Runtime::reduce_rest, and the end of the pass.
void ArenaBooks::reduce_rest() {
  std::vector<uint32_t> rest;
  for (uint32_t parameter = 0; parameter < gradients_.size(); ++parameter) {
    if (!model_.parameter(parameter).frozen && !gradients_[parameter].is_reduced) rest.push_back(parameter);
  }
  for (size_t begin = 0, end = 0; begin < rest.size(); begin = end) {
    end = rest_ends(model_, rest, begin, budget_);
    reduce(std::span<const uint32_t>(rest).subspan(begin, end - begin));
    while (end < rest.size() && !groups_.empty()) add_up_oldest();
    if (budget_ > 0) clear_way();
  }
  clear_way();
  while (!groups_.empty()) add_up_oldest();
  retire();
  forget_let_go();
}

void ArenaBooks::carry_out(std::span<const pliant_action> actions) {
  for (size_t i = 0; i < actions.size(); ++i) {
    const pliant_action& action = actions[i];
    const auto is_of_group = [&](size_t other) {
      return other < actions.size() && actions[other].kind == action.kind && actions[other].group == action.group;
    };
    if (action.kind == PLIANT_ACTION_GATHER) gather(action, i == 0 || !is_of_group(i - 1));
    if (action.kind == PLIANT_ACTION_WAIT) wait(action.parameter);
    if (action.kind == PLIANT_ACTION_RELEASE) {
      taken_ -= WholeMemory::taken_by(model_.parameter(action.parameter).elements * bytes_of(types_.whole));
    }
    if (action.kind != PLIANT_ACTION_REDUCE) continue;
    group_.push_back(action.parameter);
    if (is_of_group(i + 1)) continue;
    reduce(group_, (action.flags & PLIANT_ACTION_LINGER) != 0);
    group_.clear();
  }
}

void ArenaBooks::gather(const pliant_action& action, bool begins_group) {
  if (begins_group) ++gathers_;
  gather_of_[action.parameter] = gathers_;
  take(model_.parameter(action.parameter).elements * bytes_of(types_.whole));
}

void ArenaBooks::wait(uint32_t parameter) {
  ended_gathers_ = std::max(ended_gathers_, gather_of_[parameter]);
}

// Runtime::take_gradient_room and put. What is cast to f32 is counted apart.
GradientRoom ArenaBooks::room_of(uint32_t parameter) const {
  const ParameterRow& row = model_.parameter(parameter);
  if (row.frozen) return {};
  const size_t several = side_by_side_[parameter] ? micro_batches_ : 1;
  const GradientRoom room{
      several * WholeMemory::taken_by(row.elements * bytes_of(types_.reduce)),
      WholeMemory::taken_by(received_elements(owned_[parameter], world_size_) * bytes_of(types_.reduce))};
  if (budget_ == 0 || micro_batches_ == 1 || row.elements == 0) return room;
  const uint64_t blocks =
      types_.reduce == DType::kF32 ? 0 : static_cast<uint64_t>(world_size_) * WholeMemory::taken_by(1);
  return {room.gradient + room.received + blocks, 0};
}

void ArenaBooks::take_gradient(uint32_t parameter) {
  Gradient& one = gradients_[parameter];
  if (model_.parameter(parameter).frozen || one.is_reduced || std::exchange(one.is_there, true)) return;
  forget_let_go();
  const uint64_t bytes = room_of(parameter).gradient;
  if (budget_ == 0) keep_from_being_whole(bytes);
  gradient_bytes_ += bytes;
  take(bytes);
}

void ArenaBooks::keep_from_being_whole(uint64_t bytes) {
  const auto is_whole = [&] { return gradient_bytes_ + bytes >= whole_gradient_; };
  while (!groups_.empty() && is_whole()) add_up_oldest();
  if (lingering_ == 0 || !is_whole()) return;
  retire();
  forget_let_go();
}

void ArenaBooks::reduce(std::span<const uint32_t> parameters, bool lingers) {
  if (budget_ > 0) return reduce_within_budget(parameters, lingers);
  for (size_t micro_batch = 0; micro_batch < micro_batches_; ++micro_batch) {
    sent_now_.clear();
    for (const uint32_t parameter : parameters) {
      if (gradients_[parameter].sent == micro_batch) sent_now_.push_back(parameter);
    }
    send(sent_now_, micro_batch, lingers && micro_batch + 1 == micro_batches_);
  }
  for (const uint32_t parameter : parameters) gradients_[parameter].is_reduced = true;
}

void ArenaBooks::reduce_within_budget(std::span<const uint32_t> parameters, bool lingers) {
  retire();
  for (const uint32_t parameter : parameters) {
    take_gradient(parameter);
    gradients_[parameter].is_reduced = true;
    const GradientRoom room = room_of(parameter);
    if (taken_ + room.received > budget_) clear_way();
    take(room.received);
    (lingers ? lingering_ : on_way_) += room.received + room.gradient;
  }
  if (types_.reduce == DType::kF32) return;
  for (const uint32_t parameter : parameters) {  // each as f32
    const uint64_t elements = model_.parameter(parameter).elements;
    if (types_.looks_at_gradients) visit(WholeMemory::taken_by(float_block(elements) * sizeof(float)));
    const uint64_t block = float_block(largest_piece_[parameter]) * sizeof(float);
    const uint64_t adds = static_cast<uint64_t>(world_size_) * WholeMemory::taken_by(block);
    if (types_.on_device) {
      visit(adds);
    } else {
      uint64_t& when = lingers ? adds_later_ : adds_;
      when = std::max(when, adds);
    }
  }
}

// Runtime::send_early.
void ArenaBooks::send_early(std::span<const uint32_t> used, size_t micro_batch) {
  sent_now_.clear();
  for (const uint32_t parameter : used) {
    const bool has_left = gradients_[parameter].is_reduced || model_.parameter(parameter).frozen;
    if (!has_left && !side_by_side_[parameter]) sent_now_.push_back(parameter);
  }
  if (sent_now_.empty()) return;
  clear_way();
  send(sent_now_, micro_batch, false);
}

// Runtime::send. On a device all that is enqueued at once, so that the stream gives back what was received.
void ArenaBooks::send(std::span<const uint32_t> parameters, size_t micro_batch, bool lingers) {
  retire();
  uint64_t elements = 0;
  for (const uint32_t parameter : parameters) {
    gradients_[parameter].sent = micro_batch + 1;
    elements += model_.parameter(parameter).elements;
  }
  if (elements == 0) return;
  Group made;
  made.bytes = elements * bytes_of(types_.reduce);
  made.next_gather = gathers_ + 1;
  while (groups_.size() >= kGroupsOnWay && on_way_bytes_ + made.bytes > on_way_bytes(whole_gradient_)) add_up_oldest();
  for (const uint32_t parameter : parameters) {
    if (model_.parameter(parameter).elements == 0) continue;
    take_gradient(parameter);
    receive(made, parameter);
    if (side_by_side_[parameter] && micro_batch + 1 < micro_batches_) continue;
    gradients_[parameter].is_there = false;
    made.gradients += room_of(parameter).gradient;
  }
  for (const uint32_t parameter : parameters) {  // each as f32
    if (types_.reduce == DType::kF32) break;
    const uint64_t all = model_.parameter(parameter).elements;
    if (types_.looks_at_gradients) visit(WholeMemory::taken_by(all * sizeof(float)));
    const uint64_t piece = WholeMemory::taken_by(largest_piece_[parameter] * sizeof(float));
    made.adds = std::max(made.adds, static_cast<uint64_t>(world_size_) * piece);
  }
  if (types_.on_device) {
    visit(made.adds);
    forget_received(made);
    (lingers ? lingering_ : let_go_) += made.gradients;
  } else {
    on_way_bytes_ += made.bytes;
    groups_.push_back(std::move(made));
  }
}

void ArenaBooks::receive(Group& group, uint32_t parameter) {
  for (const OwnedPart& part : parts_[parameter]) {
    const uint64_t elements = received_elements(part.elements, world_size_);
    const uint64_t bytes = WholeMemory::taken_by(elements * bytes_of(types_.reduce));
    group.received.emplace_back(part.rank, bytes);
    received_[part.rank] += bytes;
    most_received_ = std::max(most_received_, received_[part.rank]);
  }
  most_ = std::max(most_, taken());
}

void ArenaBooks::forget_received(const Group& group) {
  for (const auto& [rank, bytes] : group.received) received_[rank] -= bytes;
  most_received_ = *std::max_element(received_.begin(), received_.end());
}

void ArenaBooks::add_up_oldest() {
  const Group& oldest = groups_.front();
  visit(oldest.adds);
  forget_received(oldest);
  taken_ -= oldest.gradients;
  gradient_bytes_ -= oldest.gradients;
  on_way_bytes_ -= oldest.bytes;
  groups_.pop_front();
}

void ArenaBooks::clear_way() {
  while (!groups_.empty() && groups_.front().next_gather <= ended_gathers_) add_up_oldest();
  visit(std::exchange(adds_, 0));
  taken_ -= std::exchange(on_way_, 0);
}

void ArenaBooks::retire() {
  visit(std::exchange(adds_later_, 0));
  const uint64_t bytes = std::exchange(lingering_, 0);
  if (budget_ == 0) {
    let_go_ += bytes;
  } else {
    taken_ -= bytes;
  }
}

void ArenaBooks::forget_let_go() {
  taken_ -= let_go_;
  gradient_bytes_ -= std::exchange(let_go_, 0);
}

}  // namespace pliant::sharded
