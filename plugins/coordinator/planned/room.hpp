// Room: which parameters are whole, where each lies in the arena, and which make room for others.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "layout.hpp"
#include "uses.hpp"

namespace pliant::coordinator::planned {

/// What goes first among what is used latest: by what its loss costs in relation to how long it would lie there, by the
/// nearest use that is lost alone, or by what its loss costs alone.
enum class Weighing { kCostByTime, kTime, kCost };

/// Into which gap: the one that fits best, the lowest, or the highest, there at its end.
enum class Side { kBestFit, kLow, kHigh };

/// With a budget each whole parameter has a place, and no two overlap; or places come later, and what is whole takes no
/// more bytes than there are, in any number of pieces. Without a budget there are no places.
class Room {
 public:
  Room() = default;
  explicit Room(const Layout& layout, bool has_places = true)
      : has_places_(has_places), budget_(layout.model().budget / kAlignment * kAlignment), held_(layout.parameters()) {
    if (budget_ > 0 && has_places_) add_gap(0, budget_);
  }

  static constexpr uint32_t kNone = UINT32_MAX;  ///< no parameter
  struct Held {
    uint64_t place = PLIANT_ANY_PLACE;
    uint64_t bytes = 0;
    uint32_t left = kNone;   ///< the one before it, of those that have a place and bytes
    uint32_t right = kNone;  ///< the one behind it
    Moment next = kNever;    ///< its next use, as far as is known
    uint32_t users = 0;      ///< modules that are entered, as often as they are
    bool whole = false;
    bool waited_for = false;
    bool stays = false;  ///< makes room for nothing
    bool fixed = false;  ///< may not go, as the bytes that are fixed count it
  };
  [[nodiscard]] const Held& at(uint32_t parameter) const { return held_[parameter]; }
  [[nodiscard]] uint64_t budget() const { return budget_; }
  /// False: places come later. What this says of gaps, and of what lies behind something, has no meaning then.
  [[nodiscard]] bool has_places() const { return has_places_; }
  /// The same with these places, by parameter. O(parameters * log n).
  [[nodiscard]] Room with_places(const Layout& layout, const std::vector<uint64_t>& places) const;
  [[nodiscard]] size_t parameters() const { return held_.size(); }

  /// Where so many bytes could lie, and what would have to go.
  struct Spot {
    uint64_t place = PLIANT_ANY_PLACE;
    std::vector<uint32_t> goes;
  };
  /// What makes room may: nothing whose next use is at `until` or sooner.
  struct Want {
    uint64_t bytes = 0;
    uint64_t top = 0;  ///< it lies below this
    Moment now = 0;
    Moment until = 0;
    bool thorough = false;  ///< look everywhere before there is no spot
    Weighing weighing = Weighing::kCostByTime;
    Side side = Side::kBestFit;
  };
  /// A gap on that side, or, where there are many, the one that fits best; else what is used latest goes, weighed by
  /// what it costs to gather it again. nullopt: there is no such spot. `costs`: by parameter, what gathering it costs.
  /// O(log n + what lies in the places that are looked at), and O(n log n) where it has to be thorough.
  [[nodiscard]] std::optional<Spot> find(const Want& want, const std::vector<uint64_t>& costs) const;
  /// Of all spots below `top` one that loses least, as it is weighed. O(n log n).
  [[nodiscard]] std::optional<Spot> cheapest_spot(const Want& want, const std::vector<uint64_t>& costs) const;
  /// The lowest gap that has the bytes, below `top`. O(gaps).
  [[nodiscard]] std::optional<Spot> lowest_gap(const Want& want) const;
  /// Right behind all that stays or is used, below `top`; nothing lies there whose next use is at `until` or sooner.
  /// O(log n + what goes).
  [[nodiscard]] std::optional<Spot> behind_fixed(const Want& want) const;
  /// At the lowest place where nothing lies that stays or is used, below `top`; likewise. O(fixed + what goes).
  [[nodiscard]] std::optional<Spot> between_fixed(const Want& want) const;
  /// The end of what may not go and lies highest; 0: there is none. Where places come later, the bytes of what may not
  /// go. O(1).
  [[nodiscard]] uint64_t end_of_fixed() const;
  /// Bytes below `line` that hold nothing with a use to come. O(log n + what lies above).
  [[nodiscard]] uint64_t idle_below(uint64_t line) const;
  /// What lies above `line`, by a part at least, and may go. O(of it).
  [[nodiscard]] std::vector<uint32_t> above(uint64_t line) const;

  /// Entries of these books that were looked at so far, in any way.
  [[nodiscard]] uint64_t looked_at() const { return looked_at_; }

  void take(uint32_t parameter, uint64_t place, uint64_t bytes);
  /// It is whole no more.
  void drop(uint32_t parameter);
  void enter(uint32_t parameter, Moment next);
  void leave(uint32_t parameter);
  void set_next(uint32_t parameter, Moment next);
  void set_waited(uint32_t parameter) { held_[parameter].waited_for = true; }
  /// For good.
  void keep(uint32_t parameter) {
    make_way(parameter, false);
    held_[parameter].stays = true;
  }

 private:
  /// It has a place now, or none any more.
  void link(uint32_t parameter);
  void unlink(uint32_t parameter);
  void add_gap(uint64_t place, uint64_t bytes);
  void remove_gap(uint64_t place, uint64_t bytes);
  /// It may go, or is fixed; neither where it takes no place.
  void make_way(uint32_t parameter, bool may);
  [[nodiscard]] bool may_go(uint32_t parameter) const {
    const Held& one = held_[parameter];
    return one.whole && one.users == 0 && !one.stays;
  }
  void add_may_go(Moment next, uint32_t parameter);
  void remove_may_go(Moment next, uint32_t parameter);
  [[nodiscard]] std::optional<Spot> gap_on_side(const Want& want) const;
  /// What goes for so many bytes, wherever they lie.
  [[nodiscard]] std::optional<Spot> find_bytes(const Want& want, const std::vector<uint64_t>& costs) const;
  /// What lies there makes room.
  [[nodiscard]] std::optional<Spot> spot_at(uint64_t place, const Want& want) const;
  /// Of what may go, as it is weighed.
  [[nodiscard]] Wide loss_of(uint32_t parameter, const Want& want, const std::vector<uint64_t>& costs) const;
  void set_fixed(uint32_t parameter, bool fixed);
  class Losses;
  struct Window;
  using Stretches = std::vector<std::pair<uint64_t, uint64_t>>;  ///< begins, ends
  /// The window that grows around it to what is used later. nullopt: what may go ends before it is large enough, as it
  /// does from anywhere within a stretch of `too_short`, to which that one is added. O(of it).
  [[nodiscard]] std::optional<Window> window_around(uint32_t parameter, const Want& want, Stretches& too_short) const;

  using ByNext = std::set<std::pair<Moment, uint32_t>>;  ///< by next use

  bool has_places_ = true;
  uint64_t budget_ = 0;
  std::vector<Held> held_;
  std::map<uint64_t, uint32_t> by_place_;             ///< those that have bytes
  std::map<uint64_t, uint64_t> gaps_;                 ///< place, bytes
  std::set<std::pair<uint64_t, uint64_t>> by_bytes_;  ///< gaps: bytes, place
  ByNext may_go_;
  std::map<int, ByNext> may_go_by_size_;  ///< the same, by the number of bits of their bytes
  std::set<uint64_t> fixed_;              ///< places of what may not go
  mutable uint64_t looked_at_ = 0;
  uint64_t held_bytes_ = 0;   ///< of all that lie there
  uint64_t spent_bytes_ = 0;  ///< of what may go and has no use to come
  uint64_t fixed_bytes_ = 0;  ///< of what may not go
};

}  // namespace pliant::coordinator::planned
