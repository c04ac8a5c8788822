// The order of one visit: gather, wait, fetch ahead; at its end, release.
#include "schedule.hpp"

#include <algorithm>
#include <string>

namespace pliant::coordinator::zero3 {

Schedule::Schedule(const sdk::Model& model, const ScheduleOptions& options)
    : options_(options),
      model_(model),
      layout_(model, options.strict),
      parameters_(model.parameters),
      depth_(model.modules.size()),
      in_backward_(model.modules.size()),
      recomputed_(model.modules.size()) {
  sdk::require(options.head || !layout_.has_leaves(), "version seed knows no leaf modules", "version");
  for (const uint32_t parameter : layout_.persistent(options.persistence, model.parameters)) {
    parameters_[parameter].persistent = true;
  }
  if (options.swap_buffers >= 0) swapping_ = Swapping(parameters_.size(), options.swap_buffers);
  mode_ = options.head ? Mode::kInvalid : Mode::kRecording;
}

void Schedule::set_parameters(uint32_t module, Numbers own, Numbers external) {
  layout_.set_parameters(module, own, external);
  reuse_.clear();
  reuse_of_leaves_.clear();
  outdated_ = options_.strict && mode_ == Mode::kComplete;
}

void Schedule::enter(const sdk::Visit& visit, sdk::Actions& actions) {
  check_order(visit.module, actions);
  if (mode_ == Mode::kRecording) trace_.push_back(visit.module);
  if (visit.backward && options_.head) note_backward(visit.module);
  ++depth_[visit.module];
  const Numbers used = layout_.used(visit.module);
  gather_missing(used, actions);
  const bool recomputes = visit.recompute && options_.head && !backward_.empty();
  const size_t not_fetched = wait_for(visit.module, used, recomputes, actions);
  if (mode_ == Mode::kComplete) {
    if (not_fetched > 0) take_off_queue(used);
    if (options_.prefetch_bucket > 0) {
      prefetch(actions);
      if (swapping_.on()) load_ahead(actions);
    }
  }
  ++step_;
}

void Schedule::leave(const sdk::Visit& visit, sdk::Actions& actions) {
  const uint32_t module = visit.module;
  uint32_t& depth = depth_[module];
  if (depth > 0 && --depth > 0 && options_.strict) return;
  const bool backward = visit.backward && options_.head;
  const Numbers used = layout_.used(module);
  Decision* decision = mode_ == Mode::kComplete ? &decide(module, used) : nullptr;
  if (backward) {
    sdk::require(!backward_.empty(),
                 [&] { return "module " + std::to_string(module) + " is left in backward, and none was entered"; });
    if (!recomputed_[module].empty()) leave_recomputed(module, decision, actions);
    forget_backward(module);
  }
  const uint32_t* const released = decision != nullptr ? decision->released.data() : nullptr;
  ParameterState* const states = parameters_.data();
  const bool strict = options_.strict;
  const bool swaps = swapping_.on();
  const int64_t step = step_;
  int64_t freed = 0;
  sdk::Actions::Burst burst = actions.burst(2 * used.size());
  for (size_t i = 0; i < used.size(); ++i) {
    const uint32_t parameter = used[i];
    ParameterState& state = states[parameter];
    parameters_.remove_user(parameter, module);
    const bool kept = released != nullptr && released[i] == 0;
    if (kept && !strict) continue;
    if (state.user != ParameterState::kNobody || state.external || !parameters_.available(state)) continue;
    if (strict) {
      if (state.persistent) continue;
      if ((kept || state.fetched_for > step) && live_ - freed <= options_.max_live) continue;
      if (state.registered) {
        parameters_.leave_register(state);
        burst.wait(parameter);
      }
    }
    state.status = ParameterState::kPartitioned;
    freed += static_cast<int64_t>(state.elements);
    if (swaps) swapping_.free(parameter);
    burst.release(parameter);
  }
  live_ -= freed;
}

Decision& Schedule::decide(uint32_t module, Numbers used) {
  const auto step = static_cast<uint64_t>(step_);
  if (Decision* const known = releases_.find(module, step); known != nullptr) {
    if (known->version != layout_.version()) Releases::align(*known, used, layout_.version());
    return *known;
  }
  const bool deep = !options_.strict && layout_.is_leaf(module);
  ReuseTable& table = deep ? reuse_of_leaves_ : reuse_;
  if (!table.ready()) {
    const auto reach = options_.strict ? ReuseTable::Reach::kUsed
                       : deep          ? ReuseTable::Reach::kDeep
                                       : ReuseTable::Reach::kListed;
    table.build(layout_, trace_, model_.parameters, reach);
  }
  Decision& made = releases_.add(module, step);
  const auto distance = static_cast<uint64_t>(options_.max_reuse_distance);
  for (const uint32_t parameter : used) {
    const ParameterState& state = parameters_[parameter];
    const bool skipped_ahead = !options_.strict && state.fetched_for > step_;
    if (state.persistent || skipped_ahead || table.reused(parameter, step, distance)) continue;
    made.members.push_back(parameter);
  }
  Releases::align(made, used, layout_.version());
  return made;
}

void Schedule::leave_recomputed(uint32_t module, Decision* decision, sdk::Actions& actions) {
  std::vector<uint32_t> recomputed;
  recomputed.swap(recomputed_[module]);
  const Numbers used = layout_.used(module);
  for (const uint32_t parameter : recomputed) {
    const ParameterState& state = parameters_[parameter];
    if (!state.persistent && decision != nullptr && !options_.strict) releases_.add_member(*decision, parameter);
    if (std::binary_search(used.begin(), used.end(), parameter)) continue;
    parameters_.remove_user(parameter, module);
    if (!state.persistent && !state.external) release(parameter, actions);
  }
  if (decision != nullptr) Releases::align(*decision, used, layout_.version());
}

void Schedule::note_backward(uint32_t module) {
  if (in_backward_[module] != 0) return;
  in_backward_[module] = 1;
  backward_.push_back(module);
}

void Schedule::forget_backward(uint32_t module) {
  if (in_backward_[module] == 0) return;
  in_backward_[module] = 0;
  backward_.erase(std::find(backward_.rbegin(), backward_.rend(), module).base() - 1);
}

bool Schedule::same_state(const Schedule& other) const {
  return mode_ == Mode::kComplete && other.mode_ == Mode::kComplete && traces_ == other.traces_ &&
         with_gradient_ == other.with_gradient_ && outdated_ == other.outdated_ && step_ == other.step_ &&
         live_ == other.live_ && queue_head_ == other.queue_head_ && depth_ == other.depth_ &&
         backward_ == other.backward_ && recomputed_ == other.recomputed_ &&
         releases_.changes() == other.releases_.changes() && layout_.version() == other.layout_.version() &&
         swapping_.same_state(other.swapping_) && parameters_.same_state(other.parameters_);
}

sdk::CoordinatorCounts Schedule::counts() const {
  sdk::CoordinatorCounts made{};
  made.trace = mode_ == Mode::kRecording  ? PLIANT_TRACE_RECORDING
               : mode_ == Mode::kComplete ? PLIANT_TRACE_COMPLETE
                                          : PLIANT_TRACE_INVALID;
  made.whole = live_;
  made.visits = static_cast<uint64_t>(step_);
  made.ahead = has_queue_ ? queue_.size() - queue_head_ : UINT64_MAX;
  return made;
}

}  // namespace pliant::coordinator::zero3
