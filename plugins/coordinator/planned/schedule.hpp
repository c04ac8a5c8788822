// Schedule: decides call by call, by what is known of the uses to come.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "gradients.hpp"
#include "layout.hpp"
#include "room.hpp"
#include "uses.hpp"

namespace pliant::coordinator::planned {

/// Into which gap a parameter goes: the one that fits it best; the lowest; or large ones into the lowest and small ones
/// into the highest, so that gaps of one size meet parameters of it. Or only bytes count, and places are given once all
/// is decided.
enum class Placing { kBestFit, kLow, kBySize, kLater };

struct ScheduleOptions {
  uint64_t ahead = 2;    ///< groups that may be on their way before the first visit that they are for begins
  uint64_t bucket = 0;   ///< bytes of complete gradients that wait to leave
  bool lingers = false;  ///< those that leave stay in the arena until the next do: PLIANT_ACTION_LINGER
  Weighing weighing = Weighing::kCostByTime;
  /// Modules around others lie right behind each other from the begin of the arena on, whatever has to go for that:
  /// what a pass needs fits then, if it fits at all. Else they lie in the lowest gap.
  bool packs = true;
  /// What lies apart from them, as it was gathered for another visit, is gathered anew right behind them where what may
  /// be entered inside would not fit otherwise.
  bool moves = true;
  Placing placing = Placing::kBestFit;
  uint64_t gather_bucket = 0;  ///< bytes of one group, of visits behind each other, that are gathered ahead together
};

/// A visit is an enter and a leave.
constexpr Moment kCallsOfVisit = 2;

/// By parameter, what gathering it costs: nanoseconds, or bytes.
using Costs = std::shared_ptr<const std::vector<uint64_t>>;

/// Whole between two passes.
struct Kept {
  uint32_t parameter = 0;
  uint64_t place = PLIANT_ANY_PLACE;
  bool waited_for = false;
  friend bool operator==(const Kept&, const Kept&) = default;
};

class Schedule {
 public:
  Schedule() = default;
  /// From `kept` on, ascending. `reserve`: bytes at the arena's end that are left to gradients, as far as more than
  /// those of a pass are not there. The layout lives longer than this. O(parameters).
  Schedule(const Layout& layout, Costs costs, ScheduleOptions options, uint64_t reserve, std::span<const Kept> kept);

  /// Of calls from number `now` on, in this pass.
  void set_known(const Uses& uses, Moment now);
  /// From now on anything may come: modules around others are packed, unless there is room for all, and moved.
  void expect_anything(bool packs) {
    options_.packs = options_.packs || packs;
    options_.moves = true;
  }
  void begin_pass(const Uses& uses, sdk::Actions& actions);
  void call(const Uses& uses, Moment now, Call call, sdk::Actions& actions) {
    if (leaves(call)) {
      leave(uses, now, call, actions);
    } else {
      enter(uses, now, call, actions);
    }
  }
  /// Gradients that leave from now on do not linger.
  void linger_no_more() { gradients_.linger_no_more(); }
  /// The calls that come are of the pass after.
  void begin_next_pass() { gradients_.begin_pass(); }
  /// What lies where the host needs room for the gradients that are left goes.
  void end_pass(bool with_gradient, sdk::Actions& actions);
  /// Where places come later: what is whole lies there, by parameter, and what comes goes on with places.
  void set_places(const std::vector<uint64_t>& places);
  /// What is whole, ascending; for another Schedule, once no module is entered.
  [[nodiscard]] std::vector<Kept> kept() const;

  [[nodiscard]] uint64_t cost(uint32_t parameter) const { return (*costs_)[parameter]; }
  [[nodiscard]] const Room& room() const { return room_; }
  [[nodiscard]] int64_t whole_elements() const { return whole_elements_; }
  /// So far, the most bytes of parameters at once that had to go though they have a use to come, or could not be
  /// gathered before their visit, while as many lay idle in gaps: with the same budget in one piece they would be
  /// whole.
  [[nodiscard]] uint64_t lost_to_gaps() const { return most_lost_; }
  /// What it cost so far to gather what went though it had a use to come. In a pass of which it is known what it pays
  /// to keep, gaps alone do that, and gradients.
  [[nodiscard]] Wide wasted() const { return wasted_; }

 private:
  void enter(const Uses& uses, Moment now, Call call, sdk::Actions& actions);
  void leave(const Uses& uses, Moment now, Call call, sdk::Actions& actions);
  struct Found {
    uint32_t parameter;
    uint64_t place;
    // Before it was found, for what is put off.
    bool was_lost = false;
    uint64_t delayed = 0;
  };
  void use(const Uses& uses, Moment now, std::span<const uint32_t> used);
  /// What is entered lies apart from what was entered before it, and that leaves too little in one piece for what may
  /// be entered inside: it goes, to be gathered anew.
  void release_apart(Call call, std::span<const uint32_t> used, sdk::Actions& actions);
  void gather_missing(Moment now, Call call, std::span<const uint32_t> used, sdk::Actions& actions);
  /// Side by side, with what was whole of it and no other module uses; else each in the lowest place, the largest
  /// first. Throws where that does not fit either.
  void gather_anew(Moment now, Call call, std::span<const uint32_t> used, sdk::Actions& actions);
  /// To missing_: what of it is not whole, first what stays.
  void look_for_missing(std::span<const uint32_t> used);
  /// To found_, at a spot that `find` gives. The one for which there is none; then nothing was found.
  template <class Find>
  std::optional<uint32_t> take_missing(const Find& find, sdk::Actions& actions);
  [[nodiscard]] Room::Want want_of(uint32_t parameter, Moment now, Moment until, bool thorough) const;
  [[nodiscard]] std::optional<Room::Spot> spot_for(uint32_t parameter, Moment now, uint32_t module) const;
  [[nodiscard]] std::optional<Room::Spot> spot_behind(uint32_t parameter, Moment now) const;
  [[nodiscard]] std::optional<Room::Spot> spot_between(uint32_t parameter, Moment now) const;
  [[noreturn]] void refuse(uint32_t parameter, uint32_t module) const;
  void remove(uint32_t parameter);
  /// Of the arena, below the gradients that are to come, then below those that lie there.
  [[nodiscard]] std::array<uint64_t, 2> tops() const {
    if (!room_.has_places()) return {line_, line_};
    return {line_, room_.budget() - std::min(room_.budget(), gradients_.depth())};
  }
  /// Lies beside what stays for long.
  [[nodiscard]] bool is_long(uint32_t parameter, uint32_t module) const {
    return layout_->has_inner(module) || layout_->parameter(parameter).external;
  }
  /// What stays for long.
  [[nodiscard]] std::optional<Room::Spot> spot_beside(const Room::Want& want) const;
  /// Gradients lie deeper than was left to them: what lies there goes. `call`: that they come with; none at the end of
  /// the pass. Throws where that does not fit.
  void make_way_for_gradients(uint64_t depth, std::optional<Call> call, sdk::Actions& actions);
  [[noreturn]] void refuse_gradients(uint64_t depth, std::optional<Call> call) const;
  /// What visits from `from` on use, and before `until`.
  void prefetch(const Uses& uses, Moment from, Moment until, sdk::Actions& actions);
  /// So many calls ahead are looked at.
  [[nodiscard]] Moment horizon() const;
  /// Without a budget: what the call, an enter at that moment, uses and is whole is released before it.
  [[nodiscard]] bool goes_before(Moment from, Moment at, Call call) const;
  /// A parameter stays whole between two such moments, without a budget.
  [[nodiscard]] bool is_near(Moment one, Moment next) const {
    return (next - one + 1) / kCallsOfVisit <= options_.ahead;
  }
  /// It enters a module that uses what is not whole.
  [[nodiscard]] bool lacks(Call call) const;
  /// To found_ what the module of the call uses and is not whole; true when that is all of it.
  bool prefetch_visit(const Uses& uses, Moment now, Moment at, sdk::Actions& actions);
  void take(uint32_t parameter, const Room::Spot& spot, sdk::Actions& actions);
  void put(uint32_t parameter, uint64_t place);
  void emit(std::span<const Found> found, bool prefetched, sdk::Actions& actions);
  void release(uint32_t parameter, sdk::Actions& actions);
  /// Of gone_, what the gaps that are left would hold.
  void count_lost();
  /// Bytes that lie idle beside what gaps have cost already.
  [[nodiscard]] uint64_t idle_beside_lost();
  [[nodiscard]] bool is_over_line(uint32_t parameter) const;

  const Layout* layout_ = nullptr;
  ScheduleOptions options_;
  Room room_;
  Gradients gradients_;
  Costs costs_;
  uint64_t reserve_ = 0;
  uint64_t line_ = 0;        ///< what lies above it makes way for gradients
  std::set<Moment> on_way_;  ///< by group that was gathered ahead, its first visit, where that has not begun
  Moment looked_until_ = 0;  ///< what uses before this moment need is whole or on its way
  uint64_t clock_ = 0;       ///< uses, where no later ones are known
  int64_t whole_elements_ = 0;
  std::vector<Found> found_;
  std::vector<uint32_t> missing_;  ///< of the module that is entered
  std::vector<uint32_t> apart_;    ///< in release_apart()
  std::vector<uint32_t> gone_;     ///< in take(), with a use to come
  std::vector<bool> is_lost_;      ///< by parameter: went for want of one piece, and was not gathered since
  std::vector<uint64_t> delayed_;  ///< by parameter: bytes lost with it, where gaps kept it from being gathered ahead
  uint64_t lost_ = 0;              ///< bytes of them, as far as gaps would hold them
  uint64_t most_lost_ = 0;
  Wide wasted_ = 0;
};

}  // namespace pliant::coordinator::planned
