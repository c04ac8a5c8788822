// Gathers: of what a visit needs, and of what later visits of the trace need.
#include <algorithm>
#include <string>

#include "schedule.hpp"

namespace pliant::coordinator::zero3 {
namespace {

/// Waits of earlier visits that may be unfinished when another one is enqueued.
constexpr uint64_t kUnfinishedWaits = 2;

}  // namespace

void Schedule::gather(Numbers parameters, bool ahead, sdk::Actions& actions) {
  const uint32_t group = actions.new_group();
  const uint32_t number = parameters_.new_gather();
  uint32_t twice = PLIANT_NO_PARAMETER;
  for (const uint32_t parameter : parameters) {
    ParameterState& state = parameters_[parameter];
    if (state.status != ParameterState::kPartitioned) continue;
    state.status = ParameterState::kOnItsWay;
    live_ += static_cast<int64_t>(state.elements);
    actions.gather(parameter, group, ahead);
    if (state.registered) {
      twice = parameter;
    } else {
      parameters_.enter_register(state, number);
    }
  }
  if (twice != PLIANT_NO_PARAMETER) {
    throw sdk::Failure(PLIANT_FAILED_PRECONDITION,
                       "parameter " + std::to_string(twice) +
                           " was released before its own wait and is gathered once more; set strict = true");
  }
}

void Schedule::gather_missing(Numbers used, sdk::Actions& actions) {
  uint64_t elements = 0;
  bool missing = false;
  for (const uint32_t parameter : used) {
    const ParameterState& state = parameters_[parameter];
    if (state.status != ParameterState::kPartitioned) continue;
    missing = true;
    elements += state.elements;
  }
  if (!missing || (elements == 0 && options_.head && !options_.strict)) return;
  if (options_.strict) make_room(used, elements, actions);
  if (swapping_.on()) {
    for (const uint32_t parameter : used) {
      if (parameters_[parameter].status == ParameterState::kPartitioned && swapping_.away(parameter)) {
        swapping_.load(parameter, actions);
      }
    }
  }
  gather(used, false, actions);
}

/// Releases what no entered module uses, what is used last first, until `elements` more stay within the limit.
void Schedule::make_room(Numbers used, uint64_t elements, sdk::Actions& actions) {
  const auto fits = [&] { return live_ + static_cast<int64_t>(elements) <= options_.max_live; };
  if (fits()) return;
  struct Candidate {
    uint64_t next_use;
    uint32_t parameter;
  };
  std::vector<Candidate> candidates;
  const bool known = mode_ == Mode::kComplete;
  if (known && !reuse_.ready()) reuse_.build(layout_, trace_, model_.parameters, ReuseTable::Reach::kUsed);
  for (uint32_t parameter = 0; parameter < parameters_.size(); ++parameter) {
    const ParameterState& state = parameters_[parameter];
    if (state.status == ParameterState::kPartitioned || state.user != ParameterState::kNobody || state.elements == 0 ||
        state.external || state.persistent || std::binary_search(used.begin(), used.end(), parameter)) {
      continue;
    }
    candidates.push_back({known ? reuse_.next_use(parameter, static_cast<uint64_t>(step_)) : 0, parameter});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.next_use > b.next_use; });
  for (const Candidate& candidate : candidates) {
    if (fits()) return;
    ParameterState& state = parameters_[candidate.parameter];
    if (state.registered) take_off_register(candidate.parameter, state, actions);
    release(candidate.parameter, actions);
  }
}

void Schedule::wait(uint32_t parameter, sdk::Actions& actions) {
  actions.bound_waits(kUnfinishedWaits);
  actions.wait(parameter);
  parameters_.leave_register(parameters_[parameter]);
}

void Schedule::attribute_recomputed(uint32_t parameter) {
  const uint32_t owner = backward_.back();
  std::vector<uint32_t>& recomputed = recomputed_[owner];
  if (std::find(recomputed.begin(), recomputed.end(), parameter) == recomputed.end()) recomputed.push_back(parameter);
  parameters_.add_user(parameter, owner);
}

void Schedule::take_off_queue(Numbers used) {
  size_t next = queue_head_;
  for (const uint32_t parameter : used) {
    if (parameters_[parameter].fetched_for >= step_) continue;
    if (next == queue_.size() || queue_[next].parameter != parameter) return take_off_queue_slowly(used);
    ++next;
  }
  for (; queue_head_ < next; ++queue_head_) {
    const Use& use = queue_[queue_head_];
    parameters_[use.parameter].fetched_for = use.step;
  }
}

/// As many different parameters leave the queue as the visit has that were not fetched for it yet. They must be these.
void Schedule::take_off_queue_slowly(Numbers used) {
  const uint32_t wanted = parameters_.new_stamp();
  const uint32_t taken = parameters_.new_stamp();
  size_t wanted_count = 0;
  for (const uint32_t parameter : used) {
    ParameterState& state = parameters_[parameter];
    if (state.fetched_for >= step_) continue;
    state.stamp = wanted;
    ++wanted_count;
  }
  size_t taken_count = 0;
  bool others = false;
  for (; queue_head_ < queue_.size() && taken_count < wanted_count; ++queue_head_) {
    const Use& use = queue_[queue_head_];
    ParameterState& state = parameters_[use.parameter];
    state.fetched_for = use.step;
    if (state.stamp == taken) continue;
    others = others || state.stamp != wanted;
    state.stamp = taken;
    ++taken_count;
  }
  if (others || taken_count < wanted_count) {
    throw sdk::Failure(PLIANT_FAILED_PRECONDITION,
                       "at step " + std::to_string(step_) + " a module uses other parameters than in the trace");
  }
}

void Schedule::prefetch(sdk::Actions& actions) {
  const int64_t room = std::min(options_.max_live - live_, options_.prefetch_bucket);
  int64_t elements = 0;
  const uint32_t stamp = parameters_.new_stamp();
  chosen_.clear();
  for (; queue_head_ < queue_.size() && elements < room; ++queue_head_) {
    const Use& use = queue_[queue_head_];
    ParameterState& state = parameters_[use.parameter];
    if (swapping_.on() && state.status == ParameterState::kPartitioned && swapping_.away(use.parameter)) break;
    if (state.status == ParameterState::kPartitioned && state.stamp != stamp) {
      const auto more = static_cast<int64_t>(state.elements);
      if (options_.strict && more > room - elements) break;
      state.stamp = stamp;
      chosen_.push_back(use.parameter);
      elements += more;
    }
    state.fetched_for = std::max(state.fetched_for, int64_t{use.step});
  }
  if (chosen_.empty() || (elements == 0 && options_.head && !options_.strict)) return;
  gather(chosen_, true, actions);
}

/// Shards of the parameters that come after those on their way: at most twice their elements, and no more than there are
/// free buffers.
void Schedule::load_ahead(sdk::Actions& actions) {
  uint64_t on_their_way = 0;
  for (const ParameterState& state : parameters_.all()) {
    if (state.registered) on_their_way += state.elements;
  }
  uint64_t considered = 0;
  for (size_t i = queue_head_; i < queue_.size(); ++i) {
    const uint32_t parameter = queue_[i].parameter;
    if (considered > 2 * on_their_way || !swapping_.has_room()) return;
    if (parameters_[parameter].status == ParameterState::kPartitioned && swapping_.away(parameter)) {
      swapping_.load(parameter, actions);
    }
    considered += parameters_[parameter].elements;
  }
}

}  // namespace pliant::coordinator::zero3
