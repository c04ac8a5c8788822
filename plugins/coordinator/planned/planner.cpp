#include "planner.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "answered.hpp"

namespace pliant::coordinator::planned {
namespace {

constexpr size_t kMostKept = size_t{1} << 21U;
constexpr size_t kMostStates = 4096;
/// So many passes one after the other that began in another way than was expected, and nothing is expected.
constexpr uint32_t kMostMisses = 2;
/// What begins what is kept: of another version it is refused.
constexpr uint64_t kFormat = 0x32'64656e6e616c70U;
/// But a pass that began with so many calls of one that is known.
constexpr size_t kTrustedCalls = 8;

uint64_t digest_of(const std::vector<Kept>& kept) {
  uint64_t digest = kept.size();
  for (const Kept& one : kept) {
    for (const uint64_t word : {uint64_t{one.parameter}, one.place, uint64_t{one.waited_for}}) {
      digest = (digest ^ word) * 0xbf58476d1ce4e5b9U;
      digest ^= digest >> 31U;
    }
  }
  return digest;
}

void release(const std::vector<Kept>& kept, sdk::Actions& actions) {
  for (const Kept& one : kept) {
    if (!one.waited_for) actions.wait(one.parameter);
  }
  for (const Kept& one : kept) actions.release(one.parameter);
}

}  // namespace

Planner::Planner(sdk::Model model, PlannerOptions options)
    : options_(options), layout_(std::make_unique<Layout>(std::move(model))), is_stale_(true), traces_(options.traces) {
  sdk::require(layout_->model().modules.size() < kMostModules,
               [] { return "a model has at most " + std::to_string(kMostModules - 1) + " modules"; });
  state_ = state_of({});
}

void Planner::forget_plans() {
  State whole = std::move(states_[state_]);
  plan_ = nullptr;
  plans_.clear();
  does_not_fit_.clear();
  plan_bytes_ = 0;
  states_.clear();
  states_by_digest_.clear();
  kept_ = 0;
  state_ = state_of(std::move(whole.kept));
}

void Planner::refresh() {
  if (!std::exchange(is_stale_, false)) return;
  layout_->build();
  const uint64_t budget = layout_->model().budget;
  bucket_ = budget == 0 ? options_.bucket : std::min(options_.bucket, layout_->spare_bytes() / kPartOfSpare);
  reserve_ = layout_->most_gradient_bytes();
  reserves_.clear();
  costs_ = std::make_shared<const std::vector<uint64_t>>(costs_of_all());
  forget_plans();
}

// Parameters of one size cost the same, the median of what they took: else chance would say which of the layers of a
// model stay whole, and in each run others.
std::vector<uint64_t> Planner::costs_of_all() const {
  Wide time = 0;
  Wide bytes = 0;
  std::map<uint64_t, std::vector<uint64_t>> of_size;
  for (uint32_t i = 0; i < nanoseconds_.size(); ++i) {
    if (nanoseconds_[i] == 0) continue;
    time += nanoseconds_[i];
    bytes += layout_->parameter(i).bytes;
    of_size[layout_->parameter(i).bytes].push_back(nanoseconds_[i]);
  }
  for (auto& [size, measured] : of_size) {
    const auto middle = measured.begin() + static_cast<std::ptrdiff_t>(measured.size() / 2);
    std::nth_element(measured.begin(), middle, measured.end());
    measured.front() = *middle;
  }
  std::vector<uint64_t> costs;
  for (uint32_t i = 0; i < layout_->parameters(); ++i) {
    const uint64_t own = layout_->parameter(i).bytes;
    const auto measured = of_size.find(own);
    if (measured != of_size.end()) {
      costs.push_back(measured->second.front());
    } else {
      costs.push_back(time > 0 && bytes > 0 ? static_cast<uint64_t>(own * time / bytes) : own);
    }
  }
  return costs;
}

void Planner::set_parameters(uint32_t module, std::span<const uint32_t> own, std::span<const uint32_t> external) {
  layout_->set_parameters(module, own, external);
  is_stale_ = true;
}

void Planner::set_costs(std::span<const uint64_t> nanoseconds) {
  nanoseconds_.assign(nanoseconds.begin(), nanoseconds.end());
  is_stale_ = true;
}

Planner::StateId Planner::state_of(std::vector<Kept> kept) {
  const uint64_t digest = digest_of(kept);
  const auto [first, last] = states_by_digest_.equal_range(digest);
  for (auto one = first; one != last; ++one) {
    if (states_[one->second].kept == kept) return one->second;
  }
  State made{std::move(kept), 0};
  for (const Kept& one : made.kept) made.elements += static_cast<int64_t>(layout_->parameter(one.parameter).elements);
  kept_ += made.kept.size();
  states_.push_back(std::move(made));
  const auto id = static_cast<StateId>(states_.size() - 1);
  states_by_digest_.emplace(digest, id);
  return id;
}

void Planner::begin_pass(bool with_gradient, sdk::Actions& actions) {
  refresh();
  if (kept_ > kMostKept || states_.size() >= kMostStates) forget_plans();
  in_pass_ = true;
  plan_ = nullptr;
  next_ = 0;
  waiting_ = {};
  ++passes_;
  now_ = Trace{with_gradient, {}, {}};
  digest_ = RollingDigest(with_gradient);
  uses_ = Uses();
  expected_ = succession_.next();
  auto trace = traces_.find(expected_);
  if (trace == nullptr || trace->with_gradient != with_gradient) {
    expected_ = traces_.newest(with_gradient);
    trace = traces_.find(expected_);
  }
  predicted_ = trace == nullptr ? kNoTrace : expected_;
  const bool trusts = misses_ < kMostMisses;
  if (trace != nullptr && trusts) {
    Plan* const plan = plan_for(expected_, succession_.next(expected_));
    if (plan != nullptr) {
      plan->used = passes_;
      plan_ = plan;
      bucket_now_ = plan->options.bucket;
      lingers_now_ = plan->options.lingers;
      actions.append({plan->actions.data(), plan->answers.front().end});
      return;
    }
  }
  expected_ = kNoTrace;
  if (trace != nullptr && trusts) {  // it does not fit as far as is known: as if it were new, from what must stay
    std::vector<Kept> stays = states_[state_].kept;
    const auto goes = std::stable_partition(
        stays.begin(), stays.end(), [this](const Kept& one) { return layout_->parameter(one.parameter).external; });
    release({goes, stays.end()}, actions);
    stays.erase(goes, stays.end());
    state_ = state_of(std::move(stays));
  }
  // What is not known may leave more beside what waits than there is room for: then nothing waits.
  bucket_now_ = layout_->model().budget == 0 ? bucket_ : 0;
  lingers_now_ = false;
  ScheduleOptions options{options_.ahead, bucket_now_};
  const uint64_t reserve = with_gradient ? reserve_ : 0;
  options.gather_bucket = options_.gather_bucket;
  options.packs = packs_when_unknown(with_gradient);
  schedule_ = schedule_from(state_, options, reserve);
  schedule_.begin_pass(uses_, actions);
}

uint64_t Planner::waiting_bytes(std::span<const uint32_t> complete) {
  const size_t known = waiting_.count;
  const size_t fresh = complete.size() - std::min(complete.size(), known);
  // So many stand before the lowest that is known: they are all that is new.
  const bool goes_on = known > 0 && complete.size() >= known && complete[fresh] == waiting_.lowest;
  uint64_t bytes = goes_on ? waiting_.bytes : 0;
  for (const uint32_t parameter : goes_on ? complete.first(fresh) : complete)
    bytes += layout_->waiting_bytes(parameter);
  waiting_ = {complete.size(), complete.front(), bytes};
  return bytes;
}

void Planner::reduce(std::span<const uint32_t> complete, sdk::Actions& actions) {
  if (waiting_bytes(complete) < bucket_now_) return;
  waiting_ = {};
  const uint32_t group = actions.new_group();
  for (const uint32_t parameter : complete) actions.reduce(parameter, group, lingers_now_);
}

void Planner::decide(Call call, sdk::Actions& actions) {
  if (!in_pass_) throw sdk::Failure(PLIANT_FAILED_PRECONDITION, "a module is visited outside a pass");
  const Moment now = now_.calls.size();
  digest_.add(call);
  now_.calls.push_back(call);
  now_.digests.push_back(digest_.value());
  const bool has_left = uses_.known() && (now >= uses_.calls() || uses_.call(now) != call);
  const bool may_be_known = !uses_.known() && misses_ >= kMostMisses && now + 1 == kTrustedCalls;
  if (has_left || may_be_known) {
    expected_ = traces_.with_prefix(now_.with_gradient, now_.calls.size(), digest_.value());
    const auto found = traces_.find(expected_);
    uses_ = found == nullptr ? Uses() : Uses(*layout_, found, traces_.find(succession_.next(expected_)));
    schedule_.set_known(uses_, now);
    schedule_.expect_anything(packs_when_unknown(now_.with_gradient));
  }
  schedule_.call(uses_, now, call, actions);
}

void Planner::leave_plan() {
  const Plan& plan = *plan_;
  std::vector<pliant_action> room = room_for(*layout_);
  uses_ = plan.uses;
  schedule_ = schedule_from(plan.begins, plan.options, plan.reserve);
  answered(
      room, [&](sdk::Actions& actions) { schedule_.begin_pass(uses_, actions); }, [](auto) {});
  for (Moment now = 0; now < next_; ++now) {
    const Call one = plan.trace->calls[now];
    answered(
        room, [&](sdk::Actions& actions) { schedule_.call(uses_, now, one, actions); }, [](auto) {});
    digest_.add(one);
    now_.calls.push_back(one);
    now_.digests.push_back(digest_.value());
  }
  if (!schedule_.room().has_places()) schedule_.set_places(places_in(plan, next_));
  plan_ = nullptr;
  lingers_now_ = false;  // what comes is not known, and may need the room
  schedule_.linger_no_more();
}

void Planner::end_pass(sdk::Actions& actions) {
  if (!std::exchange(in_pass_, false)) throw sdk::Failure(PLIANT_FAILED_PRECONDITION, "a pass ends that was not begun");
  if (plan_ != nullptr && next_ == plan_->trace->calls.size()) {
    const uint32_t begin = plan_->answers[next_].end;
    actions.append({plan_->actions.data() + begin, plan_->answers[next_ + 1].end - begin});
    state_ = plan_->ends;
    lost_to_gaps_ = plan_->lost_to_gaps;
    plan_ = nullptr;
    traces_.touch(expected_);
    succession_.learn(expected_, traces_);
    misses_ = 0;
    return;
  }
  if (plan_ != nullptr) leave_plan();
  schedule_.end_pass(now_.with_gradient, actions);
  state_ = state_of(schedule_.kept());
  lost_to_gaps_ = schedule_.lost_to_gaps();
  looked_at_ += schedule_.room().looked_at();
  if (const auto predicted = traces_.find(predicted_)) misses_ = began_as(*predicted) ? 0 : misses_ + 1;
  misses_ = std::min(misses_, kMostMisses);
  succession_.learn(traces_.add(std::move(now_)), traces_);
  now_ = Trace();
}

bool Planner::began_as(const Trace& trace) const {
  const size_t calls = std::min({kTrustedCalls, trace.calls.size(), now_.calls.size()});
  return std::equal(now_.calls.begin(), now_.calls.begin() + static_cast<std::ptrdiff_t>(calls), trace.calls.begin());
}

void Planner::end_step(sdk::Actions& actions) {
  std::vector<Kept> kept;
  if (in_pass_) {  // it was given up
    if (plan_ != nullptr) leave_plan();
    kept = schedule_.kept();
    in_pass_ = false;
  } else {
    kept = states_[state_].kept;
    succession_.learn(Succession::kStepEnd, traces_);
  }
  release(kept, actions);
  state_ = state_of({});
}

void Planner::drop_trace(sdk::Actions& actions) {
  traces_.clear();
  succession_.clear();
  misses_ = 0;
  is_stale_ = true;
  actions.drop_trace();
}

sdk::CoordinatorCounts Planner::counts() const {
  sdk::CoordinatorCounts made{};
  const bool knows = in_pass_ ? plan_ != nullptr || uses_.known() : traces_.newest(true) != kNoTrace;
  made.trace = knows ? PLIANT_TRACE_COMPLETE : PLIANT_TRACE_RECORDING;
  if (!in_pass_) {
    made.whole = states_.empty() ? 0 : states_[state_].elements;
  } else {
    made.whole = plan_ != nullptr ? plan_->answers[next_].whole_elements : schedule_.whole_elements();
  }
  made.visits = (calls() + 1) / 2;
  made.ahead = UINT64_MAX;
  made.lost_to_gaps = layout_->model().budget == 0 ? UINT64_MAX : lost_to_gaps_;
  return made;
}

void Planner::save(sdk::Writer& out) const {
  out.value(kFormat);
  traces_.save(out);
  succession_.save(out);
  out.value(misses_);
  out.value(static_cast<uint64_t>(nanoseconds_.size()));
  out.bytes(nanoseconds_.data(), nanoseconds_.size() * sizeof(uint64_t));
}

void Planner::load(sdk::Reader& in) {
  if (in.value<uint64_t>() != kFormat) {
    throw sdk::Failure(PLIANT_DATA_LOSS, "the saved state has another version or is damaged");
  }
  TraceSet traces(options_.traces);
  traces.load(in, layout_ == nullptr ? 0 : layout_->model().modules.size());
  Succession succession;
  succession.load(in);
  const uint32_t misses = std::min(in.value<uint32_t>(), kMostMisses);
  const auto count = in.value<uint64_t>();
  if (count != 0 && (layout_ == nullptr || count != layout_->parameters())) {
    throw sdk::Failure(PLIANT_DATA_LOSS, "the saved state belongs to another model or is damaged");
  }
  std::vector<uint64_t> costs(static_cast<size_t>(count));
  in.bytes(costs.data(), costs.size() * sizeof(uint64_t));
  in.expect_end();
  traces_ = std::move(traces);
  succession_ = std::move(succession);
  misses_ = misses;
  nanoseconds_ = std::move(costs);
  is_stale_ = true;
}

}  // namespace pliant::coordinator::planned
