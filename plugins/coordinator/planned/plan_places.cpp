// Planner: places for a pass that was decided by bytes alone.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "places.hpp"
#include "planner.hpp"

namespace pliant::coordinator::planned {

// What modules around others use comes first: it lies at the begin of the arena, as where it is packed, so that a pass
// which leaves its order has the rest in one piece. What stays whole lies where it lay, if it can: passes of one kind
// then begin alike.
bool Planner::give_places(Plan& plan) {
  constexpr size_t kNone = SIZE_MAX;
  std::vector<Piece> pieces;
  std::vector<size_t> piece_of(layout_->parameters(), kNone);  // by parameter, where it is whole
  std::vector<size_t> made(plan.actions.size(), kNone);        // by action
  const size_t end = plan.actions.size() + 1;
  const auto begins = [&](uint32_t parameter, size_t moment) {
    if (layout_->bytes(parameter) == 0) return;
    piece_of[parameter] = pieces.size();
    pieces.push_back({.bytes = layout_->bytes(parameter), .begin = moment, .end = end});
    pieces.back().is_first = layout_->is_around(parameter) || layout_->parameter(parameter).external;
  };
  std::vector<uint64_t> lay_at(layout_->parameters(), PLIANT_ANY_PLACE);
  for (const Kept& one : states_[plan.begins].kept) {
    begins(one.parameter, 0);
    lay_at[one.parameter] = one.place;
    if (piece_of[one.parameter] != kNone) pieces[piece_of[one.parameter]].place = one.place;
  }
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    const pliant_action& one = plan.actions[i];
    if (one.kind == PLIANT_ACTION_GATHER) {
      begins(one.parameter, i + 1);
      made[i] = piece_of[one.parameter];
    }
    if (one.kind == PLIANT_ACTION_RELEASE && piece_of[one.parameter] != kNone) {
      pieces[std::exchange(piece_of[one.parameter], kNone)].end = i + 1;
    }
  }
  const uint64_t budget = layout_->model().budget / kAlignment * kAlignment;
  const uint64_t top = (budget - std::min(budget, plan.reserve)) / kAlignment * kAlignment;
  const size_t begun = plan.answers.front().end;
  const bool meets_gradients = std::any_of(pieces.begin(), pieces.end(), [&](const Piece& one) {
    return one.place != PLIANT_ANY_PLACE && one.place + one.bytes > top && one.end > begun;
  });
  if (meets_gradients) return false;
  for (const Kept& one : plan.kept_at_end) {
    const size_t piece = piece_of[one.parameter];
    if (piece != kNone && pieces[piece].place == PLIANT_ANY_PLACE) pieces[piece].wish = lay_at[one.parameter];
  }
  if (!find_places(pieces, top, looked_at_)) return false;
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    if (made[i] != kNone) plan.actions[i].place = pieces[made[i]].place;
  }
  for (Kept& one : plan.kept_at_end) {
    if (piece_of[one.parameter] != kNone) one.place = pieces[piece_of[one.parameter]].place;
  }
  return leaves_one_piece(plan);
}

// As Schedule::release_apart() has it.
bool Planner::leaves_one_piece(const Plan& plan) const {
  if (!layout_->has_containers()) return true;
  const uint64_t budget = layout_->model().budget / kAlignment * kAlignment;
  const uint64_t top = budget - std::min(budget, std::max(plan.reserve, layout_->all_gradient_bytes()));
  std::vector<uint64_t> places = places_in(plan, 0);
  std::vector<uint32_t> open;  // around others, entered
  for (size_t at = 0; at < plan.trace->calls.size(); ++at) {
    for (size_t i = plan.answers[at].end; i < plan.answers[at + 1].end; ++i) {
      const pliant_action& one = plan.actions[i];
      if (one.kind == PLIANT_ACTION_GATHER) places[one.parameter] = one.place;
    }
    const uint32_t module = module_of(plan.trace->calls[at]);
    if (layout_->most_below(module) == 0) continue;
    if (leaves(plan.trace->calls[at])) {
      const auto one = std::find(open.rbegin(), open.rend(), module);
      if (one != open.rend()) open.erase(std::next(one).base());
      continue;
    }
    open.push_back(module);
    uint64_t highest = 0;
    for (const uint32_t around : open) {
      for (const uint32_t parameter : layout_->used(around)) {
        const uint64_t bytes = layout_->bytes(parameter);
        if (bytes > 0) highest = std::max(highest, places[parameter] + bytes);
      }
    }
    if (highest + layout_->most_below(module) > top) return false;
  }
  return true;
}

std::vector<uint64_t> Planner::places_in(const Plan& plan, size_t calls) const {
  std::vector<uint64_t> places(layout_->parameters(), PLIANT_ANY_PLACE);
  for (const Kept& one : states_[plan.begins].kept) places[one.parameter] = one.place;
  for (size_t i = 0; i < plan.answers[calls].end; ++i) {
    const pliant_action& one = plan.actions[i];
    if (one.kind == PLIANT_ACTION_GATHER) places[one.parameter] = one.place;
  }
  return places;
}

}  // namespace pliant::coordinator::planned
