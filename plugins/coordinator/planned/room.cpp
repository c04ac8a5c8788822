#include "room.hpp"

#include <algorithm>
#include <bit>
#include <deque>

namespace pliant::coordinator::planned {
namespace {

/// So many of those that are used latest are looked at.
constexpr size_t kSeeds = 6;
/// Else as many of each size, in powers of two, from one part of so many of what is wanted on.
constexpr uint64_t kLargeEnough = 4;
/// And so many gaps that would do but lie too high.
constexpr size_t kGaps = 8;
/// And so many from one side.
constexpr size_t kGapsOfSide = 64;
/// And so many more than suffice, where places come later.
constexpr size_t kCandidates = 16;
constexpr unsigned kPoint = 24;  ///< bits behind the point of what a loss is counted in

int bits_of(uint64_t number) {
  return static_cast<int>(std::bit_width(number));
}

}  // namespace

/// A run of gaps and of parameters that may go.
struct Room::Window {
  uint64_t begin = 0;
  uint64_t end = 0;
  std::vector<uint32_t> within;
};

void Room::add_gap(uint64_t place, uint64_t bytes) {
  if (bytes == 0) return;
  const auto after = gaps_.find(place + bytes);
  if (after != gaps_.end()) {
    bytes += after->second;
    remove_gap(after->first, after->second);
  }
  auto before = gaps_.lower_bound(place);
  if (before != gaps_.begin()) {
    --before;
    if (before->first + before->second == place) {
      place = before->first;
      bytes += before->second;
      remove_gap(place, before->second);
    }
  }
  gaps_.emplace(place, bytes);
  by_bytes_.emplace(bytes, place);
}

void Room::remove_gap(uint64_t place, uint64_t bytes) {
  gaps_.erase(place);
  by_bytes_.erase({bytes, place});
}

void Room::make_way(uint32_t parameter, bool may) {
  const Held& one = held_[parameter];
  if (budget_ == 0 || one.bytes == 0 || !one.whole) return;
  set_fixed(parameter, !may);
  if (may) {
    add_may_go(one.next, parameter);
    if (has_places_) fixed_.erase(one.place);
  } else {
    remove_may_go(one.next, parameter);
    if (has_places_) fixed_.insert(one.place);
  }
}

void Room::set_fixed(uint32_t parameter, bool fixed) {
  Held& one = held_[parameter];
  if (one.fixed == fixed) return;
  one.fixed = fixed;
  fixed_bytes_ = fixed ? fixed_bytes_ + one.bytes : fixed_bytes_ - one.bytes;
}

void Room::add_may_go(Moment next, uint32_t parameter) {
  if (!may_go_.emplace(next, parameter).second) return;
  const uint64_t bytes = held_[parameter].bytes;
  may_go_by_size_[bits_of(bytes)].emplace(next, parameter);
  if (next == kNever) spent_bytes_ += bytes;
}

void Room::remove_may_go(Moment next, uint32_t parameter) {
  if (may_go_.erase({next, parameter}) == 0) return;
  const uint64_t bytes = held_[parameter].bytes;
  may_go_by_size_[bits_of(bytes)].erase({next, parameter});
  if (next == kNever) spent_bytes_ -= bytes;
}

uint64_t Room::idle_below(uint64_t line) const {
  uint64_t taken = held_bytes_ - spent_bytes_;
  for (auto one = by_place_.rbegin(); one != by_place_.rend(); ++one) {
    ++looked_at_;
    const Held& held = held_[one->second];
    const uint64_t end = held.place + held.bytes;
    if (end <= line) break;
    const bool is_spent = may_go(one->second) && held.next == kNever;
    if (!is_spent) taken -= end - std::max(line, held.place);
  }
  return line - std::min(line, taken);
}

void Room::take(uint32_t parameter, uint64_t place, uint64_t bytes) {
  Held& one = held_[parameter];
  one.whole = true;
  one.waited_for = false;
  one.place = place;
  one.bytes = bytes;
  make_way(parameter, may_go(parameter));
  if (budget_ == 0 || bytes == 0) return;
  held_bytes_ += bytes;
  if (place != PLIANT_ANY_PLACE) link(parameter);
  if (!has_places_) return;
  auto gap = gaps_.upper_bound(place);
  --gap;
  const auto [begin, length] = *gap;
  remove_gap(begin, length);
  add_gap(begin, place - begin);
  add_gap(place + bytes, begin + length - place - bytes);
}

void Room::link(uint32_t parameter) {
  Held& one = held_[parameter];
  const auto at = by_place_.emplace(one.place, parameter).first;
  one.left = at == by_place_.begin() ? kNone : std::prev(at)->second;
  one.right = std::next(at) == by_place_.end() ? kNone : std::next(at)->second;
  if (one.left != kNone) held_[one.left].right = parameter;
  if (one.right != kNone) held_[one.right].left = parameter;
}

void Room::unlink(uint32_t parameter) {
  const Held& one = held_[parameter];
  by_place_.erase(one.place);
  if (one.left != kNone) held_[one.left].right = one.right;
  if (one.right != kNone) held_[one.right].left = one.left;
}

void Room::drop(uint32_t parameter) {
  Held& one = held_[parameter];
  if (budget_ > 0 && one.bytes > 0) {
    remove_may_go(one.next, parameter);
    set_fixed(parameter, false);
    if (one.place != PLIANT_ANY_PLACE) unlink(parameter);
    held_bytes_ -= one.bytes;
    if (has_places_) {
      fixed_.erase(one.place);
      add_gap(one.place, one.bytes);
    }
  }
  one.whole = one.waited_for = one.stays = false;
  one.place = PLIANT_ANY_PLACE;
}

void Room::enter(uint32_t parameter, Moment next) {
  if (may_go(parameter)) make_way(parameter, false);
  ++held_[parameter].users;
  held_[parameter].next = next;
}

void Room::leave(uint32_t parameter) {
  Held& one = held_[parameter];
  if (one.users == 0 || --one.users > 0) return;
  if (may_go(parameter)) make_way(parameter, true);
}

void Room::set_next(uint32_t parameter, Moment next) {
  Held& one = held_[parameter];
  if (one.next == next) return;
  const bool moves = budget_ > 0 && one.bytes > 0 && may_go(parameter);
  if (moves) remove_may_go(one.next, parameter);
  one.next = next;
  if (moves) add_may_go(next, parameter);
}

std::optional<Room::Spot> Room::lowest_gap(const Want& want) const {
  for (const auto& [place, bytes] : gaps_) {
    ++looked_at_;
    if (place + want.bytes > want.top) break;
    if (bytes >= want.bytes) return Spot{place, {}};
  }
  return std::nullopt;
}

Room Room::with_places(const Layout& layout, const std::vector<uint64_t>& places) const {
  Room made(layout);
  made.looked_at_ = looked_at_;
  for (uint32_t parameter = 0; parameter < held_.size(); ++parameter) {
    const Held& one = held_[parameter];
    Held& to = made.held_[parameter];
    to.next = one.next;
    to.users = one.users;
    to.stays = one.stays;
    if (!one.whole) continue;
    made.take(parameter, places[parameter], one.bytes);
    to.waited_for = one.waited_for;
  }
  return made;
}

uint64_t Room::end_of_fixed() const {
  if (!has_places_) return fixed_bytes_;
  return fixed_.empty() ? 0 : *fixed_.rbegin() + held_[by_place_.at(*fixed_.rbegin())].bytes;
}

std::optional<Room::Spot> Room::behind_fixed(const Want& want) const {
  return spot_at(end_of_fixed(), want);
}

std::optional<Room::Spot> Room::between_fixed(const Want& want) const {
  uint64_t place = 0;
  for (const uint64_t begin : fixed_) {
    ++looked_at_;
    if (begin >= place + want.bytes) break;
    place = begin + held_[by_place_.at(begin)].bytes;
  }
  return spot_at(place, want);
}

std::optional<Room::Spot> Room::spot_at(uint64_t place, const Want& want) const {
  if (place > want.top || want.bytes > want.top - place) return std::nullopt;
  Spot spot{place, {}};
  auto one = by_place_.upper_bound(place);
  if (one != by_place_.begin()) --one;
  for (; one != by_place_.end() && one->first < place + want.bytes; ++one) {
    ++looked_at_;
    if (one->first + held_[one->second].bytes <= place) continue;
    if (held_[one->second].next <= want.until) return std::nullopt;
    spot.goes.push_back(one->second);
  }
  return spot;
}

std::vector<uint32_t> Room::above(uint64_t line) const {
  std::vector<uint32_t> found;
  for (auto one = by_place_.rbegin(); one != by_place_.rend(); ++one) {
    ++looked_at_;
    if (one->first + held_[one->second].bytes <= line) break;
    if (may_go(one->second)) found.push_back(one->second);
  }
  return found;
}

std::optional<Room::Window> Room::window_around(uint32_t parameter, const Want& want, Stretches& too_short) const {
  const Held& seed = held_[parameter];
  if (seed.bytes == 0 || seed.next <= want.until || seed.place >= want.top) return std::nullopt;
  for (const auto& [begin, end] : too_short) {
    if (begin <= seed.place && seed.place < end) return std::nullopt;
  }
  Window window{seed.place, seed.place + seed.bytes, {parameter}};
  uint32_t left = seed.left;
  uint32_t right = seed.right;
  const auto widen_gaps = [&] {
    window.end = right == kNone ? budget_ : held_[right].place;
    window.begin = left == kNone ? 0 : held_[left].place + held_[left].bytes;
  };
  widen_gaps();
  ++looked_at_;
  const auto worth = [&](uint32_t other) -> Moment {
    if (other == kNone || !may_go(other)) return 0;
    const Held& one = held_[other];
    return one.next > want.until && one.place < want.top ? one.next : 0;
  };
  while (std::min(window.end, want.top) - window.begin < want.bytes) {
    ++looked_at_;
    const Moment of_right = worth(right);
    const Moment of_left = worth(left);
    if (of_left == 0 && of_right == 0) {
      too_short.emplace_back(window.begin, window.end);
      return std::nullopt;
    }
    if (of_right >= of_left) {
      window.within.push_back(right);
      right = held_[right].right;
    } else {
      window.within.push_back(left);
      left = held_[left].left;
    }
    widen_gaps();
  }
  return window;
}

/// What a window loses as it slides over parameters in their order: the sum, or the largest.
class Room::Losses {
 public:
  explicit Losses(bool is_sum) : is_sum_(is_sum) {}
  void add(Wide loss) {
    sum_ += loss;
    while (!is_sum_ && !largest_.empty() && largest_.back().second < loss) largest_.pop_back();
    if (!is_sum_) largest_.emplace_back(added_, loss);
    ++added_;
  }
  /// The one that was added first, of `loss`.
  void remove(Wide loss) {
    sum_ -= loss;
    if (!is_sum_ && largest_.front().first == removed_) largest_.pop_front();
    ++removed_;
  }
  [[nodiscard]] Wide all() const {
    if (is_sum_) return sum_;
    return largest_.empty() ? 0 : largest_.front().second;
  }

 private:
  bool is_sum_;
  Wide sum_ = 0;
  size_t added_ = 0;
  size_t removed_ = 0;
  std::deque<std::pair<size_t, Wide>> largest_;  ///< numbers and losses, which fall
};

// Each spot that loses least begins where a parameter or what may not go ends, or ends where one begins.
std::optional<Room::Spot> Room::cheapest_spot(const Want& want, const std::vector<uint64_t>& costs) const {
  std::optional<uint64_t> best;
  Wide least = 0;
  struct MayGo {
    uint64_t begin;
    uint64_t end;
    Wide loss;
  };
  std::vector<MayGo> pieces;  // of a stretch without what may not go
  std::vector<uint64_t> places;
  const auto look_at = [&](uint64_t begin, uint64_t end) {
    end = std::min(end, want.top);
    if (end < begin || end - begin < want.bytes) return;
    const uint64_t last = end - want.bytes;
    places.assign({begin, last});
    for (const MayGo& one : pieces) {
      if (one.end <= last) places.push_back(one.end);
      if (one.begin >= begin + want.bytes && one.begin <= end) places.push_back(one.begin - want.bytes);
    }
    std::sort(places.begin(), places.end());
    Losses losses(want.weighing != Weighing::kTime);
    auto first = pieces.begin();
    auto next = pieces.begin();
    for (const uint64_t place : places) {
      for (; next != pieces.end() && next->begin < place + want.bytes; ++next) losses.add(next->loss);
      for (; first != next && first->end <= place; ++first) losses.remove(first->loss);
      const Wide loss = losses.all();
      if (best && (want.side == Side::kHigh ? least < loss : least <= loss)) continue;
      best = place;
      least = loss;
    }
  };
  uint64_t begin = 0;
  for (const auto& [place, parameter] : by_place_) {
    if (place >= want.top) break;
    ++looked_at_;
    const Held& one = held_[parameter];
    if (may_go(parameter) && one.next > want.until) {
      pieces.push_back({place, place + one.bytes, loss_of(parameter, want, costs)});
      continue;
    }
    look_at(begin, place);
    pieces.clear();
    begin = place + one.bytes;
  }
  look_at(begin, budget_);
  return best ? spot_at(*best, want) : std::nullopt;
}

std::optional<Room::Spot> Room::gap_on_side(const Want& want) const {
  size_t looked_at = 0;
  if (want.side == Side::kLow) {
    for (auto gap = gaps_.begin(); gap != gaps_.end() && looked_at < kGapsOfSide; ++gap, ++looked_at) {
      ++looked_at_;
      if (gap->first + want.bytes > want.top) break;
      if (gap->second >= want.bytes) return Spot{gap->first, {}};
    }
  }
  if (want.side == Side::kHigh) {
    for (auto gap = gaps_.rbegin(); gap != gaps_.rend() && looked_at < kGapsOfSide; ++gap, ++looked_at) {
      ++looked_at_;
      const uint64_t end = std::min(gap->first + gap->second, want.top);
      if (end >= gap->first + want.bytes) return Spot{end - want.bytes, {}};
    }
  }
  return std::nullopt;
}

Wide Room::loss_of(uint32_t parameter, const Want& want, const std::vector<uint64_t>& costs) const {
  const Moment next = held_[parameter].next;
  if (next == kNever) return 0;
  const uint64_t distance = next > want.now ? next - want.now : 1;
  const Wide cost = costs[parameter];
  if (want.weighing == Weighing::kCost) return cost;
  return (want.weighing == Weighing::kTime ? Wide{1} << kPoint : cost << kPoint) / distance;
}

// What loses least for its bytes, of what is used latest; then whatever of it is not needed stays.
std::optional<Room::Spot> Room::find_bytes(const Want& want, const std::vector<uint64_t>& costs) const {
  const uint64_t idle = want.top - std::min(want.top, held_bytes_);
  if (want.bytes <= idle) return Spot{};
  const uint64_t needed = want.bytes - idle;
  struct Candidate {
    uint32_t parameter;
    uint64_t bytes;
    Wide loss;
  };
  std::vector<Candidate> found;
  uint64_t bytes = 0;
  for (auto one = may_go_.rbegin(); one != may_go_.rend() && one->first > want.until; ++one) {
    const bool loses_nothing = !found.empty() && found.back().loss == 0;
    if (bytes >= needed && (loses_nothing || found.size() >= kCandidates)) break;
    ++looked_at_;
    found.push_back({one->second, held_[one->second].bytes, loss_of(one->second, want, costs)});
    bytes += found.back().bytes;
  }
  if (bytes < needed) return std::nullopt;
  if (want.weighing != Weighing::kTime) {
    std::stable_sort(found.begin(), found.end(), [](const Candidate& one, const Candidate& other) {
      return one.loss * other.bytes < other.loss * one.bytes;
    });
  }
  const auto suffices = [&](const Candidate& one) { return one.bytes >= needed; };
  const Candidate* alone = nullptr;
  for (const Candidate& one : found) {
    if (suffices(one) && (alone == nullptr || one.loss < alone->loss)) alone = &one;
  }
  Spot spot;
  Wide loss = 0;
  bytes = 0;
  size_t taken = 0;
  for (; bytes < needed; ++taken) bytes += found[taken].bytes;
  while (taken-- > 0) {
    if (bytes - found[taken].bytes >= needed) {
      bytes -= found[taken].bytes;
      continue;
    }
    spot.goes.push_back(found[taken].parameter);
    loss += found[taken].loss;
  }
  if (alone != nullptr && alone->loss < loss) spot.goes.assign(1, alone->parameter);
  return spot;
}

std::optional<Room::Spot> Room::find(const Want& wanted, const std::vector<uint64_t>& costs) const {
  Want want = wanted;
  want.top = want.top / kAlignment * kAlignment;
  if (budget_ == 0 || want.bytes == 0) return Spot{};
  if (!has_places_) return find_bytes(want, costs);
  if (auto spot = gap_on_side(want)) return spot;
  size_t looked_at = 0;
  for (auto gap = by_bytes_.lower_bound({want.bytes, 0}); gap != by_bytes_.end(); ++gap) {
    ++looked_at_;
    if (gap->second + want.bytes <= want.top) return Spot{gap->second, {}};
    if (!want.thorough && ++looked_at == kGaps) break;
  }
  std::optional<Spot> best;
  Wide least = 0;
  Stretches too_short;
  const auto look_at = [&](uint32_t parameter) {
    const std::optional<Window> window = window_around(parameter, want, too_short);
    if (!window) return;
    // From either end of it, whichever loses less.
    const bool is_high = want.side == Side::kHigh;
    for (const bool from_end : {is_high, !is_high}) {
      const uint64_t end = std::min(window->end, want.top);
      Spot spot{from_end ? end - want.bytes : window->begin, {}};
      Wide loss = 0;
      for (const uint32_t other : window->within) {
        const Held& one = held_[other];
        if (one.place >= spot.place + want.bytes || one.place + one.bytes <= spot.place) continue;
        spot.goes.push_back(other);
        const Wide of_it = loss_of(other, want, costs);
        loss = want.weighing == Weighing::kTime ? std::max(loss, of_it) : loss + of_it;
      }
      if (best && least <= loss) continue;
      least = loss;
      best = std::move(spot);
    }
  };
  const auto look_at_latest = [&](const ByNext& these) {
    size_t seeds = 0;
    for (auto one = these.rbegin(); one != these.rend() && one->first > want.until && seeds < kSeeds; ++one, ++seeds) {
      look_at(one->second);
    }
  };
  look_at_latest(may_go_);
  if (best) return best;
  // Those that were looked at may all have been small, of which many lie there with no use to come.
  const auto least_size = may_go_by_size_.lower_bound(bits_of(want.bytes / kLargeEnough));
  for (auto of_size = least_size; of_size != may_go_by_size_.end(); ++of_size) look_at_latest(of_size->second);
  return best || !want.thorough ? best : cheapest_spot(want, costs);
}

}  // namespace pliant::coordinator::planned
