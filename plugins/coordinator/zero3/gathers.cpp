// Gathers: of what a visit needs, and of what later visits of the trace need.
#include <algorithm>
#include <bit>
#include <string>

#include "schedule.hpp"

namespace pliant::coordinator::zero3 {
void Schedule::refuse_second_gather(uint32_t parameter) const {
  throw sdk::Failure(
      PLIANT_FAILED_PRECONDITION,
      model_->name_of_parameter(parameter) +
          " was released before its own wait and is gathered again; set [coordinator.zero3] strict = true");
}

void Schedule::refuse_empty(uint32_t parameter) const {
  throw sdk::Failure(PLIANT_INVALID_ARGUMENT, model_->name_of_parameter(parameter) +
                                                  " has no elements, and version head does not gather an empty "
                                                  "parameter alone; set [coordinator.zero3] strict = true");
}

void Schedule::gather(Numbers parameters, sdk::Actions& actions) {
  const uint32_t group = actions.new_group();
  const uint32_t number = parameters_.new_gather();
  uint32_t twice = PLIANT_NO_PARAMETER;
  for (const uint32_t parameter : parameters) {
    if (parameters_.whole(parameter)) continue;
    live_ += static_cast<int64_t>(parameters_.elements(parameter));
    actions.gather(parameter, group);
    if (!parameters_.gather(parameter, number)) twice = parameter;
  }
  if (twice != PLIANT_NO_PARAMETER) refuse_second_gather(twice);
  if (swapping_.on()) {
    for (const uint32_t parameter : parameters) free_shard_of_persistent(parameter, number);
  }
}

/// As DeepSpeed: what is gathered for good needs its shard no more, so that the parameter is whole and away.
void Schedule::free_shard_of_persistent(uint32_t parameter, uint32_t gather) {
  if (options_.strict || !parameters_.persistent(parameter) || !parameters_.registered(parameter) ||
      parameters_.gather_of(parameter) != gather) {
    return;
  }
  swapping_.free(parameter);
}

void Schedule::gather_missing(Numbers used, sdk::Actions& actions) {
  uint64_t elements = 0;
  for (const uint32_t parameter : used) {
    if (!parameters_.whole(parameter)) elements += parameters_.elements(parameter);
  }
  if (elements == 0 && options_.head && !options_.strict) return;
  if (options_.strict) make_room(used, elements, actions);
  if (swapping_.on()) {
    for (const uint32_t parameter : used) {
      if (!parameters_.whole(parameter) && swapping_.away(parameter)) {
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
  if (known && !reuse_.ready()) reuse_.build(*layout_, trace_, model_->parameters, ReuseTable::Reach::kUsed);
  for (uint32_t parameter = 0; parameter < parameters_.size(); ++parameter) {
    if (!parameters_.whole(parameter) || parameters_.used(parameter) || parameters_.elements(parameter) == 0 ||
        stays(parameter) || std::binary_search(used.begin(), used.end(), parameter)) {
      continue;
    }
    candidates.push_back({known ? reuse_.next_use(parameter, static_cast<uint64_t>(step_)) : 0, parameter});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.next_use > b.next_use; });
  for (const Candidate& candidate : candidates) {
    if (fits()) return;
    if (parameters_.registered(candidate.parameter)) take_off_register(candidate.parameter, actions);
    release(candidate.parameter, actions);
  }
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

/// One parameter after the other: some are away, or other modules use some.
void Schedule::begin_use(const sdk::Visit& visit, const ModuleUse& use, sdk::Actions& actions) {
  if (!parameters_.all_whole(use)) gather_missing(use.numbers, actions);
  parameters_.add_user(use, visit.module);
  if (visit.recompute && options_.head && !backward_.empty()) attribute_recomputed(use.numbers);
  wait_for(use, actions);
}

/// Frozen ones of a module that is recomputed leave with the module whose backward asked for that.
void Schedule::attribute_recomputed(Numbers used) {
  const uint32_t owner = backward_.back();
  std::vector<uint32_t>& recomputed = entered_[owner].recomputed;
  for (const uint32_t parameter : used) {
    if (!parameters_.frozen(parameter)) continue;
    if (std::find(recomputed.begin(), recomputed.end(), parameter) == recomputed.end()) recomputed.push_back(parameter);
    parameters_.add_other_user(parameter, owner);
  }
}

/// As many different parameters leave the queue as the visit has that were not fetched for it yet. They must be these.
void Schedule::take_off_queue_slowly(Numbers used) {
  const uint32_t wanted = parameters_.new_stamp();
  const uint32_t taken = parameters_.new_stamp();
  size_t wanted_count = 0;
  for (const uint32_t parameter : used) {
    if (queue_.taken_for(parameter) >= step_) continue;
    parameters_.set_stamp(parameter, wanted);
    ++wanted_count;
  }
  size_t taken_count = 0;
  bool others = false;
  for (; !queue_.at_end() && taken_count < wanted_count; queue_.take()) {
    const FetchQueue::Use& use = queue_.next();
    const uint32_t stamp = parameters_.stamp(use.parameter);
    if (stamp == taken) continue;
    others = others || stamp != wanted;
    parameters_.set_stamp(use.parameter, taken);
    ++taken_count;
  }
  if (others || taken_count < wanted_count) {
    throw sdk::Failure(PLIANT_FAILED_PRECONDITION,
                       "at step " + std::to_string(step_) + " a module uses other parameters than in the trace");
  }
}

/// Up to the end of the visit that comes next; false where nothing more may be fetched.
bool Schedule::prefetch_one_by_one(Ahead& ahead, sdk::Actions& actions) {
  const bool strict = options_.strict;
  const bool empty_alone = !options_.head || strict;
  const uint32_t step = queue_.next().step;
  for (; !queue_.at_end() && queue_.next().step == step && ahead.elements < ahead.room; queue_.take()) {
    const uint32_t parameter = queue_.next().parameter;
    const bool away = !parameters_.whole(parameter);
    if (swapping_.away(parameter) && (away || !strict)) return false;
    if (away) {
      const auto more = static_cast<int64_t>(parameters_.elements(parameter));
      if (strict && more > ahead.room - ahead.elements) return false;
      ahead.elements += more;
      if (ahead.elements > 0 || empty_alone) {
        gather_ahead(parameter, ahead, actions);
      } else {
        empty_.push_back(parameter);
      }
    }
  }
  return true;
}

void Schedule::gather_ahead(uint32_t parameter, Ahead& ahead, sdk::Actions& actions) {
  actions.gather(parameter, ahead.group, true);
  if (!parameters_.gather(parameter, ahead.number)) ahead.twice = parameter;
}

/// Those without elements that came before all others: together with others they are gathered.
void Schedule::gather_empty(Ahead& ahead, sdk::Actions& actions) {
  for (const uint32_t parameter : empty_) {
    if (ahead.elements > 0 && !parameters_.whole(parameter)) gather_ahead(parameter, ahead, actions);
  }
  empty_.clear();
}

/// Shards of the parameters that come after those on their way: while no more than twice their elements were looked at,
/// and no more than there are free buffers. Unless strict, also those of parameters that are whole.
void Schedule::load_ahead(sdk::Actions& actions) {
  uint64_t on_their_way = 0;
  for (uint32_t word = 0; word < parameters_.word_count(); ++word) {
    each_of(word, parameters_.words()[word].registered,
            [&](uint32_t parameter) { on_their_way += parameters_.elements(parameter); });
  }
  uint64_t considered = 0;
  for (size_t i = queue_.taken(); i < queue_.size(); ++i) {
    const uint32_t parameter = queue_.at(i).parameter;
    if (considered > 2 * on_their_way || !swapping_.has_room()) return;
    const bool wanted = !options_.strict || !parameters_.whole(parameter);
    if (wanted && swapping_.away(parameter)) swapping_.load(parameter, actions);
    considered += parameters_.elements(parameter);
  }
}

}  // namespace pliant::coordinator::zero3
