// The order of one visit: gather, wait, fetch ahead; at its end, release.
#include "schedule.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace pliant::coordinator::zero3 {

Schedule::Schedule(const sdk::Model& model, const ScheduleOptions& options)
    : options_(options),
      model_(std::make_shared<const sdk::Model>(model)),
      layout_(std::make_shared<const Layout>(model, options.strict)),
      uses_(layout_->uses()),
      parameters_(model.parameters),
      queue_(model.parameters.size()),
      entered_(model.modules.size()) {
  sdk::require(options.head || !layout_->has_leaves(), "version seed does not support leaf modules", "version");
  for (const uint32_t parameter : layout_->persistent(options.persistence, model.parameters)) {
    parameters_.make_persistent(parameter);
  }
  parameters_.set_listers(layout_->listers());
  if (options.swap_buffers >= 0) swapping_ = Swapping(parameters_.size(), options.swap_buffers);
  mode_ = options.head ? Mode::kInvalid : Mode::kRecording;
}

void Schedule::set_parameters(uint32_t module, Numbers own, Numbers external) {
  auto changed = std::make_shared<Layout>(*layout_);
  changed->set_parameters(module, own, external);
  layout_ = std::move(changed);
  uses_ = layout_->uses();
  parameters_.set_listers(layout_->listers());
  reuse_.clear();
  reuse_of_leaves_.clear();
  outdated_ = options_.strict && mode_ == Mode::kComplete;
}

void Schedule::take_off_queue(const ModuleUse& use) {
  const auto step = static_cast<uint64_t>(step_);
  if (!queue_.is_of(*layout_) || queue_.is_before(step)) return take_off_queue_slowly(use.numbers);
  if (!queue_.has_taken(step)) queue_.take_visit(step);
}

/// All that the visit uses would be fetched ahead, one by one, where there is room for so many elements.
bool Schedule::fits(const ModuleUse& visit, int64_t room) const {
  const auto before_last = static_cast<int64_t>(visit.elements - visit.elements_of_last);
  return !visit.has_empty && (options_.strict ? static_cast<int64_t>(visit.elements) <= room : before_last < room);
}

/// The visit that comes next, where each of its parameters would be gathered, or none.
bool Schedule::prefetch_visit(uint32_t group, uint32_t number, int64_t room, int64_t& elements, sdk::Actions& actions) {
  const uint32_t step = queue_.next().step;
  if (queue_.has_begun(step)) return false;
  const ModuleUse& visit = use_of(trace_[step]);
  const Parameters::Standing standing = parameters_.standing_ahead(visit);
  if (standing == Parameters::Standing::kMixed) return false;
  if (standing == Parameters::Standing::kAway) {
    if (!fits(visit, room - elements)) return false;
    if (group == kFirstGroup) {
      actions.append(visit.gathers);
    } else {
      for (const uint32_t parameter : visit.numbers) actions.gather(parameter, group, true);
    }
    parameters_.gather_all(visit, number);
    elements += static_cast<int64_t>(visit.elements);
  }
  queue_.take_visit(step);
  return true;
}

void Schedule::prefetch(sdk::Actions& actions) {
  const int64_t room = std::min(options_.max_live - live_, options_.prefetch_bucket);
  if (queue_.at_end() || room <= 0) return;
  const bool by_visit = !swapping_.on() && queue_.is_of(*layout_);
  const uint32_t group = actions.new_group();
  const uint32_t number = parameters_.new_gather();
  int64_t elements = 0;
  while (by_visit && !queue_.at_end() && elements < room && prefetch_visit(group, number, room, elements, actions)) {
  }
  if (queue_.at_end() || elements >= room) {
    live_ += elements;
    return;
  }
  prefetch_slowly({group, number, room, elements}, by_visit, actions);
}

/// From the first visit on of whose parameters some are here and some away, or that does not fit.
void Schedule::prefetch_slowly(Ahead ahead, bool by_visit, sdk::Actions& actions) {
  empty_.clear();  // a call that failed may have left some
  const size_t from = queue_.taken();
  while (prefetch_one_by_one(ahead, actions) && !queue_.at_end() && ahead.elements < ahead.room) {
    while (by_visit && !queue_.at_end() && ahead.elements < ahead.room &&
           prefetch_visit(ahead.group, ahead.number, ahead.room, ahead.elements, actions)) {
    }
    if (queue_.at_end() || ahead.elements >= ahead.room) break;
  }
  live_ += ahead.elements;
  if (!empty_.empty()) gather_empty(ahead, actions);
  if (ahead.twice != PLIANT_NO_PARAMETER) refuse_second_gather(ahead.twice);
  if (swapping_.on() && !options_.strict) {
    for (size_t i = from; i < queue_.taken(); ++i) free_shard_of_persistent(queue_.at(i).parameter, ahead.number);
  }
}

void Schedule::enter(const sdk::Visit& visit, sdk::Actions& actions) {
  if (mode_ == Mode::kComplete && !is_next(visit.module)) invalidate(actions);
  if (mode_ == Mode::kRecording) trace_.push_back(visit.module);
  if (visit.backward && options_.head) note_backward(visit.module);
  ++entered_[visit.module].depth;
  const ModuleUse& use = use_of(visit.module);
  const Parameters::Standing standing = visit.recompute ? Parameters::Standing::kMixed : parameters_.standing(use);
  if (standing == Parameters::Standing::kMixed) {
    begin_use(visit, use, actions);
  } else {
    parameters_.use_all(use);
    if (standing == Parameters::Standing::kComing) {
      actions.append(use.waits);
      parameters_.arrive_all(use);
    }
  }
  if (mode_ == Mode::kComplete) {
    take_off_queue(use);
    if (options_.prefetch_bucket > 0) {
      prefetch(actions);
      if (swapping_.on()) load_ahead(actions);
    }
  }
  ++step_;
}

/// Those of one word, which nothing keeps; returns their elements.
int64_t Schedule::release_at_once(ParameterBits& word, uint32_t number, uint64_t bits, sdk::Actions::Burst& burst) {
  const bool swaps = swapping_.on();
  int64_t freed = 0;
  Parameters::release(word, bits);
  each_of(number, bits, [&](uint32_t parameter) {
    freed += static_cast<int64_t>(parameters_.elements(parameter));
    if (swaps) swapping_.free(parameter);
    burst.release(parameter);
  });
  return freed;
}

void Schedule::release_used(const ModuleUse& use, const Decision* decision, sdk::Actions& actions) {
  int64_t freed = 0;
  sdk::Actions::Burst burst = actions.burst(use.numbers.size());
  for (size_t i = 0; i < use.slices.size(); ++i) {
    const Slice& slice = use.slices[i];
    ParameterBits& word = parameters_.words()[slice.word];
    const uint64_t wanted = decision == nullptr ? slice.bits : decision->released[i];
    const uint64_t released = parameters_.available(word, slice.word, wanted & ~word.used & ~word.external);
    freed += release_at_once(word, slice.word, released, burst);
  }
  live_ -= freed;
}

/// Ends the use of parameters that are all released or all kept, that have arrived, and that no other module may use;
/// else false, and nothing has changed.
bool Schedule::end_at_once(const ModuleUse& use, const Decision* decision, sdk::Actions& actions) {
  const bool strict = options_.strict;
  if (strict && (live_ > options_.max_live || is_fetched_again(decision))) return false;
  uint64_t odd = 0;
  uint64_t released = 0;
  uint64_t kept = 0;
  const uint64_t* wanted = decision == nullptr ? nullptr : decision->released.data();
  for (const Slice& slice : use.slices) {
    const ParameterBits& word = parameters_.words()[slice.word];
    const uint64_t members = wanted == nullptr ? slice.bits : *wanted++;
    const uint64_t staying = word.external | (strict ? word.persistent | word.registered : 0);
    odd |= slice.bits & (~(word.arrived & word.exclusive) | staying);
    released |= members;
    kept |= slice.bits & ~members;
  }
  if (odd != 0 || (released != 0 && kept != 0)) return false;
  if (released != 0) {
    actions.append(use.releases);
    live_ -= static_cast<int64_t>(use.elements);
  }
  parameters_.end_all(use, released != 0);
  return true;
}

/// Of what a module that is left uses something may have been fetched for a visit after the next.
bool Schedule::is_fetched_again(const Decision* decision) const {
  return decision != nullptr && queue_.has_begun_from(decision->used_again);
}

void Schedule::leave(const sdk::Visit& visit, sdk::Actions& actions) {
  const uint32_t module = visit.module;
  Entered& entered = entered_[module];
  if (entered.depth > 0 && --entered.depth > 0 && options_.strict) return;
  const ModuleUse& use = use_of(module);
  Decision* decision = nullptr;
  if (mode_ == Mode::kComplete) {
    decision = releases_.find(module, static_cast<uint64_t>(step_));
    if (decision == nullptr || decision->version != layout_->version()) decision = &decide(module, use, decision);
  }
  if (visit.backward && options_.head) {
    sdk::require(!backward_.empty(), [&] {
      return "module " + std::to_string(module) + " is left in backward, but no module was entered";
    });
    if (!entered.recomputed.empty()) leave_recomputed(module, decision, actions);
    forget_backward(module);
  }
  if (!swapping_.on() && end_at_once(use, decision, actions)) return;
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
  const bool fetched_again = is_fetched_again(decision);
  sdk::Actions::Burst burst = actions.burst(2 * use.numbers.size());
  for (size_t i = 0; i < use.slices.size(); ++i) {
    const Slice& slice = use.slices[i];
    ParameterBits& word = parameters_.words()[slice.word];
    const uint64_t kept = decision == nullptr ? 0 : slice.bits & ~decision->released[i];
    const uint64_t open = slice.bits & ~word.used & ~word.external & ~word.persistent;
    const bool within_limit = live_ <= options_.max_live;
    const uint64_t looked_at = parameters_.available(word, slice.word, within_limit ? open & ~kept : open);
    if (within_limit && !fetched_again && (looked_at & word.registered) == 0) {
      live_ -= release_at_once(word, slice.word, looked_at, burst);
      continue;
    }
    each_of(slice.word, looked_at, [&](uint32_t parameter) {
      const bool wanted = (kept >> parameter % 64 & 1) != 0 || queue_.taken_for(parameter) > step_;
      if (wanted && live_ <= options_.max_live) return;
      if (parameters_.registered(parameter)) {
        parameters_.leave_register(parameter);
        burst.wait(parameter);
      }
      live_ -= release_at_once(word, slice.word, uint64_t{1} << parameter % 64, burst);
    });
  }
}

/// `known`: what was decided before the module had other parameters, or NULL.
Decision& Schedule::decide(uint32_t module, const ModuleUse& use, Decision* known) {
  const auto step = static_cast<uint64_t>(step_);
  if (known != nullptr) {
    Releases::align(*known, use.slices, layout_->version());
    known->used_again = 0;  // maybe
    return *known;
  }
  const bool deep = !options_.strict && layout_->is_leaf(module);
  ReuseTable& table = deep ? reuse_of_leaves_ : reuse_;
  if (!table.ready()) {
    const auto reach = options_.strict ? ReuseTable::Reach::kUsed
                       : deep          ? ReuseTable::Reach::kDeep
                                       : ReuseTable::Reach::kListed;
    table.build(*layout_, trace_, model_->parameters, reach);
  }
  Decision& made = releases_.add(module, step);
  made.used_again = UINT64_MAX;
  const auto distance = static_cast<uint64_t>(options_.max_reuse_distance);
  for (const uint32_t parameter : use.numbers) {
    if (options_.strict) made.used_again = std::min(made.used_again, table.next_use(parameter, step + 1));
    const bool skipped_ahead = !options_.strict && queue_.taken_for(parameter) > step_;
    if (parameters_.persistent(parameter) || skipped_ahead || table.reused(parameter, step, distance)) continue;
    made.members.push_back(parameter);
  }
  Releases::align(made, use.slices, layout_->version());
  return made;
}

void Schedule::leave_recomputed(uint32_t module, Decision* decision, sdk::Actions& actions) {
  std::vector<uint32_t> recomputed;
  recomputed.swap(entered_[module].recomputed);
  const ModuleUse& use = use_of(module);
  for (const uint32_t parameter : recomputed) {
    if (!parameters_.persistent(parameter) && decision != nullptr && !options_.strict) {
      releases_.add_member(*decision, parameter);
    }
    if (std::binary_search(use.numbers.begin(), use.numbers.end(), parameter)) continue;
    parameters_.remove_user(parameter, module);
    if (!stays(parameter)) release(parameter, actions);
  }
  if (decision != nullptr) Releases::align(*decision, use.slices, layout_->version());
}

bool Schedule::same_state(const Schedule& other) const {
  return mode_ == Mode::kComplete && other.mode_ == Mode::kComplete && traces_ == other.traces_ &&
         with_gradient_ == other.with_gradient_ && outdated_ == other.outdated_ && step_ == other.step_ &&
         live_ == other.live_ && queue_.taken() == other.queue_.taken() && entered_ == other.entered_ &&
         backward_ == other.backward_ && releases_.changes() == other.releases_.changes() &&
         layout_->version() == other.layout_->version() && swapping_.same_state(other.swapping_) &&
         parameters_.same_state(other.parameters_);
}

sdk::CoordinatorCounts Schedule::counts() const {
  sdk::CoordinatorCounts made{};
  made.trace = mode_ == Mode::kRecording  ? PLIANT_TRACE_RECORDING
               : mode_ == Mode::kComplete ? PLIANT_TRACE_COMPLETE
                                          : PLIANT_TRACE_INVALID;
  made.whole = live_;
  made.visits = static_cast<uint64_t>(step_);
  made.ahead = has_queue_ ? queue_.size() - queue_.taken() : UINT64_MAX;
  made.lost_to_gaps = UINT64_MAX;
  return made;
}

}  // namespace pliant::coordinator::zero3
