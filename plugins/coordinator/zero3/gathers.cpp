// Gathers: of what a visit needs, and of what later visits of the trace need.
#include <algorithm>
#include <string>

#include "schedule.hpp"

namespace pliant::coordinator::zero3 {
namespace {

/// Waits of earlier visits that may be unfinished when another one is enqueued.
constexpr uint64_t kUnfinishedWaits = 2;

}  // namespace

void Schedule::refuse_second_gather(uint32_t parameter) {
  throw sdk::Failure(PLIANT_FAILED_PRECONDITION,
                     "parameter " + std::to_string(parameter) +
                         " was released before its own wait and is gathered once more; set strict = true");
}

void Schedule::refuse_empty(uint32_t parameter) {
  throw sdk::Failure(PLIANT_INVALID_ARGUMENT,
                     "parameter " + std::to_string(parameter) +
                         " has no elements, and version head does not gather such a one alone; set strict = true");
}

void Schedule::gather(Numbers parameters, sdk::Actions& actions) {
  const uint32_t group = actions.new_group();
  const uint32_t number = parameters_.new_gather();
  uint32_t twice = PLIANT_NO_PARAMETER;
  for (const uint32_t parameter : parameters) {
    ParameterState& state = parameters_[parameter];
    if (state.status != ParameterState::kPartitioned) continue;
    state.status = ParameterState::kOnItsWay;
    live_ += static_cast<int64_t>(state.elements);
    actions.gather(parameter, group);
    if (state.registered) {
      twice = parameter;
    } else {
      parameters_.enter_register(state, number);
    }
  }
  if (twice != PLIANT_NO_PARAMETER) refuse_second_gather(twice);
  if (swapping_.on()) {
    for (const uint32_t parameter : parameters) free_shard_of_persistent(parameter, number);
  }
}

/// As DeepSpeed: what is gathered for good needs its shard no more, so that the parameter is whole and away.
void Schedule::free_shard_of_persistent(uint32_t parameter, uint32_t gather) {
  const ParameterState& state = parameters_[parameter];
  if (options_.strict || !state.persistent || !state.registered || state.gather != gather) return;
  swapping_.free(parameter);
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
  gather(used, actions);
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

/// Returns how many of `used` were not fetched for this visit yet.
size_t Schedule::wait_for(uint32_t module, Numbers used, bool recomputes, sdk::Actions& actions) {
  ParameterState* const states = parameters_.data();
  uint32_t* const arrived = parameters_.arrived();
  const int64_t step = step_;
  size_t not_fetched = 0;
  uint64_t waits = 0;
  uint32_t empty = PLIANT_NO_PARAMETER;
  sdk::Actions::Burst burst = actions.burst(2 * used.size());
  for (const uint32_t parameter : used) {
    ParameterState& state = states[parameter];
    if (state.user == ParameterState::kNobody) {
      state.user = module;
    } else {
      parameters_.add_user(parameter, module);
    }
    if (recomputes && state.frozen) attribute_recomputed(parameter);
    if (state.registered) {
      burst.bound_waits(kUnfinishedWaits);
      burst.wait(parameter);
      Parameters::arrive(state, arrived);
      ++waits;
    }
    if (state.status != ParameterState::kAvailable) {
      empty = parameter;
      break;
    }
    not_fetched += state.fetched_for < step ? 1 : 0;
  }
  parameters_.count_arrived(waits);
  if (empty != PLIANT_NO_PARAMETER) refuse_empty(empty);
  return not_fetched;
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
  if (queue_head_ == queue_.size() || room <= 0) return;
  ParameterState* const states = parameters_.data();
  const bool empty_alone = !options_.head || options_.strict;
  const bool strict = options_.strict;
  const bool swaps = swapping_.on();
  const uint32_t group = actions.new_group();
  const uint32_t number = parameters_.new_gather();
  int64_t elements = 0;
  uint64_t gathered = 0;
  uint32_t twice = PLIANT_NO_PARAMETER;
  empty_.clear();
  sdk::Actions::Burst burst = actions.burst(parameters_.size());
  const auto gather_one = [&](uint32_t parameter, ParameterState& state) {
    state.status = ParameterState::kOnItsWay;
    burst.gather(parameter, group, true);
    if (state.registered) {
      twice = parameter;
      return;
    }
    state.registered = true;
    state.gather = number;
    ++gathered;
  };
  const Use* use = queue_.data() + queue_head_;
  for (const Use* const end = queue_.data() + queue_.size(); use != end && elements < room; ++use) {
    ParameterState& state = states[use->parameter];
    const bool partitioned = state.status == ParameterState::kPartitioned;
    if (swaps && swapping_.away(use->parameter) && (partitioned || !strict)) break;
    if (partitioned) {
      const auto more = static_cast<int64_t>(state.elements);
      if (strict && more > room - elements) break;
      elements += more;
      if (elements > 0 || empty_alone) {
        gather_one(use->parameter, state);
      } else {
        empty_.push_back(use->parameter);
      }
    }
    state.fetched_for = std::max(state.fetched_for, int64_t{use->step});
  }
  const size_t from = queue_head_;
  queue_head_ = static_cast<size_t>(use - queue_.data());
  if (elements > 0) {
    for (const uint32_t parameter : empty_) {  // together with others they are gathered
      if (states[parameter].status == ParameterState::kPartitioned) gather_one(parameter, states[parameter]);
    }
  }
  parameters_.count_registered(gathered);
  live_ += elements;
  if (twice != PLIANT_NO_PARAMETER) refuse_second_gather(twice);
  if (swaps && !strict) {
    for (size_t i = from; i < queue_head_; ++i) free_shard_of_persistent(queue_[i].parameter, number);
  }
}

/// Shards of the parameters that come after those on their way: while no more than twice their elements were looked at,
/// and no more than there are free buffers. Unless strict, also those of parameters that are whole.
void Schedule::load_ahead(sdk::Actions& actions) {
  uint64_t on_their_way = 0;
  for (const ParameterState& state : parameters_.all()) {
    if (state.registered) on_their_way += state.elements;
  }
  uint64_t considered = 0;
  for (size_t i = queue_head_; i < queue_.size(); ++i) {
    const uint32_t parameter = queue_[i].parameter;
    if (considered > 2 * on_their_way || !swapping_.has_room()) return;
    const bool wanted = !options_.strict || parameters_[parameter].status == ParameterState::kPartitioned;
    if (wanted && swapping_.away(parameter)) swapping_.load(parameter, actions);
    considered += parameters_[parameter].elements;
  }
}

}  // namespace pliant::coordinator::zero3
