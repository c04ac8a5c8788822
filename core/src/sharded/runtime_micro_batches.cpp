// Runtime: passes over several micro-batches at once: which one a gradient is of, where it lies, and when it leaves.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "pliant/error.hpp"
#include "sharded/memory/arena_needs.hpp"
#include "sharded/runtime.hpp"

namespace pliant::sharded {

std::optional<size_t> Runtime::last_backward_visit() const {
  for (size_t i = visits_.size(); i-- > 0;) {
    if (visits_[i].direction == Direction::kBackward) return i;
  }
  return std::nullopt;
}

void Runtime::begin_micro_batch(size_t number) {
  if (!in_pass_ || !with_gradient_) {
    throw Error(
        Status::kFailedPrecondition,
        fmt::format("begin_micro_batch({}) was called outside a pass with gradients; call begin_pass first", number));
  }
  require_sound();
  if (number >= micro_batches_) {
    throw Error(Status::kInvalidArgument,
                fmt::format("begin_micro_batch({}) was called in a pass over {}; micro-batches are numbered from 0",
                            number, micro_batches_));
  }
  const std::optional<size_t> entered = last_backward_visit();
  Visit* const visit = entered ? &visits_[*entered] : nullptr;
  const bool is_in_order = visit != nullptr && !model.modules()[visit->module].has_inner();
  if (is_in_order && number != visit->begun) {
    throw Error(
        Status::kFailedPrecondition,
        fmt::format("micro-batch {} of {} was begun after {} of {}; begin each once per backward visit, in order",
                    number, model.modules()[visit->module].name, visit->begun, micro_batches_));
  }
  if (micro_batches_ > 1) note(Visited::Kind::kMicroBatch, static_cast<uint32_t>(number));
  pass_.push_back({PassCall::Kind::kMicroBatch, Direction::kBackward, static_cast<uint32_t>(number)});
  if (is_in_order) {
    if (number > 0) or_give_up([&] { send_early(visit->module, number - 1); });
    ++visit->begun;
  }
  (visit == nullptr ? in_hand_ : visit->in_hand) = number;
}

void Runtime::require_one_visit(uint32_t module) const {
  if (micro_batches_ == 1) return;
  for (const uint32_t parameter : model.modules()[module].used) {
    const Held& one = held_[parameter];
    if (model.parameter(parameter).frozen || side_by_side_[parameter] || one.is_reduced || one.uses == 1) continue;
    throw Error(
        Status::kFailedPrecondition,
        fmt::format(
            "{} was entered backward after {} forward visits in this pass; in a pass over several micro-batches a "
            "module can be entered once in each direction. Declare {} external, or give it a module for each use",
            model.modules()[module].name, one.uses, name(parameter)));
  }
}

void Runtime::require_all_begun(const Visit& visit) const {
  const ModuleRow& module = model.modules()[visit.module];
  if (visit.direction != Direction::kBackward || micro_batches_ == 1 || module.has_inner()) return;
  const bool has_gradient = std::any_of(module.used.begin(), module.used.end(),
                                        [this](uint32_t one) { return !model.parameter(one).frozen; });
  if (!has_gradient || visit.begun == micro_batches_) return;
  throw Error(Status::kFailedPrecondition,
              fmt::format("{} was left backward after {} of {} micro-batches; call begin_micro_batch for each of them, "
                          "also for those without rows",
                          module.name, visit.begun, micro_batches_));
}

size_t Runtime::micro_batch_in_hand(uint32_t parameter) const {
  if (micro_batches_ == 1) return 0;
  const std::optional<size_t> entered = last_backward_visit();
  const auto uses = [&](size_t visit) {
    const std::vector<uint32_t>& used = model.modules()[visits_[visit].module].used;
    return std::binary_search(used.begin(), used.end(), parameter);
  };
  if (!side_by_side_[parameter] && !(entered && uses(*entered))) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("the gradient of {} was requested outside its module; in a pass over several micro-batches "
                            "it exists while that module is the last one entered backward",
                            name(parameter)));
  }
  const std::optional<size_t>& in_hand = entered ? visits_[*entered].in_hand : in_hand_;
  if (in_hand) return *in_hand;
  throw Error(Status::kFailedPrecondition,
              fmt::format("the gradient of {} was requested before any of the {} micro-batches of the pass was begun; "
                          "call begin_micro_batch first",
                          name(parameter), micro_batches_));
}

// Of a module of its own that enters no others: where the gradient lies, that of the next micro-batch will lie.
void Runtime::send_early(uint32_t module, size_t micro_batch) {
  std::vector<uint32_t> parameters;
  for (const uint32_t parameter : model.modules()[module].used) {
    const bool has_left = held_[parameter].is_reduced || model.parameter(parameter).frozen;
    if (!has_left && !side_by_side_[parameter]) parameters.push_back(parameter);
  }
  if (parameters.empty()) return;
  clear_way();
  send(parameters, micro_batch);
  if (memory_->budget() > 0) drain_scatterings(true);
}

void Runtime::reduce_rest(std::span<const uint32_t> rest) {
  for (size_t begin = 0, end = 0; begin < rest.size(); begin = end) {
    end = rest_ends(model, rest, begin, memory_->budget());
    reduce(rest.subspan(begin, end - begin));
    if (end < rest.size() || memory_->budget() > 0) drain_scatterings(true);
  }
}

void Runtime::reduce(std::span<const uint32_t> parameters, bool lingers) {
  for (const uint32_t parameter : parameters) held_[parameter].is_reduced = true;
  for (size_t micro_batch = 0; micro_batch < micro_batches_; ++micro_batch) {
    std::vector<uint32_t> here;
    for (const uint32_t parameter : parameters) {
      if (held_[parameter].sent == micro_batch) here.push_back(parameter);
    }
    const bool is_last = micro_batch + 1 == micro_batches_;
    send(here, micro_batch, lingers && is_last);
    if (!is_last && memory_->budget() > 0) drain_scatterings(true);  // the next one's gradients arrive there
  }
}

// All that a rank sends of the group goes as one collective. Ranks without a block take part and add nothing: zeros
// would make +0 of -0.
void Runtime::send(std::span<const uint32_t> parameters, size_t micro_batch, bool lingers) {
  retire();
  Scattering made;
  made.round = rounds_[micro_batch];
  made.lingers = lingers;
  uint64_t elements = 0;
  for (const uint32_t parameter : parameters) {
    held_[parameter].sent = micro_batch + 1;
    elements += model.parameter(parameter).elements;
  }
  if (elements == 0) return;
  made.bytes = elements * bytes_of(reduce_);
  made.next_gather = gathered_;
  bound_on_way(made.bytes);
  for (const uint32_t parameter : parameters) {
    if (model.parameter(parameter).elements > 0) put(made, parameter, micro_batch);
  }
  follow_program();  // its stream may still compute them
  const bool looks = has_rows(micro_batch) && (measure_ || look_for_not_finite_);
  for (size_t i = 0; i < made.items.size() && looks; ++i) {
    look_at(made.parameters[i], micro_batch, made.items[i].addend, made.least_room[i]);
  }
  if (look_) look_->close(done_ + micro_batch);
  if (recorder_ != nullptr) recorder_->begin_transfer(exchange_stream_);
  exchange_->scatter(made.items, made.round->adds, reduce_);
  if (recorder_ != nullptr) {
    recorder_->end_transfer(exchange_stream_, TracedTransfer::Kind::kReduce, made.parameters, made.bytes, false);
  }
  if (begun_) begun_(Begun::kScatter);
  if (here_) {
    made.done.emplace(take_event());
    made.done->record(exchange_stream_);
  }
  on_way_bytes_ += made.bytes;
  scatterings_.push_back(std::move(made));
  if (!here_) drain_scatterings(true);  // additions are enqueued behind what they wait for
}

void Runtime::put(Scattering& into, uint32_t parameter, size_t micro_batch) {
  Held& one = held_[parameter];
  const bool is_behind = has_received_behind();
  // No module that was visited uses it: zeros, as in a whole gradient.
  const bool is_unused = has_rows(micro_batch) && !one.is_zeroed[micro_batch];
  if (!one.gradient && (is_unused || memory_->budget() > 0)) one.gradient = take_gradient_room(parameter);
  if (is_unused) zero_gradient(parameter, micro_batch);
  const OwnersOfRange& owners = owners_[parameter];
  // Within a budget as much as on the rank that owns the most: the arena looks alike on all ranks.
  const uint64_t owned = memory_->budget() > 0 ? most_owned_[parameter] : owners.owned;
  const uint64_t received = received_elements(owned, exchange_->world_size());
  ScatterItem item{&owners, has_rows(micro_batch) ? gradient_at(parameter, micro_batch) : nullptr, nullptr};
  char* behind = nullptr;
  if (is_behind) {
    behind =
        gradient_at(parameter, 0) + (side_by_side_[parameter] ? most_micro_batches_ : 1) * gradient_stride(parameter);
    item.received = behind;
    behind += WholeMemory::taken_by(received * bytes_of(reduce_));
  } else {
    into.received.push_back(take(received, reduce_, {"parts of the gradient of ", name(parameter)}));
    item.received = into.received.back().pointer();
  }
  const bool has_others = micro_batch + 1 < micro_batches_ && (is_behind || side_by_side_[parameter]);
  if (!has_others) into.gradients.push_back(std::move(one.gradient));
  into.parameters.push_back(parameter);
  into.items.push_back(item);
  into.least_room.push_back(is_behind && reduce_ != DType::kF32 ? reinterpret_cast<float*>(behind) : nullptr);
}

uint64_t Runtime::gradient_stride(uint32_t parameter) const {
  return WholeMemory::taken_by(model.parameter(parameter).elements * bytes_of(reduce_));
}

WholePiece Runtime::take_gradient_room(uint32_t parameter) {
  const ParameterRow& row = model.parameter(parameter);
  uint64_t elements = row.elements;
  if (has_received_behind()) {
    elements = rooms_[parameter].gradient / bytes_of(reduce_);
  } else if (micro_batches_ > 1 && side_by_side_[parameter]) {
    elements = micro_batches_ * gradient_stride(parameter) / bytes_of(reduce_);
  }
  WholePurpose what{"the gradient of ", row.name};
  what.is_gradient = true;
  // The program uses it first, on its own stream, which so waits for none but who had that memory before.
  if (!here_) wait_for_let_go();
  if (memory_->budget() == 0) keep_from_being_whole(WholeMemory::taken_by(elements * bytes_of(reduce_)));
  if (here_) return take(elements, reduce_, what);
  return take(elements, reduce_, what, {}, program_);
}

char* Runtime::gradient_at(uint32_t parameter, size_t micro_batch) const {
  const uint64_t before = side_by_side_[parameter] ? micro_batch * gradient_stride(parameter) : 0;
  return static_cast<char*>(held_[parameter].gradient.pointer()) + before;
}

void Runtime::zero_gradient(uint32_t parameter, size_t micro_batch) {
  Held& one = held_[parameter];
  const uint64_t bytes = model.parameter(parameter).elements * bytes_of(reduce_);
  one.is_zeroed[micro_batch] = true;
  if (bytes == 0) return;
  if (here_) {
    std::memset(gradient_at(parameter, micro_batch), 0, bytes);
    return;
  }
  if (micro_batch > 0 && has_received_behind() && !side_by_side_[parameter]) {  // that before it had this room
    program_point_->record(exchange_stream_);
    program_.wait(*program_point_);
  }
  program_.fill(gradient_at(parameter, micro_batch), 0, bytes);
}

}  // namespace pliant::sharded
