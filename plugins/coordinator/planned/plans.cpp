// Planner: how a pass that is known will be answered: ways that are tried on paper, and the one that is kept.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "answered.hpp"
#include "planner.hpp"

namespace pliant::coordinator::planned {
namespace {

constexpr uint64_t kPercent = 100;
/// That may be gathered beyond the least.
constexpr uint64_t kNextToNothing = 2;
/// As many plans as large as the largest always have room, or those of one step would drive each other out.
constexpr size_t kFewestPlans = 16;

}  // namespace

uint64_t Planner::reserve_of(TraceId id, const Trace& trace, uint64_t bucket, bool lingers) {
  if (layout_->model().budget == 0) return 0;
  const auto known = reserves_.find({id, bucket, lingers});
  if (known != reserves_.end()) return known->second;
  std::erase_if(reserves_, [this](const auto& one) { return !traces_.knows(std::get<TraceId>(one.first)); });
  return reserves_[{id, bucket, lingers}] = most_depth(*layout_, bucket, lingers, trace);
}

// For it to be of use the next module must be gathered ahead; and a pass that leaves its order must find room for any
// module beside what lingers. It pays to wait less for gradients, but not to keep much less.
bool Planner::may_linger(TraceId id, const Trace& trace, uint64_t bucket) {
  const uint64_t budget = layout_->model().budget;
  if (budget == 0) return true;
  const uint64_t plain = reserve_of(id, trace, bucket, false);
  const uint64_t more = reserve_of(id, trace, bucket, true);
  const uint64_t used = layout_->most_used_bytes();
  if (more > budget || budget - more < std::max(2 * used, used + layout_->most_gradient_bytes())) return false;
  return more - plain <= (budget - plain) / kPartOfSpare;
}

// Fewer wait where that lets them linger. What fits in no other way leaves at once.
std::vector<Planner::Leaving> Planner::ways_to_leave(TraceId id, const Trace& trace) {
  std::vector<Leaving> ways;
  if (trace.with_gradient && (layout_->model().reduce_flags & PLIANT_ACTION_LINGER) != 0) {
    for (const uint64_t part : {uint64_t{1}, uint64_t{2}, uint64_t{4}}) {
      if (!ways.empty() || !may_linger(id, trace, bucket_ / part)) continue;
      ways.push_back({bucket_ / part, true});
    }
  }
  ways.push_back({bucket_, false});
  if (bucket_ > 0) ways.push_back({0, false});
  return ways;
}

Planner::Plan* Planner::plan_for(TraceId trace, TraceId after) {
  const PlanKey key{state_, trace, after};
  const auto planned = plans_.find(key);
  if (planned != plans_.end()) return &planned->second;
  if (does_not_fit_.count(key) > 0) return nullptr;
  Plan made;
  made.trace = traces_.find(trace);
  made.uses = Uses(*layout_, made.trace, traces_.find(after));
  made.begins = state_;
  if (!is_decided(made, trace, ways_to_leave(trace, *made.trace))) {
    does_not_fit_.insert(key);
    return nullptr;
  }
  made.ends = state_of(std::exchange(made.kept_at_end, {}));
  plan_bytes_ += made.bytes();
  size_t largest = made.bytes();
  for (const auto& one : plans_) largest = std::max(largest, one.second.bytes());
  forget_least_used_plans(std::max<size_t>(options_.plan_bytes, kFewestPlans * largest));
  return &(plans_[key] = std::move(made));
}

bool Planner::is_decided(Plan& plan, TraceId trace, std::span<const Leaving> ways) {
  const Plan begun = plan;
  for (const Leaving& way : ways) {
    const auto placed = [&](Placing placing) {
      Plan made = begun;
      made.options = {options_.ahead, way.bucket, way.lingers};
      made.options.gather_bucket = options_.gather_bucket;
      made.options.placing = placing;
      made.reserve = reserve_of(trace, *made.trace, way.bucket, way.lingers);
      return made;
    };
    // Where one fits the others are not tried: what gathers cost would have a say in where all lies.
    for (const Placing placing : {Placing::kBestFit, Placing::kBySize, Placing::kLow, Placing::kLater}) {
      plan = placed(placing);
      if (!is_decided(plan)) continue;
      const bool loses = layout_->model().budget > 0 && (plan.lost_to_gaps > 0 || plan.wasted > 0);
      if (!loses || placing == Placing::kLater) return true;
      Plan later = placed(Placing::kLater);
      if (is_decided(later, plan.cost) && later.cost + later.late < plan.cost + plan.late) plan = std::move(later);
      return true;
    }
  }
  return false;
}

// Of the ways that gather next to nothing more than the least, the one that has least to wait for.
bool Planner::is_decided(Plan& plan, std::optional<Wide> below) {
  if (layout_->model().budget == 0) return decide_all(plan);
  std::vector<Trial> ways = tried_ways(plan);
  if (below) std::erase_if(ways, [&below](const Trial& way) { return way.cost >= *below; });
  if (ways.empty()) return false;
  const auto take = [this, &plan](const Trial& way, uint64_t ahead) {
    Plan made = plan;
    made.options = way.options;
    made.options.ahead = ahead;
    made.options.gather_bucket = options_.gather_bucket;
    made.lost_to_gaps = way.lost_to_gaps;
    made.cost = way.cost;
    made.uses.mark(way.whole);
    return made;
  };
  std::optional<Plan> best;
  for (const Trial& way : ways) {
    if (best && (best->late == 0 || way.cost * kPercent > ways.front().cost * (kPercent + kNextToNothing))) break;
    Plan made = take(way, plan.options.ahead);
    if (decide_all(made) && (!best || made.late < best->late)) best = std::move(made);
  }
  if (!best) {  // what is gathered ahead lies where something else must: then nothing is
    best = take(ways.front(), 0);
    if (!decide_all(*best)) return false;
  }
  plan = std::move(*best);
  return true;
}

void Planner::forget_least_used_plans(size_t most_bytes) {
  while (plan_bytes_ > most_bytes && !plans_.empty()) {
    const auto least = std::min_element(plans_.begin(), plans_.end(),
                                        [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    plan_bytes_ -= least->second.bytes();
    plans_.erase(least);
  }
}

// Gathering ahead takes room from what is kept. So what it pays to keep is found first, by passes that gather nothing
// ahead: that keep within the same places what they can, in each way of weighing and of placing. Where none fits, what
// lies apart is moved. The best of them is tried once more with room left for a module that is gathered ahead.
std::vector<Planner::Trial> Planner::tried_ways(Plan& plan) {
  plan.uses.mark({});
  std::vector<Trial> ways;
  std::vector<pliant_action> room = room_for(*layout_);
  const auto look_at = [&](const ScheduleOptions& options, uint64_t reserve) {
    Trial made = tried(plan, options, reserve, room);
    looked_at_ += made.looked_at;
    if (made.fits) ways.push_back(std::move(made));
  };
  const bool has_room = layout_->all_bytes() + plan.reserve <= layout_->model().budget;
  for (const bool moves : {false, true}) {
    const bool comes_later = plan.options.placing == Placing::kLater;
    if (moves && (comes_later || !ways.empty() || !layout_->has_containers())) continue;
    for (const bool packs : {false, true}) {
      if (packs && (comes_later || !layout_->has_containers() || (has_room && !ways.empty()))) continue;
      for (const Weighing weighing : {Weighing::kCostByTime, Weighing::kTime, Weighing::kCost}) {
        if (has_room && !ways.empty()) continue;
        const ScheduleOptions& now = plan.options;
        look_at({0, now.bucket, now.lingers, weighing, packs, moves, now.placing, 0}, plan.reserve);
      }
    }
  }
  const auto by_cost = [](const Trial& one, const Trial& other) { return one.cost < other.cost; };
  if (!has_room && !ways.empty() && plan.options.ahead > 0) {
    const ScheduleOptions best = std::min_element(ways.begin(), ways.end(), by_cost)->options;
    look_at(best, plan.reserve + layout_->most_of_module());
  }
  std::stable_sort(ways.begin(), ways.end(), by_cost);
  return ways;
}

Planner::Trial Planner::tried(const Plan& plan, const ScheduleOptions& options, uint64_t reserve,
                              std::vector<pliant_action>& room) const {
  Trial made;
  made.options = options;
  made.whole.resize(plan.uses.uses());
  Schedule schedule = schedule_from(plan.begins, options, reserve);
  const auto add_cost = [&](std::span<const pliant_action> written) {
    for (const pliant_action& one : written) {
      if (one.kind != PLIANT_ACTION_GATHER) continue;
      made.cost += schedule.cost(one.parameter);
    }
  };
  try {
    answered(
        room, [&](sdk::Actions& actions) { schedule.begin_pass(plan.uses, actions); }, add_cost);
    for (Moment at = 0; at < plan.uses.end(); ++at) {
      const Call one = plan.uses.call(at);
      if (at == plan.uses.calls()) schedule.begin_next_pass();
      if (!leaves(one)) {
        size_t number = plan.uses.use_at(at);
        for (const uint32_t parameter : layout_->used(module_of(one))) {
          made.whole[number++] = schedule.room().at(parameter).whole;
        }
      }
      answered(
          room, [&](sdk::Actions& actions) { schedule.call(plan.uses, at, one, actions); }, add_cost);
      if (at < plan.uses.calls()) made.lost_to_gaps = schedule.lost_to_gaps();
    }
    made.fits = true;
  } catch (const sdk::Failure&) {  // it does not fit that way
  }
  made.looked_at = schedule.room().looked_at();
  return made;
}

bool Planner::decide_all(Plan& plan) {
  plan.actions.clear();
  plan.answers.clear();
  plan.late = 0;
  std::vector<pliant_action> room = room_for(*layout_);
  Schedule schedule = schedule_from(plan.begins, plan.options, plan.reserve);
  const auto keep = [&](std::span<const pliant_action> written) {
    plan.actions.insert(plan.actions.end(), written.begin(), written.end());
    plan.answers.push_back({static_cast<uint32_t>(plan.actions.size()), schedule.whole_elements()});
  };
  try {
    answered(
        room, [&](sdk::Actions& actions) { schedule.begin_pass(plan.uses, actions); }, keep);
    for (Moment at = 0; at < plan.uses.calls(); ++at) {
      answered(
          room, [&](sdk::Actions& actions) { schedule.call(plan.uses, at, plan.uses.call(at), actions); }, keep);
    }
    answered(
        room, [&](sdk::Actions& actions) { schedule.end_pass(plan.trace->with_gradient, actions); }, keep);
  } catch (const sdk::Failure&) {
    return false;
  }
  looked_at_ += schedule.room().looked_at();
  plan.late = late_gathers(plan);
  plan.kept_at_end = schedule.kept();
  plan.lost_to_gaps = std::max(plan.lost_to_gaps, schedule.lost_to_gaps());
  plan.wasted = schedule.wasted();
  plan.cost += plan.wasted;
  if (!schedule.room().has_places() && !give_places(plan)) return false;
  return plan.actions.size() <= std::numeric_limits<uint32_t>::max();
}

Wide Planner::late_gathers(const Plan& plan) const {
  Wide late = 0;
  const std::vector<Call>& calls = plan.trace->calls;
  for (size_t at = 0; at < calls.size(); ++at) {
    const bool hides_nothing = leaves(calls[at]) && at + 1 < calls.size() && !leaves(calls[at + 1]);
    const std::span<const uint32_t> next =
        hides_nothing ? layout_->used(module_of(calls[at + 1])) : std::span<const uint32_t>();
    for (uint32_t i = plan.answers[at].end; i < plan.answers[at + 1].end; ++i) {
      const pliant_action& one = plan.actions[i];
      if (one.kind != PLIANT_ACTION_GATHER) continue;
      const bool is_ahead = (one.flags & PLIANT_ACTION_PREFETCH) != 0;
      if (!is_ahead || std::binary_search(next.begin(), next.end(), one.parameter)) late += (*costs_)[one.parameter];
    }
  }
  return late;
}

}  // namespace pliant::coordinator::planned
