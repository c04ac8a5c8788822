#include "schedule.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace pliant::coordinator::planned {
namespace {

/// Where nothing is known of later uses, what was used longest ago goes first. Later than any moment that is known.
constexpr Moment kUnknown = Moment{1} << 62U;

/// A visit is an enter and a leave.
constexpr Moment kCallsOfVisit = 2;

}  // namespace

Schedule::Schedule(const Layout& layout, ScheduleOptions options) : layout_(&layout), options_(options), room_(layout) {
  draw_line();
  for (uint32_t parameter = 0; parameter < layout.parameters(); ++parameter) {
    costs_.push_back(layout.parameter(parameter).bytes);
  }
}

void Schedule::draw_line() {
  line_ = room_.budget() - std::min(room_.budget(), layout_->most_gradient_bytes() + options_.bucket);
}

void Schedule::set_known(const Uses& uses, Moment now) {
  looked_until_ = now;
  on_way_.clear();
  const std::vector<Moment> first = uses.known() && now > 0 ? uses.first_from(*layout_, now) : std::vector<Moment>();
  for (uint32_t parameter = 0; parameter < layout_->parameters(); ++parameter) {
    if (!room_.at(parameter).whole) continue;
    if (uses.known()) {
      room_.set_next(parameter, first.empty() ? uses.first(parameter) : first[parameter]);
    } else if (room_.at(parameter).next < kUnknown || room_.at(parameter).next == kNever) {
      room_.set_next(parameter, 2 * kUnknown - ++clock_);
    }
  }
}

void Schedule::begin_pass(const Uses& uses, sdk::Actions& actions) {
  set_known(uses, 0);
  prefetch(uses, 0, actions);
}

void Schedule::enter(const Uses& uses, Moment now, Call call, sdk::Actions& actions) {
  const std::span<const uint32_t> used = layout_->used(module_of(call));
  use(uses, now, used);
  gather_missing(now, call, used, actions);
  prefetch(uses, now + 1, actions);
  for (const uint32_t parameter : used) {
    if (room_.at(parameter).waited_for) continue;
    actions.wait(parameter);
    room_.set_waited(parameter);
  }
}

void Schedule::use(const Uses& uses, Moment now, std::span<const uint32_t> used) {
  for (size_t i = 0; i < used.size(); ++i) {
    room_.enter(used[i], uses.known() ? uses.next(now, i) : 2 * kUnknown - ++clock_);
  }
}

void Schedule::gather_missing(Moment now, Call call, std::span<const uint32_t> used, sdk::Actions& actions) {
  found_.clear();
  for (const uint32_t parameter : used) {
    if (room_.at(parameter).whole) continue;
    const Room::Spot spot = spot_for(parameter, now, call);
    take(parameter, spot, actions);
    found_.push_back({parameter, spot.place});
  }
  emit(found_, false, actions);
}

Room::Spot Schedule::spot_for(uint32_t parameter, Moment now, Call call) const {
  const uint32_t module = module_of(call);
  const uint64_t bytes = layout_->bytes(parameter);
  // Modules around others lie side by side from the begin on, so that they leave the rest in one piece.
  if (room_.budget() > 0 && bytes > 0 && layout_->has_inner(module)) {
    if (auto spot = room_.find_at(room_.end_of_fixed(), bytes)) return *std::move(spot);
  }
  const uint64_t gradients = is_backward(call) ? layout_->gradient_bytes(module) : 0;
  for (const uint64_t top : {line_, room_.budget() - std::min(room_.budget(), gradients), room_.budget()}) {
    if (auto spot = room_.find({bytes, top, now, 0, true, options_.weighing}, costs_)) return *std::move(spot);
  }
  throw sdk::Failure(PLIANT_RESOURCE_EXHAUSTED,
                     "[coordinator] budget = " + std::to_string(room_.budget()) + " is too small: parameter " +
                         std::to_string(parameter) + " of module " + std::to_string(module) + " needs " +
                         std::to_string(bytes) +
                         " bytes in one piece beside what modules use that are entered; raise it",
                     "budget");
}

void Schedule::take(uint32_t parameter, const Room::Spot& spot, sdk::Actions& actions) {
  for (const uint32_t other : spot.goes) release(other, actions);
  const sdk::Parameter& row = layout_->parameter(parameter);
  room_.take(parameter, spot.place, room_.budget() > 0 ? layout_->bytes(parameter) : row.bytes);
  if (row.external || (room_.budget() == 0 && row.persistent)) room_.keep(parameter);
  whole_elements_ += static_cast<int64_t>(row.elements);
}

void Schedule::emit(std::span<const Found> found, bool prefetched, sdk::Actions& actions) {
  if (found.empty()) return;
  const uint32_t group = actions.new_group();
  for (const Found& one : found) actions.gather(one.parameter, group, prefetched, one.place);
}

void Schedule::release(uint32_t parameter, sdk::Actions& actions) {
  const Room::Held& one = room_.at(parameter);
  if (!one.waited_for) actions.wait(parameter);
  actions.release(parameter);
  if (one.next < looked_until_) looked_until_ = one.next;
  room_.drop(parameter);
  whole_elements_ -= static_cast<int64_t>(layout_->parameter(parameter).elements);
}

void Schedule::prefetch(const Uses& uses, Moment from, sdk::Actions& actions) {
  if (!uses.known()) return;
  while (!on_way_.empty() && on_way_.front() < from) on_way_.pop_front();
  for (looked_until_ = std::max(looked_until_, from); looked_until_ < uses.end(); ++looked_until_) {
    if (on_way_.size() >= options_.ahead) return;
    if (leaves(uses.call(looked_until_))) continue;
    if (!prefetch_visit(uses, from, looked_until_, actions)) return;
  }
}

bool Schedule::prefetch_visit(const Uses& uses, Moment now, Moment at, sdk::Actions& actions) {
  found_.clear();
  bool all = true;
  for (const uint32_t parameter : layout_->used(module_of(uses.call(at)))) {
    if (room_.at(parameter).whole) continue;
    // In the place of what is used later only; where it is known what it pays to keep, of nothing else.
    const Moment until = uses.is_marked() ? kNever - 1 : at;
    const auto spot = room_.find({layout_->bytes(parameter), line_, now, until, false, options_.weighing}, costs_);
    if (!spot) {
      all = false;
      break;
    }
    take(parameter, *spot, actions);
    room_.set_next(parameter, at);
    found_.push_back({parameter, spot->place});
  }
  if (!found_.empty() && (on_way_.empty() || on_way_.back() != at)) on_way_.push_back(at);
  emit(found_, true, actions);
  return all;
}

bool Schedule::is_over_line(uint32_t parameter) const {
  const Room::Held& one = room_.at(parameter);
  return one.bytes > 0 && one.place != PLIANT_ANY_PLACE && one.place + one.bytes > line_;
}

void Schedule::leave(const Uses& uses, Moment now, Call call, sdk::Actions& actions) {
  const bool keeps = room_.budget() > 0;
  for (const uint32_t parameter : layout_->used(module_of(call))) {
    if (!room_.leave(parameter) || room_.at(parameter).stays) continue;
    const Moment next = room_.at(parameter).next;
    const bool is_near = next < kUnknown && next - now <= kCallsOfVisit * options_.ahead;
    if (keeps ? is_over_line(parameter) : !is_near) release(parameter, actions);
  }
  prefetch(uses, now + 1, actions);
}

void Schedule::end_pass() {
  on_way_.clear();
  looked_until_ = clock_ = 0;
  for (uint32_t parameter = 0; parameter < layout_->parameters(); ++parameter) {
    if (room_.at(parameter).whole) room_.set_next(parameter, kNever);
  }
}

void Schedule::end_step(sdk::Actions& actions) {
  for (uint32_t parameter = 0; parameter < layout_->parameters(); ++parameter) {
    if (room_.at(parameter).whole && !room_.at(parameter).waited_for) actions.wait(parameter);
  }
  for (uint32_t parameter = 0; parameter < layout_->parameters(); ++parameter) {
    if (room_.at(parameter).whole) actions.release(parameter);
  }
  const std::vector<uint64_t> costs = std::move(costs_);
  *this = Schedule(*layout_, options_);
  costs_ = costs;
}

}  // namespace pliant::coordinator::planned
