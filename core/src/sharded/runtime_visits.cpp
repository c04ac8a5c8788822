// Runtime: passes, and the visits of modules in them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "pliant/error.hpp"
#include "sharded/runtime.hpp"
#include "sharded/trace/trace_words.hpp"

namespace pliant::sharded {

void Runtime::set_parameters(uint32_t module, const std::vector<ParameterId>& own,
                             const std::vector<ParameterId>& external) {
  require_no_pass();
  const ModuleRow& row = model.modules()[module];
  const auto ids = [](const std::vector<uint32_t>& numbers) {
    std::vector<ParameterId> made;
    for (const uint32_t number : numbers) made.push_back(ParameterId{number});
    return made;
  };
  const std::vector<ParameterId> had_own = ids(row.own);
  const std::vector<ParameterId> had_external = ids(row.external);
  model.set_parameters(module, own, external);
  const std::vector<GradientRoom> had_rooms = rooms_;
  if (memory_) find_gradient_rooms();
  const bool was_noted = std::exchange(is_model_noted_, false);
  const bool is_other = ids(row.own) != had_own || ids(row.external) != had_external;
  // It has decided nothing yet, but may go on with what was kept, as on ranks that came to this group with these.
  if (communicator_ != nullptr && is_sound_ && is_new_ && !is_other) return;
  try {
    if (memory_) require_budget();
    if (communicator_ == nullptr) return;  // the next group's coordinator gets the whole model
    // A pass was given up; or it has decided nothing of this model yet, and decides as on ranks that came to this group
    // with the change made.
    if (!is_sound_ || is_new_) return give_model();
    if (rooms_ != had_rooms) {  // gradients of several micro-batches lie side by side now, or no more
      release_what_is_left();
      return give_model();
    }
    coordinator_.set_module_parameters(module, row);
  } catch (...) {
    model.set_parameters(module, had_own, had_external);
    is_model_noted_ = was_noted;
    if (memory_) find_gradient_rooms();
    throw;
  }
  bool can_drop = false;
  const RecordedCall recorded(recorder_, *memory_, TracedCall::Kind::kByHand);
  follow([&] {
    const auto actions = coordinator_.drop_trace();
    can_drop = actions.has_value();
    return can_drop ? *actions : coordinator_.end_step();
  });
  if (!can_drop) give_model();
}

void Runtime::begin(bool with_gradient, size_t micro_batches) {
  require_group();
  require_no_pass();
  if (!is_sound_) give_model();  // the pass before was given up
  make_room_for(micro_batches);
  is_new_ = false;
  micro_batches_ = micro_batches;
  whole_gradient_ = whole_gradient_bytes(model, side_by_side_, reduce_, micro_batches);
  in_hand_.reset();
  // Not as set_parameters is called: a rank that joins may make before its first pass a change that the others came
  // with.
  if (!std::exchange(is_model_noted_, true)) note(Visited::Kind::kModel, model.digest_of_uses());
  note(with_gradient ? Visited::Kind::kPass : Visited::Kind::kEvaluation, static_cast<uint32_t>(micro_batches - 1));
  const RecordedCall recorded(recorder_, *memory_,
                              with_gradient ? TracedCall::Kind::kBeginPass : TracedCall::Kind::kBeginEvaluation,
                              std::nullopt, Direction::kForward, micro_batches);
  with_gradient_ = with_gradient;
  is_backward_ = false;
  in_pass_ = true;
  pass_.clear();
  complete_.clear();
  for (Held& one : held_) {
    one.uses = 0;
    one.is_reduced = false;
    one.sent = 0;
    one.is_zeroed.assign(micro_batches, false);
  }
  follow([&] { return coordinator_.begin_pass(with_gradient); });
  follows_trace_ = coordinator_.trace() == PLIANT_TRACE_COMPLETE;
}

// It depends on the visits alone what lies there: not on how quick the other ranks are. Without a budget what must have
// arrived makes room. Within one nothing of earlier visits lies between two gaps then, and so what fits fits on all.
void Runtime::clear_way() {
  const bool has_budget = memory_->budget() > 0;
  drain_scatterings(has_budget, !has_budget);
}

void Runtime::begin_evaluation() {
  begin(false, 1);
}

void Runtime::repeat_pass(std::span<const RowRange> micro_batches) {
  for (const RowRange rows : micro_batches) {
    if (rows.count == 0) continue;
    throw Error(Status::kInvalidArgument,
                fmt::format("a pass over {} rows from {} on cannot repeat another pass, because it has rows of its own",
                            rows.count, rows.first));
  }
  if (!can_repeat_pass(micro_batches.size())) {
    throw Error(Status::kFailedPrecondition, fmt::format("this process has made no pass with gradients yet, or its "
                                                         "last one was not over {} micro-batch{}; visit the modules",
                                                         micro_batches.size(), micro_batches.size() == 1 ? "" : "es"));
  }
  begin_pass(micro_batches);
  for (const PassCall& call : last_pass_) {
    if (call.kind == PassCall::Kind::kEnter) enter(call.number, call.direction);
    if (call.kind == PassCall::Kind::kLeave) leave(call.number, call.direction);
    if (call.kind == PassCall::Kind::kMicroBatch) begin_micro_batch(call.number);
  }
  end_pass();
}

void Runtime::enter(uint32_t module, Direction direction) {
  if (!in_pass_) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("{} was entered outside a pass; call begin_pass first", model.modules()[module].name));
  }
  if (direction == Direction::kBackward && !with_gradient_) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("{} was entered backward in a pass without gradients", model.modules()[module].name));
  }
  require_sound();
  if (direction == Direction::kBackward) require_one_visit(module);
  note(Visited::enters(direction), module);
  pass_.push_back({PassCall::Kind::kEnter, direction, module});
  const RecordedCall recorded(recorder_, *memory_, TracedCall::Kind::kEnter, module, direction);
  clear_way();
  visits_.push_back({module, direction});
  const std::vector<uint32_t>& used = model.modules()[module].used;
  follow([&] { return coordinator_.enter(module, direction); });
  clear_way();  // gathers that were waited for came after what was sent before them
  if (direction == Direction::kBackward) or_give_up([&] { take_gradients(used); });
  for (const uint32_t parameter : used) {
    if (with_gradient_ && direction == Direction::kForward) ++held_[parameter].uses;
  }
}

// The last that was entered; in backward, where hooks of a module and of its first child come in either order, also one
// that others were entered backward after.
std::vector<Runtime::Visit>::iterator Runtime::visit_to_leave(uint32_t module, Direction direction) {
  for (auto visit = visits_.end(); visit != visits_.begin();) {
    --visit;
    if (visit->module == module && visit->direction == direction) return visit;
    if (direction != Direction::kBackward || visit->direction != Direction::kBackward) break;
  }
  return visits_.end();
}

void Runtime::leave(uint32_t module, Direction direction) {
  require_sound();
  const auto visit = visit_to_leave(module, direction);
  if (visit == visits_.end()) {
    throw Error(Status::kFailedPrecondition,
                visits_.empty()
                    ? fmt::format("{} was left but not entered", model.modules()[module].name)
                    : fmt::format("{} ({}) was left while {} ({}) is the last entered module; leave that first",
                                  model.modules()[module].name, word_of(direction),
                                  model.modules()[visits_.back().module].name, word_of(visits_.back().direction)));
  }
  require_all_begun(*visit);
  note(Visited::leaves(direction), module);
  pass_.push_back({PassCall::Kind::kLeave, direction, module});
  const RecordedCall recorded(recorder_, *memory_, TracedCall::Kind::kLeave, module, direction);
  const auto before = static_cast<std::ptrdiff_t>(complete_.size());
  for (const uint32_t parameter : model.modules()[module].used) {
    Held& one = held_[parameter];
    const ParameterRow& row = model.parameter(parameter);
    if (row.external) continue;  // modules that do not name it may still add to its gradient: complete in end_pass
    const bool counts = direction == Direction::kBackward && !row.frozen && one.uses > 0;
    if (counts && --one.uses == 0 && !std::exchange(one.is_reduced, true)) complete_.push_back(parameter);
  }
  std::inplace_merge(complete_.begin(), complete_.begin() + before, complete_.end());
  clear_way();
  follow([&] { return coordinator_.leave(module, direction, complete_); });
  visits_.erase(visit);
}

void* Runtime::value(uint32_t parameter) {
  require_group();
  const Held& one = held_[parameter];
  if (one.presence == Presence::kWhole) return one.value.pointer();
  throw Error(Status::kFailedPrecondition,
              fmt::format("{} is not gathered here; enter a module that uses it, or call fetch", name(parameter)));
}

}  // namespace pliant::sharded
