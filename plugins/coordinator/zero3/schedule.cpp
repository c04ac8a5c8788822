// The order of one visit: gather, wait, fetch ahead; at its end, release.
#include "schedule.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

namespace pliant::coordinator::zero3 {
namespace {

/// Waits of earlier visits that may be unfinished when another one is enqueued.
constexpr uint64_t kUnfinishedWaits = 2;

}  // namespace

Schedule::Schedule(const sdk::Model& model, const ScheduleOptions& options)
    : options_(options),
      model_(model),
      layout_(model, options.strict),
      parameters_(model.parameters),
      entered_(model.modules.size()) {
  sdk::require(options.head || !layout_.has_leaves(), "version seed does not support leaf modules", "version");
  for (const uint32_t parameter : layout_.persistent(options.persistence, model.parameters)) {
    parameters_.make_persistent(parameter);
  }
  parameters_.set_listed_by_several(layout_.used_by_several());
  if (options.swap_buffers >= 0) swapping_ = Swapping(parameters_.size(), options.swap_buffers);
  mode_ = options.head ? Mode::kInvalid : Mode::kRecording;
}

void Schedule::set_parameters(uint32_t module, Numbers own, Numbers external) {
  layout_.set_parameters(module, own, external);
  parameters_.set_listed_by_several(layout_.used_by_several());
  reuse_.clear();
  reuse_of_leaves_.clear();
  outdated_ = options_.strict && mode_ == Mode::kComplete;
}

void Schedule::wait_for(const ModuleUse& use, sdk::Actions& actions) {
  sdk::Actions::Burst burst = actions.burst(2 * use.numbers.size());
  for (const Slice& slice : use.slices) {
    ParameterBits& word = parameters_.words()[slice.word];
    const uint64_t away = slice.bits & ~word.whole;
    const uint64_t up_to_away = away ^ (away - 1);  // all where none is away
    const uint64_t waiting = slice.bits & word.registered & up_to_away;
    parameters_.leave_register(word, slice.word, waiting, [&](uint32_t parameter) {
      burst.bound_waits(kUnfinishedWaits);
      burst.wait(parameter);
    });
    if (away != 0) refuse_empty(slice.word * 64 + static_cast<uint32_t>(std::countr_zero(away)));
  }
}

void Schedule::enter(const sdk::Visit& visit, sdk::Actions& actions) {
  check_order(visit.module, actions);
  if (mode_ == Mode::kRecording) trace_.push_back(visit.module);
  if (visit.backward && options_.head) note_backward(visit.module);
  ++entered_[visit.module].depth;
  const ModuleUse& use = layout_.use(visit.module);
  if (!parameters_.all_whole(use)) gather_missing(use.numbers, actions);
  const size_t not_fetched = parameters_.add_user(use, visit.module, step_);
  if (visit.recompute && options_.head && !backward_.empty()) attribute_recomputed(use.numbers);
  wait_for(use, actions);
  if (mode_ == Mode::kComplete) {
    if (not_fetched > 0) take_off_queue(use.numbers);
    if (options_.prefetch_bucket > 0) {
      prefetch(actions);
      if (swapping_.on()) load_ahead(actions);
    }
  }
  ++step_;
}

void Schedule::release_used(const ModuleUse& use, const Decision* decision, sdk::Actions& actions) {
  const bool swaps = swapping_.on();
  int64_t freed = 0;
  sdk::Actions::Burst burst = actions.burst(use.numbers.size());
  for (size_t i = 0; i < use.slices.size(); ++i) {
    const Slice& slice = use.slices[i];
    ParameterBits& word = parameters_.words()[slice.word];
    const uint64_t wanted = decision == nullptr ? slice.bits : decision->released[i];
    const uint64_t released = parameters_.available(word, slice.word, wanted & ~word.used & ~word.external);
    Parameters::release(word, released);
    each_of(slice.word, released, [&](uint32_t parameter) {
      freed += static_cast<int64_t>(parameters_.elements(parameter));
      if (swaps) swapping_.free(parameter);
      burst.release(parameter);
    });
  }
  live_ -= freed;
}

void Schedule::leave(const sdk::Visit& visit, sdk::Actions& actions) {
  const uint32_t module = visit.module;
  Entered& entered = entered_[module];
  if (entered.depth > 0 && --entered.depth > 0 && options_.strict) return;
  const ModuleUse& use = layout_.use(module);
  Decision* decision = mode_ == Mode::kComplete ? &decide(module, use) : nullptr;
  if (visit.backward && options_.head) {
    sdk::require(!backward_.empty(), [&] {
      return "module " + std::to_string(module) + " is left in backward, but no module was entered";
    });
    if (!entered.recomputed.empty()) leave_recomputed(module, decision, actions);
    forget_backward(module);
  }
  for (const Slice& slice : use.slices) {
    parameters_.remove_user(parameters_.words()[slice.word], slice.word, slice.bits, module);
  }
  if (options_.strict) {
    release_used_strictly(use, decision, actions);
  } else {
    release_used(use, decision, actions);
  }
}

/// Above the limit also what is used again soon.
void Schedule::release_used_strictly(const ModuleUse& use, const Decision* decision, sdk::Actions& actions) {
  sdk::Actions::Burst burst = actions.burst(2 * use.numbers.size());
  for (size_t i = 0; i < use.slices.size(); ++i) {
    const Slice& slice = use.slices[i];
    const ParameterBits& word = parameters_.words()[slice.word];
    const uint64_t kept = decision == nullptr ? 0 : slice.bits & ~decision->released[i];
    const uint64_t open = slice.bits & ~word.used & ~word.external & ~word.persistent;
    const bool within_limit = live_ <= options_.max_live;
    const uint64_t looked_at = within_limit ? open & ~kept : open;
    each_of(slice.word, parameters_.available(word, slice.word, looked_at), [&](uint32_t parameter) {
      const bool wanted = (kept >> parameter % 64 & 1) != 0 || parameters_.fetched_for(parameter) > step_;
      if (wanted && live_ <= options_.max_live) return;
      if (parameters_.registered(parameter)) {
        parameters_.leave_register(parameter);
        burst.wait(parameter);
      }
      parameters_.release(parameter);
      live_ -= static_cast<int64_t>(parameters_.elements(parameter));
      if (swapping_.on()) swapping_.free(parameter);
      burst.release(parameter);
    });
  }
}

Decision& Schedule::decide(uint32_t module, const ModuleUse& use) {
  const auto step = static_cast<uint64_t>(step_);
  if (Decision* const known = releases_.find(module, step); known != nullptr) {
    if (known->version != layout_.version()) Releases::align(*known, use.slices, layout_.version());
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
  for (const uint32_t parameter : use.numbers) {
    const bool skipped_ahead = !options_.strict && parameters_.fetched_for(parameter) > step_;
    if (parameters_.persistent(parameter) || skipped_ahead || table.reused(parameter, step, distance)) continue;
    made.members.push_back(parameter);
  }
  Releases::align(made, use.slices, layout_.version());
  return made;
}

void Schedule::leave_recomputed(uint32_t module, Decision* decision, sdk::Actions& actions) {
  std::vector<uint32_t> recomputed;
  recomputed.swap(entered_[module].recomputed);
  const ModuleUse& use = layout_.use(module);
  for (const uint32_t parameter : recomputed) {
    if (!parameters_.persistent(parameter) && decision != nullptr && !options_.strict) {
      releases_.add_member(*decision, parameter);
    }
    if (std::binary_search(use.numbers.begin(), use.numbers.end(), parameter)) continue;
    parameters_.remove_user(parameter, module);
    if (!stays(parameter)) release(parameter, actions);
  }
  if (decision != nullptr) Releases::align(*decision, use.slices, layout_.version());
}

void Schedule::note_backward(uint32_t module) {
  if (std::exchange(entered_[module].backward, true)) return;
  backward_.push_back(module);
}

void Schedule::forget_backward(uint32_t module) {
  if (!std::exchange(entered_[module].backward, false)) return;
  backward_.erase(std::find(backward_.rbegin(), backward_.rend(), module).base() - 1);
}

bool Schedule::same_state(const Schedule& other) const {
  return mode_ == Mode::kComplete && other.mode_ == Mode::kComplete && traces_ == other.traces_ &&
         with_gradient_ == other.with_gradient_ && outdated_ == other.outdated_ && step_ == other.step_ &&
         live_ == other.live_ && queue_head_ == other.queue_head_ && entered_ == other.entered_ &&
         backward_ == other.backward_ && releases_.changes() == other.releases_.changes() &&
         layout_.version() == other.layout_.version() && swapping_.same_state(other.swapping_) &&
         parameters_.same_state(other.parameters_);
}

sdk::CoordinatorCounts Schedule::counts() const {
  sdk::CoordinatorCounts made{};
  made.trace = mode_ == Mode::kRecording  ? PLIANT_TRACE_RECORDING
               : mode_ == Mode::kComplete ? PLIANT_TRACE_COMPLETE
                                          : PLIANT_TRACE_INVALID;
  made.whole = live_;
  made.visits = static_cast<uint64_t>(step_);
  made.ahead = has_queue_ ? queue_.size() - queue_head_ : UINT64_MAX;
  made.lost_to_gaps = UINT64_MAX;
  return made;
}

}  // namespace pliant::coordinator::zero3
