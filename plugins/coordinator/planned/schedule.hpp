// Schedule: decides call by call, by what is known of the uses to come.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "layout.hpp"
#include "room.hpp"
#include "uses.hpp"

namespace pliant::coordinator::planned {

struct ScheduleOptions {
  uint64_t ahead = 2;   ///< visits whose gathers may be on their way before they begin
  uint64_t bucket = 0;  ///< bytes of complete gradients that wait to leave
  Weighing weighing = Weighing::kCostByTime;
};

/// Copies are cheap enough to keep one per pass: O(parameters). Between two passes only `room` differs.
class Schedule {
 public:
  Schedule() = default;
  /// The layout lives longer than this.
  Schedule(const Layout& layout, ScheduleOptions options);

  /// By gathering: nanoseconds, or bytes. Between two passes.
  void set_costs(std::vector<uint64_t> costs) { costs_ = std::move(costs); }

  /// The layout has changed.
  void draw_line();

  /// Of calls from number `now` on, in this pass.
  void set_known(const Uses& uses, Moment now);
  void begin_pass(const Uses& uses, sdk::Actions& actions);
  void enter(const Uses& uses, Moment now, Call call, sdk::Actions& actions);
  void leave(const Uses& uses, Moment now, Call call, sdk::Actions& actions);
  void end_pass();
  /// Everything is released, also what modules use that were never left.
  void end_step(sdk::Actions& actions);

  /// Decided anew from here on by these. Between two passes.
  void set_options(ScheduleOptions options) { options_ = options; }
  [[nodiscard]] const ScheduleOptions& options() const { return options_; }
  [[nodiscard]] uint64_t cost(uint32_t parameter) const { return costs_[parameter]; }
  [[nodiscard]] const Room& room() const { return room_; }
  [[nodiscard]] int64_t whole_elements() const { return whole_elements_; }

 private:
  struct Found {
    uint32_t parameter;
    uint64_t place;
  };
  void use(const Uses& uses, Moment now, std::span<const uint32_t> used);
  void gather_missing(Moment now, Call call, std::span<const uint32_t> used, sdk::Actions& actions);
  [[nodiscard]] Room::Spot spot_for(uint32_t parameter, Moment now, Call call) const;
  void prefetch(const Uses& uses, Moment from, sdk::Actions& actions);
  /// True when all that the module of the call uses is whole or on its way now.
  bool prefetch_visit(const Uses& uses, Moment now, Moment at, sdk::Actions& actions);
  void take(uint32_t parameter, const Room::Spot& spot, sdk::Actions& actions);
  void emit(std::span<const Found> found, bool prefetched, sdk::Actions& actions);
  void release(uint32_t parameter, sdk::Actions& actions);
  [[nodiscard]] bool is_over_line(uint32_t parameter) const;

  const Layout* layout_ = nullptr;
  ScheduleOptions options_;
  Room room_;
  std::vector<uint64_t> costs_;
  uint64_t line_ = 0;          ///< what lies above it makes way for gradients
  std::deque<Moment> on_way_;  ///< visits that were gathered for and have not begun
  Moment looked_until_ = 0;    ///< what uses before this moment need is whole or on its way
  uint64_t clock_ = 0;         ///< uses, where no later ones are known
  int64_t whole_elements_ = 0;
  std::vector<Found> found_;
};

}  // namespace pliant::coordinator::planned
