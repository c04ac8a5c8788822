#include "planner.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace pliant::coordinator::planned {
namespace {

/// Of what a budget spares, complete gradients may take one part of so many.
constexpr uint64_t kPartOfSpare = 4;
constexpr size_t kMostPlans = 64;
constexpr size_t kMostStates = 128;

}  // namespace

Planner::Planner(sdk::Model model, PlannerOptions options)
    : options_(options), layout_(std::make_unique<Layout>(std::move(model))), traces_(options.traces) {
  sdk::require(layout_->model().modules.size() < kMostModules,
               [] { return "a model has at most " + std::to_string(kMostModules - 1) + " modules"; });
  uint64_t& bucket = options_.schedule.bucket;
  if (layout_->model().budget > 0) bucket = std::min(bucket, layout_->spare_bytes() / kPartOfSpare);
  forget_plans();
}

void Planner::forget_plans() {
  plan_ = nullptr;
  plans_.clear();
  states_.clear();
  states_by_digest_.clear();
  schedule_ = Schedule(*layout_, options_.schedule);
  if (!costs_.empty()) schedule_.set_costs(costs_);
  state_ = state_of(schedule_);
}

void Planner::set_parameters(uint32_t module, std::span<const uint32_t> own, std::span<const uint32_t> external) {
  Schedule whole = states_[state_];
  layout_->set_parameters(module, own, external);
  whole.draw_line();
  forget_plans();
  state_ = state_of(whole);
}

void Planner::set_costs(std::span<const uint64_t> nanoseconds) {
  Wide time = 0;
  Wide bytes = 0;
  for (uint32_t i = 0; i < nanoseconds.size(); ++i) {
    if (nanoseconds[i] == 0) continue;
    time += nanoseconds[i];
    bytes += layout_->parameter(i).bytes;
  }
  if (time == 0 || bytes == 0) return;
  costs_.assign(nanoseconds.begin(), nanoseconds.end());
  for (uint32_t i = 0; i < costs_.size(); ++i) {
    if (costs_[i] == 0) costs_[i] = static_cast<uint64_t>(layout_->parameter(i).bytes * time / bytes);
  }
  Schedule whole = states_[state_];
  whole.set_costs(costs_);
  forget_plans();
  state_ = state_of(whole);
}

Planner::StateId Planner::state_of(const Schedule& schedule) {
  const uint64_t digest = schedule.room().digest();
  const auto [first, last] = states_by_digest_.equal_range(digest);
  for (auto one = first; one != last; ++one) {
    if (states_[one->second].room().same_as(schedule.room())) return one->second;
  }
  states_.push_back(schedule);
  const auto id = static_cast<StateId>(states_.size() - 1);
  states_by_digest_.emplace(digest, id);
  return id;
}

void Planner::begin_pass(bool with_gradient, sdk::Actions& actions) {
  if (plans_.size() >= kMostPlans || states_.size() >= kMostStates) {
    const Schedule whole = states_[state_];
    forget_plans();
    state_ = state_of(whole);
  }
  in_pass_ = true;
  plan_ = nullptr;
  next_ = 0;
  now_ = Trace{with_gradient, {}, {}};
  digest_ = RollingDigest(with_gradient);
  expected_ = succession_.next();
  auto trace = traces_.find(expected_);
  if (trace == nullptr || trace->with_gradient != with_gradient) {
    expected_ = traces_.newest(with_gradient);
    trace = traces_.find(expected_);
  }
  const TraceId after_id = expected_ == kNoTrace ? kNoTrace : succession_.next(expected_);
  key_ = {state_, expected_, after_id};
  const auto planned = plans_.find(key_);
  if (planned != plans_.end()) {
    plan_ = &planned->second;
    actions.append({plan_->actions.data(), plan_->answers.front().end});
    return;
  }
  schedule_ = states_[state_];
  records_ = trace != nullptr;
  auto after = traces_.find(after_id);
  uses_ = records_ ? Uses(*layout_, trace, after) : Uses();
  look_what_pays();
  made_ = Plan{trace, after, {}, {}, state_, 0};
  schedule_.begin_pass(uses_, actions);
  record(actions);
}

// Gathering ahead takes room from what is kept. So what it pays to keep is found first, by passes that gather nothing
// ahead: that keep within the same places what they can, in each way of weighing; the one that gathers least counts.
void Planner::look_what_pays() {
  schedule_.set_options(options_.schedule);
  if (!uses_.known() || schedule_.room().budget() == 0) return;
  std::vector<pliant_action> room(8 * layout_->parameters() + 64);
  std::vector<bool> best;
  Wide least = 0;
  Weighing chosen = options_.schedule.weighing;
  for (const Weighing weighing : {Weighing::kCostByTime, Weighing::kTime, Weighing::kCost}) {
    Schedule trial = schedule_;
    trial.set_options({0, options_.schedule.bucket, weighing});
    std::vector<bool> whole(uses_.uses());
    Wide cost = 0;
    trial.set_known(uses_, 0);
    try {
      for (Moment at = 0; at < uses_.end(); ++at) {
        const Call one = uses_.call(at);
        pliant_action_list list{sizeof(pliant_action_list), 0, room.size(), 0, room.data()};
        sdk::Actions actions(list);
        if (leaves(one)) {
          trial.leave(uses_, at, one, actions);
          continue;
        }
        size_t number = uses_.use_at(at);
        for (const uint32_t parameter : layout_->used(module_of(one))) {
          whole[number] = trial.room().at(parameter).whole;
          if (!whole[number++]) cost += trial.cost(parameter);
        }
        trial.enter(uses_, at, one, actions);
      }
    } catch (const sdk::Failure&) {  // it does not fit that way
      continue;
    }
    if (!best.empty() && least <= cost) continue;
    least = cost;
    best = std::move(whole);
    chosen = weighing;
  }
  if (best.empty()) return;
  uses_.mark(std::move(best));
  ScheduleOptions options = options_.schedule;
  options.weighing = chosen;
  schedule_.set_options(options);
}

void Planner::record(const sdk::Actions& actions) {
  if (!records_) return;
  const std::span<const pliant_action> written = actions.written();
  if (made_.actions.size() + written.size() > std::numeric_limits<uint32_t>::max()) {
    records_ = false;
    return;
  }
  made_.actions.insert(made_.actions.end(), written.begin(), written.end());
  made_.answers.push_back({static_cast<uint32_t>(made_.actions.size()), schedule_.whole_elements()});
}

void Planner::decide(Call call, sdk::Actions& actions) {
  const Moment now = now_.calls.size();
  digest_.add(call);
  now_.calls.push_back(call);
  now_.digests.push_back(digest_.value());
  if (expected_ != kNoTrace && (now >= uses_.calls() || uses_.call(now) != call)) switch_trace();
  if (leaves(call)) {
    schedule_.leave(uses_, now, call, actions);
  } else {
    schedule_.enter(uses_, now, call, actions);
  }
  record(actions);
}

void Planner::switch_trace() {
  records_ = false;
  follow(traces_.with_prefix(now_.with_gradient, now_.calls.size(), digest_.value()), now_.calls.size() - 1);
}

void Planner::follow(TraceId trace, Moment now) {
  expected_ = trace;
  const auto found = traces_.find(trace);
  uses_ = found == nullptr ? Uses() : Uses(*layout_, found, traces_.find(succession_.next(trace)));
  schedule_.set_known(uses_, now);
}

void Planner::leave_plan() {
  const Plan& plan = *plan_;
  schedule_ = states_[plan.begins];
  uses_ = Uses(*layout_, plan.trace, plan.after);
  look_what_pays();
  std::vector<pliant_action> room(8 * layout_->parameters() + 64);
  const auto again = [&](const auto& decided) {
    pliant_action_list list{sizeof(pliant_action_list), 0, room.size(), 0, room.data()};
    sdk::Actions actions(list);
    decided(actions);
  };
  again([&](sdk::Actions& actions) { schedule_.begin_pass(uses_, actions); });
  for (Moment now = 0; now < next_; ++now) {
    const Call one = plan.trace->calls[now];
    again([&](sdk::Actions& actions) {
      if (leaves(one)) return schedule_.leave(uses_, now, one, actions);
      schedule_.enter(uses_, now, one, actions);
    });
    digest_.add(one);
    now_.calls.push_back(one);
    now_.digests.push_back(digest_.value());
  }
  plan_ = nullptr;
  records_ = false;
}

void Planner::end_pass() {
  in_pass_ = false;
  ++passes_;
  if (plan_ != nullptr && next_ == plan_->trace->calls.size()) {
    state_ = plan_->ends;
    plan_ = nullptr;
    traces_.touch(expected_);
    succession_.learn(expected_);
    return;
  }
  if (plan_ != nullptr) leave_plan();
  const bool is_whole = records_ && now_.calls.size() == uses_.calls();
  schedule_.end_pass();
  state_ = state_of(schedule_);
  if (is_whole) {
    made_.ends = state_;
    plans_[key_] = std::move(made_);
  }
  const TraceId followed = traces_.add(std::move(now_));
  now_ = Trace();
  succession_.learn(followed);
}

void Planner::end_step(sdk::Actions& actions) {
  if (in_pass_) {  // it was given up
    if (plan_ != nullptr) leave_plan();
    in_pass_ = false;
  } else {
    schedule_ = states_[state_];
    succession_.learn(Succession::kStepEnd);
  }
  schedule_.end_step(actions);
  state_ = state_of(schedule_);
}

void Planner::drop_trace(sdk::Actions& actions) {
  const Schedule whole = states_[state_];
  traces_.clear();
  succession_.clear();
  forget_plans();
  state_ = state_of(whole);
  actions.drop_trace();
}

sdk::CoordinatorCounts Planner::counts() const {
  sdk::CoordinatorCounts made{};
  const bool knows = in_pass_ ? plan_ != nullptr || uses_.known() : traces_.newest(true) != kNoTrace;
  made.trace = knows ? PLIANT_TRACE_COMPLETE : PLIANT_TRACE_RECORDING;
  if (!in_pass_) {
    made.whole = states_[state_].whole_elements();
  } else {
    made.whole = plan_ != nullptr ? plan_->answers[next_].whole_elements : schedule_.whole_elements();
  }
  made.visits = (calls() + 1) / 2;
  made.ahead = UINT64_MAX;
  return made;
}

void Planner::save(sdk::Writer& out) const {
  traces_.save(out);
  succession_.save(out);
  out.value(static_cast<uint64_t>(costs_.size()));
  out.bytes(costs_.data(), costs_.size() * sizeof(uint64_t));
}

void Planner::load(sdk::Reader& in) {
  TraceSet traces(options_.traces);
  traces.load(in, layout_ == nullptr ? 0 : layout_->model().modules.size());
  Succession succession;
  succession.load(in);
  const auto count = in.value<uint64_t>();
  if (count != 0 && (layout_ == nullptr || count != layout_->parameters())) {
    throw sdk::Failure(PLIANT_DATA_LOSS, "what was kept is of another model, or damaged");
  }
  std::vector<uint64_t> costs(static_cast<size_t>(count));
  in.bytes(costs.data(), costs.size() * sizeof(uint64_t));
  in.expect_end();
  traces_ = std::move(traces);
  succession_ = std::move(succession);
  costs_ = std::move(costs);
  if (layout_ != nullptr) forget_plans();
}

}  // namespace pliant::coordinator::planned
