#include "sharded/arena_books.hpp"

#include <algorithm>
#include <utility>

#include "base/result.hpp"
#include "sharded/exchange.hpp"
#include "sharded/segments.hpp"
#include "sharded/whole_memory.hpp"

namespace pliant::sharded {

ArenaBooks::ArenaBooks(const ModelTables& model, int32_t world_size, Types types, uint64_t budget, size_t micro_batches)
    : model_(model),
      world_size_(world_size),
      of_ranks_(static_cast<size_t>(world_size)),
      types_(types),
      budget_(budget),
      micro_batches_(micro_batches),
      side_by_side_(side_by_side(model)),
      gradients_(model.parameters().size()) {
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
  return std::exchange(most_, taken_);
}

void ArenaBooks::take(uint64_t bytes) {
  taken_ += WholeMemory::taken_by(bytes);
  most_ = std::max(most_, taken_);
}

void ArenaBooks::visit(uint64_t bytes) {
  const uint64_t there = taken_ + bytes;
  most_ = std::max(most_, budget_ == 0 ? there : std::min(there, std::max(taken_, budget_)));
}

// Runtime::float_block, where the CPU adds.
uint64_t ArenaBooks::float_block(uint64_t elements) const {
  return budget_ == 0 ? elements : std::min(elements, kFloatsHere);
}

void ArenaBooks::hear(const RehearsedCall& call) {
  const bool may_be_late = call.kind == RehearsedCall::Kind::kEnter || call.kind == RehearsedCall::Kind::kEndPass;
  if (!may_be_late || budget_ > 0 || types_.on_device) clear_way();
  if (call.kind == RehearsedCall::Kind::kBeginPass) {
    gradients_.assign(gradients_.size(), Gradient{});
    is_backward_ = false;
  }
  carry_out(call.actions);
  if (call.kind == RehearsedCall::Kind::kEnter) clear_way();
  if (call.kind == RehearsedCall::Kind::kEnter && call.backward) {
    for (uint32_t parameter = 0; budget_ > 0 && !is_backward_ && parameter < gradients_.size(); ++parameter) {
      if (model_.parameter(parameter).external) take_gradient(parameter);
    }
    is_backward_ = true;
    uint64_t next = 0;  // beside what is on its way of the micro-batch before
    for (const uint32_t parameter : model_.modules()[*call.module].used) {
      take_gradient(parameter);
      const GradientRoom room = room_of(parameter);
      if (!side_by_side_[parameter]) next += room.gradient + room.received;
    }
    if (budget_ == 0 && micro_batches_ > 1) visit(next);
  }
  if (call.kind != RehearsedCall::Kind::kEndPass || !call.with_gradient) return;
  std::vector<uint32_t> rest;
  for (uint32_t parameter = 0; parameter < gradients_.size(); ++parameter) {
    if (!model_.parameter(parameter).frozen && !gradients_[parameter].is_reduced) rest.push_back(parameter);
  }
  for (size_t begin = 0, end = 0; begin < rest.size(); begin = end) {
    end = rest_ends(model_, rest, begin, budget_);
    reduce(std::span<const uint32_t>(rest).subspan(begin, end - begin));
    if (end < rest.size() || budget_ > 0) clear_way();
  }
  clear_way();
  retire();
  forget_let_go();
}

void ArenaBooks::carry_out(std::span<const pliant_action> actions) {
  for (size_t i = 0; i < actions.size(); ++i) {
    const pliant_action& action = actions[i];
    const auto bytes = [&] { return model_.parameter(action.parameter).elements * bytes_of(types_.whole); };
    if (action.kind == PLIANT_ACTION_GATHER) take(bytes());
    if (action.kind == PLIANT_ACTION_RELEASE) taken_ -= WholeMemory::taken_by(bytes());
    if (action.kind != PLIANT_ACTION_REDUCE) continue;
    group_.push_back(action.parameter);
    const bool goes_on =
        i + 1 < actions.size() && actions[i + 1].kind == PLIANT_ACTION_REDUCE && actions[i + 1].group == action.group;
    if (goes_on) continue;
    reduce(group_, (action.flags & PLIANT_ACTION_LINGER) != 0);
    group_.clear();
  }
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
  take(room_of(parameter).gradient);
}

void ArenaBooks::reduce(std::span<const uint32_t> parameters, bool lingers) {
  retire();
  const bool all_linger = lingers && budget_ > 0;
  const bool is_let_go = types_.on_device && budget_ == 0;
  const bool gradients_linger = all_linger || (lingers && is_let_go);
  for (const uint32_t parameter : parameters) {
    take_gradient(parameter);
    gradients_[parameter].is_reduced = true;
    const GradientRoom room = room_of(parameter);
    if (budget_ > 0) {
      if (taken_ + room.received > budget_) clear_way();
      take(room.received);
      (all_linger ? lingering_ : on_way_) += room.received;
    }
    (gradients_linger ? lingering_ : is_let_go ? let_go_ : on_way_) += room.gradient;
  }
  if (budget_ == 0) {
    const uint64_t received = most_received(parameters);
    take(received);
    on_way_ += received;
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
      uint64_t& when = all_linger ? adds_later_ : adds_;
      when = std::max(when, adds);
    }
  }
}

uint64_t ArenaBooks::most_received(std::span<const uint32_t> parameters) {
  uint64_t most = 0;
  for (const uint32_t parameter : parameters) {
    for (const OwnedPart& part : parts_[parameter]) {
      uint64_t& bytes = of_ranks_[part.rank];
      bytes += WholeMemory::taken_by(received_elements(part.elements, world_size_) * bytes_of(types_.reduce));
      most = std::max(most, bytes);
    }
  }
  for (const uint32_t parameter : parameters) {
    for (const OwnedPart& part : parts_[parameter]) of_ranks_[part.rank] = 0;
  }
  return most;
}

void ArenaBooks::clear_way() {
  visit(std::exchange(adds_, 0));
  taken_ -= std::exchange(on_way_, 0);
}

void ArenaBooks::retire() {
  visit(std::exchange(adds_later_, 0));
  const uint64_t bytes = std::exchange(lingering_, 0);
  if (types_.on_device && budget_ == 0) {
    let_go_ += bytes;
  } else {
    taken_ -= bytes;
  }
}

void ArenaBooks::forget_let_go() {
  taken_ -= std::exchange(let_go_, 0);
}

}  // namespace pliant::sharded
