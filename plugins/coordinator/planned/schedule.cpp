#include "schedule.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace pliant::coordinator::planned {
namespace {

/// Where nothing is known of later uses, what was used longest ago goes first. Later than any moment that is known.
constexpr Moment kUnknown = Moment{1} << 62U;

/// That are gathered ahead together.
constexpr size_t kMostVisitsOfGroup = 16;

}  // namespace

Schedule::Schedule(const Layout& layout, Costs costs, ScheduleOptions options, uint64_t reserve,
                   std::span<const Kept> kept)
    : layout_(&layout),
      options_(options),
      room_(layout, options.placing != Placing::kLater),
      gradients_(layout, options.bucket, options.lingers),
      costs_(std::move(costs)),
      reserve_(reserve),
      line_(room_.budget() - std::min(room_.budget(), reserve)),
      is_lost_(layout.parameters()),
      delayed_(layout.parameters()) {
  for (const Kept& one : kept) {
    put(one.parameter, one.place);
    room_.set_next(one.parameter, kNever);
    if (one.waited_for) room_.set_waited(one.parameter);
  }
}

void Schedule::set_places(const std::vector<uint64_t>& places) {
  room_ = room_.with_places(*layout_, places);
  options_.placing = Placing::kBestFit;
}

std::vector<Kept> Schedule::kept() const {
  std::vector<Kept> made;
  for (uint32_t parameter = 0; parameter < layout_->parameters(); ++parameter) {
    const Room::Held& one = room_.at(parameter);
    if (one.whole) made.push_back({parameter, one.place, one.waited_for});
  }
  return made;
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
  for (const uint32_t parameter : room_.above(line_)) release(parameter, actions);
  prefetch(uses, 0, kNever, actions);
}

void Schedule::enter(const Uses& uses, Moment now, Call call, sdk::Actions& actions) {
  const std::span<const uint32_t> used = layout_->used(module_of(call));
  gradients_.enter(call);
  make_way_for_gradients(gradients_.depth(), call, actions);
  release_apart(call, used, actions);
  use(uses, now, used);
  gather_missing(now, call, used, actions);
  prefetch(uses, now + 1, kNever, actions);
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

void Schedule::release_apart(Call call, std::span<const uint32_t> used, sdk::Actions& actions) {
  const uint32_t module = module_of(call);
  if (!options_.moves || !room_.has_places() || room_.budget() == 0 || !layout_->has_inner(module)) return;
  apart_.clear();
  uint64_t end = room_.end_of_fixed();
  uint64_t highest = end;
  uint64_t inside = layout_->most_below(module);
  for (const uint32_t parameter : used) {
    const Room::Held& one = room_.at(parameter);
    if (!one.whole) inside += layout_->bytes(parameter);
    if (!one.whole || one.users > 0 || one.stays || one.bytes == 0) continue;
    apart_.push_back(parameter);
    highest = std::max(highest, one.place + one.bytes);
  }
  const uint64_t top = room_.budget() - std::min(room_.budget(), std::max(reserve_, layout_->all_gradient_bytes()));
  if (apart_.empty() || highest + inside <= top) return;
  std::sort(apart_.begin(), apart_.end(),
            [this](uint32_t a, uint32_t b) { return room_.at(a).place < room_.at(b).place; });
  for (const uint32_t parameter : apart_) {
    const Room::Held& one = room_.at(parameter);
    if (one.place > end) {
      release(parameter, actions);
    } else {
      end = std::max(end, one.place + one.bytes);
    }
  }
}

void Schedule::look_for_missing(std::span<const uint32_t> used) {
  missing_.clear();
  for (const bool stays : {true, false}) {
    if (stays && layout_->external().empty()) continue;
    for (const uint32_t parameter : used) {
      if (!room_.at(parameter).whole && layout_->parameter(parameter).external == stays) missing_.push_back(parameter);
    }
  }
}

template <class Find>
std::optional<uint32_t> Schedule::take_missing(const Find& find, sdk::Actions& actions) {
  found_.clear();
  for (const uint32_t parameter : missing_) {
    const std::optional<Room::Spot> spot = find(parameter);
    if (!spot) {
      for (const Found& one : found_) remove(one.parameter);  // nothing was said of them yet
      found_.clear();
      return parameter;
    }
    take(parameter, *spot, actions);
    found_.push_back({parameter, spot->place});
  }
  return std::nullopt;
}

void Schedule::gather_missing(Moment now, Call call, std::span<const uint32_t> used, sdk::Actions& actions) {
  look_for_missing(used);
  const auto find = [&](uint32_t parameter) {
    auto spot = spot_for(parameter, now, module_of(call));
    if (spot) most_lost_ = std::max(most_lost_, delayed_[parameter]);  // it was to be here by now
    return spot;
  };
  if (take_missing(find, actions)) gather_anew(now, call, used, actions);
  emit(found_, false, actions);
}

void Schedule::gather_anew(Moment now, Call call, std::span<const uint32_t> used, sdk::Actions& actions) {
  for (const uint32_t parameter : used) {
    const Room::Held& one = room_.at(parameter);
    if (one.whole && one.users == 1 && !one.stays && one.bytes > 0) release(parameter, actions);
  }
  look_for_missing(used);
  const auto behind = [&](uint32_t parameter) {
    auto spot = spot_behind(parameter, now);
    return spot ? spot : spot_for(parameter, now, module_of(call));
  };
  const std::optional<uint32_t> has_none = take_missing(behind, actions);
  if (!has_none) return;
  std::stable_sort(missing_.begin(), missing_.end(),
                   [this](uint32_t a, uint32_t b) { return layout_->bytes(a) > layout_->bytes(b); });
  const auto between = [&](uint32_t parameter) { return spot_between(parameter, now); };
  if (take_missing(between, actions)) refuse(*has_none, module_of(call));
}

Room::Want Schedule::want_of(uint32_t parameter, Moment now, Moment until, bool thorough) const {
  const uint64_t bytes = layout_->bytes(parameter);
  Room::Want want{bytes, line_, now, until, thorough, options_.weighing};
  const bool is_large = 2 * bytes > layout_->largest();
  if (options_.placing == Placing::kLow) want.side = Side::kLow;
  if (options_.placing == Placing::kBySize) want.side = is_large ? Side::kLow : Side::kHigh;
  return want;
}

std::optional<Room::Spot> Schedule::spot_for(uint32_t parameter, Moment now, uint32_t module) const {
  Room::Want want = want_of(parameter, now, 0, true);
  if (room_.budget() == 0 || want.bytes == 0) return Room::Spot{};
  for (const uint64_t top : tops()) {
    want.top = top;
    if (!is_long(parameter, module)) continue;
    if (auto spot = spot_beside(want)) return spot;
  }
  for (const uint64_t top : tops()) {
    want.top = top;
    if (auto spot = room_.find(want, *costs_)) return spot;
  }
  return std::nullopt;
}

std::optional<Room::Spot> Schedule::spot_behind(uint32_t parameter, Moment now) const {
  Room::Want want = want_of(parameter, now, 0, true);
  if (want.bytes == 0) return Room::Spot{};
  for (const uint64_t top : tops()) {
    want.top = top;
    if (auto spot = room_.has_places() ? room_.behind_fixed(want) : room_.find(want, *costs_)) return spot;
  }
  return std::nullopt;
}

std::optional<Room::Spot> Schedule::spot_between(uint32_t parameter, Moment now) const {
  Room::Want want = want_of(parameter, now, 0, true);
  if (want.bytes == 0) return Room::Spot{};
  for (const uint64_t top : tops()) {
    want.top = top;
    if (auto spot = room_.has_places() ? room_.between_fixed(want) : room_.find(want, *costs_)) return spot;
  }
  return std::nullopt;
}

void Schedule::refuse(uint32_t parameter, uint32_t module) const {
  const sdk::Model& model = layout_->model();
  throw sdk::Failure(PLIANT_RESOURCE_EXHAUSTED,
                     "[coordinator] budget = " + std::to_string(model.budget) +
                         " is too small: " + model.name_of_parameter(parameter) + " of " +
                         model.name_of_module(module) + " needs " + std::to_string(layout_->bytes(parameter)) +
                         " bytes in one piece besides the parameters of entered modules and their gradients; raise it",
                     "budget");
}

std::optional<Room::Spot> Schedule::spot_beside(const Room::Want& want) const {
  if (!room_.has_places()) return room_.find(want, *costs_);
  if (!options_.packs) {
    if (auto spot = room_.lowest_gap(want)) return spot;
  }
  return room_.behind_fixed(want);
}

void Schedule::make_way_for_gradients(uint64_t depth, std::optional<Call> call, sdk::Actions& actions) {
  const uint64_t line = room_.budget() - std::min(room_.budget(), std::max(reserve_, depth));
  if (line < line_) {
    line_ = line;
    for (const uint32_t parameter : room_.above(line_)) release(parameter, actions);
  }
  if (depth > 0 && room_.end_of_fixed() + depth > layout_->model().budget) refuse_gradients(depth, call);
}

void Schedule::refuse_gradients(uint64_t depth, std::optional<Call> call) const {
  const sdk::Model& model = layout_->model();
  std::string when = "as the pass ends, gradients need " + std::to_string(depth) + " bytes";
  if (call) {
    const uint32_t module = module_of(*call);
    when = "as " + model.name_of_module(module) + (leaves(*call) ? " is left" : " is entered") +
           (is_backward(*call) ? " in backward" : "") + ", gradients need " + std::to_string(depth) + " bytes";
    const std::span<const uint32_t> used = layout_->used(module);
    const auto largest = std::max_element(used.begin(), used.end(), [&](uint32_t a, uint32_t b) {
      return model.parameters[a].gradient_bytes < model.parameters[b].gradient_bytes;
    });
    if (largest != used.end()) {
      when += " (the largest of this module: " + model.name_of_parameter(*largest) + ", " +
              std::to_string(model.parameters[*largest].gradient_bytes) + ")";
    }
  }
  if (room_.end_of_fixed() > 0) {
    when += ", and entered modules already take " + std::to_string(room_.end_of_fixed());
  }
  throw sdk::Failure(PLIANT_RESOURCE_EXHAUSTED,
                     "[coordinator] budget = " + std::to_string(model.budget) + " is too small: " + when + "; raise it",
                     "budget");
}

void Schedule::put(uint32_t parameter, uint64_t place) {
  const sdk::Parameter& row = layout_->parameter(parameter);
  room_.take(parameter, place, room_.budget() > 0 ? layout_->bytes(parameter) : row.bytes);
  if (row.external || (room_.budget() == 0 && row.persistent)) room_.keep(parameter);
  whole_elements_ += static_cast<int64_t>(row.elements);
  delayed_[parameter] = 0;
  if (!is_lost_[parameter]) return;
  is_lost_[parameter] = false;
  lost_ -= std::min(lost_, layout_->bytes(parameter));
}

void Schedule::take(uint32_t parameter, const Room::Spot& spot, sdk::Actions& actions) {
  gone_.clear();
  for (const uint32_t other : spot.goes) {
    if (room_.at(other).next != kNever) gone_.push_back(other);
    release(other, actions);
  }
  put(parameter, spot.place);
  if (!gone_.empty()) count_lost();
}

uint64_t Schedule::idle_beside_lost() {
  const uint64_t idle = room_.idle_below(line_);
  lost_ = std::min(lost_, idle);  // what lies there since would lie there in one piece, too
  return idle - lost_;
}

void Schedule::count_lost() {
  uint64_t idle = idle_beside_lost();
  std::sort(gone_.begin(), gone_.end(), [this](uint32_t a, uint32_t b) {
    return std::pair(layout_->bytes(b), a) < std::pair(layout_->bytes(a), b);
  });
  for (const uint32_t parameter : gone_) {
    const uint64_t bytes = layout_->bytes(parameter);
    if (bytes > idle) continue;
    idle -= bytes;
    lost_ += bytes;
    is_lost_[parameter] = true;
  }
  most_lost_ = std::max(most_lost_, lost_);
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
  if (one.next != kNever) wasted_ += (*costs_)[parameter];
  remove(parameter);
}

void Schedule::remove(uint32_t parameter) {
  room_.drop(parameter);
  whole_elements_ -= static_cast<int64_t>(layout_->parameter(parameter).elements);
}

void Schedule::prefetch(const Uses& uses, Moment from, Moment until, sdk::Actions& actions) {
  if (!uses.known()) return;
  while (!on_way_.empty() && *on_way_.begin() < from) on_way_.erase(on_way_.begin());
  const Moment end = std::min({uses.end(), until, from + horizon()});
  found_.clear();
  uint64_t bytes = 0;
  size_t visits = 0;
  Moment first = 0;  // of the group
  const uint64_t lost = lost_;
  const auto is_full = [&] { return bytes >= options_.gather_bucket || visits >= kMostVisitsOfGroup; };
  const auto send = [&] {
    if (found_.empty()) return;
    emit(found_, true, actions);
    found_.clear();
    on_way_.insert(first);
    bytes = visits = 0;
  };
  bool has_room = true;
  for (looked_until_ = std::max(looked_until_, from); looked_until_ < end; ++looked_until_) {
    const auto before_it = static_cast<uint64_t>(std::distance(on_way_.begin(), on_way_.lower_bound(looked_until_)));
    if (found_.empty() && before_it >= options_.ahead) break;
    if (leaves(uses.call(looked_until_))) continue;
    if (goes_before(from, looked_until_, uses.call(looked_until_))) break;
    const size_t had = found_.size();
    has_room = prefetch_visit(uses, from, looked_until_, actions);
    if (had == 0 && !found_.empty()) {
      first = looked_until_;
      if (before_it == 0) visits = kMostVisitsOfGroup;  // it is next, and waited for: it goes alone
    }
    for (size_t i = had; i < found_.size(); ++i) bytes += layout_->bytes(found_[i].parameter);
    if (!found_.empty()) ++visits;
    if (!has_room) break;
    if (is_full()) send();
  }
  // A group for which there is no more room yet can wait as long as an earlier one is on its way.
  if (!has_room && !found_.empty() && !is_full() && uses.is_marked()) {
    for (const Found& one : found_) {
      remove(one.parameter);
      is_lost_[one.parameter] = one.was_lost;
      delayed_[one.parameter] = one.delayed;
    }
    lost_ = lost;
    found_.clear();
    looked_until_ = first;
  }
  send();
}

Moment Schedule::horizon() const {
  const uint64_t groups = std::min<uint64_t>(options_.ahead, kUnknown / (kCallsOfVisit * kMostVisitsOfGroup) - 1) + 1;
  return kCallsOfVisit * kMostVisitsOfGroup * groups;
}

bool Schedule::goes_before(Moment from, Moment at, Call call) const {
  if (room_.budget() > 0) return false;
  const std::span<const uint32_t> used = layout_->used(module_of(call));
  return std::any_of(used.begin(), used.end(), [&](uint32_t parameter) {
    const Room::Held& one = room_.at(parameter);
    if (!one.whole || one.stays) return false;
    return one.next < at ? !is_near(one.next, at) : one.users > 0 && !is_near(from, at);
  });
}

bool Schedule::prefetch_visit(const Uses& uses, Moment now, Moment at, sdk::Actions& actions) {
  const uint32_t module = module_of(uses.call(at));
  for (const uint32_t parameter : layout_->used(module)) {
    const Room::Held& held = room_.at(parameter);
    if (held.whole && held.next == kNever) room_.set_next(parameter, at);  // it was to go, and is still there
    if (held.whole) continue;
    // In the place of what is used later only; where it is known what it pays to keep, of nothing else.
    const Moment until = uses.is_marked() ? kNever - 1 : at;
    const Room::Want want = want_of(parameter, now, until, false);
    std::optional<Room::Spot> spot;
    if (room_.budget() == 0 || want.bytes == 0) {
      spot.emplace();
    } else {
      spot = is_long(parameter, module) ? spot_beside(want) : room_.find(want, *costs_);
    }
    if (!spot) {
      if (want.bytes <= idle_beside_lost()) delayed_[parameter] = lost_ + want.bytes;
      return false;
    }
    const Found found{parameter, spot->place, is_lost_[parameter], delayed_[parameter]};
    take(parameter, *spot, actions);
    room_.set_next(parameter, at);
    found_.push_back(found);
  }
  return true;
}

bool Schedule::is_over_line(uint32_t parameter) const {
  const Room::Held& one = room_.at(parameter);
  return one.bytes > 0 && one.place != PLIANT_ANY_PLACE && one.place + one.bytes > line_;
}

void Schedule::leave(const Uses& uses, Moment now, Call call, sdk::Actions& actions) {
  const bool keeps = room_.budget() > 0;
  const std::span<const uint32_t> used = layout_->used(module_of(call));
  for (const uint32_t parameter : used) room_.leave(parameter);
  gradients_.leave(call);
  make_way_for_gradients(gradients_.depth(), call, actions);  // for what arrives
  for (const uint32_t parameter : used) {
    const Room::Held& one = room_.at(parameter);
    if (!one.whole || one.users > 0 || one.stays) continue;
    if (keeps ? is_over_line(parameter) : one.next >= kUnknown || !is_near(now, one.next)) release(parameter, actions);
  }
  // What is next cannot wait. All else comes with the next enter, behind gradients that leave now.
  if (!uses.known() || now + 1 >= uses.end() || !lacks(uses.call(now + 1))) return;
  looked_until_ = std::min(looked_until_, now + 1);
  prefetch(uses, now + 1, now + 2, actions);
}

bool Schedule::lacks(Call call) const {
  const std::span<const uint32_t> used = layout_->used(module_of(call));
  return !leaves(call) &&
         std::any_of(used.begin(), used.end(), [this](uint32_t parameter) { return !room_.at(parameter).whole; });
}

void Schedule::end_pass(bool with_gradient, sdk::Actions& actions) {
  if (with_gradient) make_way_for_gradients(gradients_.end_pass(), std::nullopt, actions);
}

}  // namespace pliant::coordinator::planned
