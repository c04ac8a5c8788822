// Schedule: decides call by call, by what is known of the uses to come.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gradients.hpp"
#include "layout.hpp"
#include "room.hpp"
#include "uses.hpp"

namespace pliant::coordinator::planned {

struct ScheduleOptions {
  uint64_t ahead = 2;   ///< visits whose gathers may be on their way before they begin
  uint64_t bucket = 0;  ///< bytes of complete gradients that wait to leave
  Weighing weighing = Weighing::kCostByTime;
  /// Modules around others lie right behind each other from the begin of the arena on, whatever has to go for that:
  /// what a pass needs fits then, if it fits at all. Else they lie in the lowest gap.
  bool packs = true;
};

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
  void begin_pass(const Uses& uses, sdk::Actions& actions);
  void call(const Uses& uses, Moment now, Call call, sdk::Actions& actions) {
    if (leaves(call)) {
      leave(uses, now, call, actions);
    } else {
      enter(uses, now, call, actions);
    }
  }
  /// The calls that come are of the pass after.
  void begin_next_pass() { gradients_.begin_pass(); }
  /// What lies where the host needs room for the gradients that are left goes.
  void end_pass(bool with_gradient, sdk::Actions& actions);
  /// What is whole, ascending; for another Schedule, once no module is entered.
  [[nodiscard]] std::vector<Kept> kept() const;

  [[nodiscard]] uint64_t cost(uint32_t parameter) const { return (*costs_)[parameter]; }
  [[nodiscard]] const Room& room() const { return room_; }
  [[nodiscard]] int64_t whole_elements() const { return whole_elements_; }

 private:
  void enter(const Uses& uses, Moment now, Call call, sdk::Actions& actions);
  void leave(const Uses& uses, Moment now, Call call, sdk::Actions& actions);
  struct Found {
    uint32_t parameter;
    uint64_t place;
  };
  void use(const Uses& uses, Moment now, std::span<const uint32_t> used);
  void gather_missing(Moment now, Call call, std::span<const uint32_t> used, sdk::Actions& actions);
  [[nodiscard]] Room::Spot spot_for(uint32_t parameter, Moment now, uint32_t module) const;
  /// Lies beside what stays for long.
  [[nodiscard]] bool is_long(uint32_t parameter, uint32_t module) const {
    return layout_->has_inner(module) || layout_->parameter(parameter).external;
  }
  /// What stays for long.
  [[nodiscard]] std::optional<Room::Spot> spot_beside(const Room::Want& want) const;
  /// Gradients lie deeper than was left to them: what lies there goes.
  void make_way_for_gradients(uint64_t depth, sdk::Actions& actions);
  void prefetch(const Uses& uses, Moment from, sdk::Actions& actions);
  /// True when all that the module of the call uses is whole or on its way now.
  bool prefetch_visit(const Uses& uses, Moment now, Moment at, sdk::Actions& actions);
  void take(uint32_t parameter, const Room::Spot& spot, sdk::Actions& actions);
  void put(uint32_t parameter, uint64_t place);
  void emit(std::span<const Found> found, bool prefetched, sdk::Actions& actions);
  void release(uint32_t parameter, sdk::Actions& actions);
  [[nodiscard]] bool is_over_line(uint32_t parameter) const;

  const Layout* layout_ = nullptr;
  ScheduleOptions options_;
  Room room_;
  Gradients gradients_;
  Costs costs_;
  uint64_t reserve_ = 0;
  uint64_t line_ = 0;          ///< what lies above it makes way for gradients
  std::deque<Moment> on_way_;  ///< visits that were gathered for and have not begun
  Moment looked_until_ = 0;    ///< what uses before this moment need is whole or on its way
  uint64_t clock_ = 0;         ///< uses, where no later ones are known
  int64_t whole_elements_ = 0;
  std::vector<Found> found_;
};

}  // namespace pliant::coordinator::planned
