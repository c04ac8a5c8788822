// Planner: knows the passes that it has seen, and answers the next one from a plan where it has one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "schedule.hpp"
#include "traces.hpp"

namespace pliant::coordinator::planned {

/// Of what a budget spares, complete gradients may take one part of so many, and what lingers of them as much.
constexpr uint64_t kPartOfSpare = 4;

struct PlannerOptions {
  uint64_t traces = 16;
  uint64_t ahead = 2;                        ///< ScheduleOptions::ahead
  uint64_t bucket = 0;                       ///< bytes of complete gradients that wait to leave
  uint64_t gather_bucket = 0;                ///< ScheduleOptions::gather_bucket
  uint64_t plan_bytes = uint64_t{1} << 26U;  ///< of plans that are kept; as many as a step has always are
};

/// A pass is expected to follow the trace that came after the same passes the last time. Its answers are decided before
/// it begins, from what is whole then, and kept as a plan; a pass that begins the same is answered from it, at the
/// price of a comparison and a copy a call. One that leaves its trace is decided call by call from there on, by the
/// trace of another pass that began so, or, where there is none, by demand. Nothing that is known is forgotten by that.
/// While passes are not those which were expected, nothing is expected of one before it has begun like one that is
/// known.
class Planner {
 public:
  Planner() = default;
  Planner(sdk::Model model, PlannerOptions options);

  /// O(1); O(model) once, at the next pass.
  void set_parameters(uint32_t module, std::span<const uint32_t> own, std::span<const uint32_t> external);
  void set_costs(std::span<const uint64_t> nanoseconds);
  void begin_pass(bool with_gradient, sdk::Actions& actions);
  void enter(const sdk::Visit& visit, sdk::Actions& actions) { call(call_of(visit, false), actions); }
  void leave(const sdk::Visit& visit, sdk::Actions& actions) {
    call(call_of(visit, true), actions);
    if (!visit.complete.empty()) reduce(visit.complete, actions);
  }
  void end_pass(sdk::Actions& actions);
  void end_step(sdk::Actions& actions);
  /// All that is known is forgotten; what is whole stays.
  void drop_trace(sdk::Actions& actions);
  [[nodiscard]] sdk::CoordinatorCounts counts() const;
  /// How many entries of the arena's books were looked at for all decisions of the passes so far: what planning costs.
  [[nodiscard]] uint64_t looked_at() const { return looked_at_; }
  void save(sdk::Writer& out) const;
  void load(sdk::Reader& in);

 private:
  /// What is whole between two passes, each once.
  using StateId = uint32_t;
  struct State {
    std::vector<Kept> kept;
    int64_t elements = 0;
  };
  struct Answer {
    uint32_t end;  ///< of its actions
    int64_t whole_elements;
  };
  struct Plan {
    ScheduleOptions options;
    Uses uses;  ///< marked with what it pays to keep
    uint64_t reserve = 0;
    std::shared_ptr<const Trace> trace;
    std::vector<pliant_action> actions;
    std::vector<Answer> answers;  ///< to begin_pass, then to each call, then to end_pass
    StateId begins = 0;
    std::vector<Kept> kept_at_end;  ///< until it is chosen
    StateId ends = 0;
    uint64_t lost_to_gaps = 0;  ///< Schedule::lost_to_gaps(), also where it was found what pays
    Wide cost = 0;              ///< of what it and the pass after it gather, as far as is known
    Wide wasted = 0;            ///< of it, Schedule::wasted()
    Wide late = 0;              ///< late_gathers()
    uint64_t used = 0;          ///< the number of the pass that followed it last
    [[nodiscard]] size_t bytes() const {
      return actions.size() * sizeof(pliant_action) + answers.size() * sizeof(Answer) + uses.bytes();
    }
  };
  /// A pass on paper that gathers nothing ahead, and the one after it.
  struct Trial {
    bool fits = false;
    ScheduleOptions options;
    std::vector<bool> whole;  ///< Uses::mark()
    Wide cost = 0;            ///< of what was gathered
    uint64_t lost_to_gaps = 0;
    uint64_t looked_at = 0;
  };
  /// The state at the begin, the trace, and the trace after it.
  using PlanKey = std::tuple<StateId, TraceId, TraceId>;

  void call(Call call, sdk::Actions& actions) {
    if (plan_ != nullptr) {
      const std::vector<Call>& calls = plan_->trace->calls;
      if (next_ < calls.size() && calls[next_] == call) {
        const uint32_t begin = plan_->answers[next_].end;
        ++next_;
        actions.append({plan_->actions.data() + begin, plan_->answers[next_].end - begin});
        return;
      }
      leave_plan();
    }
    decide(call, actions);
  }
  void decide(Call call, sdk::Actions& actions);
  /// What is left the host reduces when the pass ends.
  void reduce(std::span<const uint32_t> complete, sdk::Actions& actions);
  /// Of complete gradients. Those of the last list are in this one, too, unless they were reduced, mostly behind what
  /// is new, as backward goes to lower numbers: then O(what is new).
  [[nodiscard]] uint64_t waiting_bytes(std::span<const uint32_t> complete);
  /// Of a pass from the state in hand: its own, or one that is made; nullptr where the pass does not fit.
  Plan* plan_for(TraceId trace, TraceId after);
  /// How gradients leave.
  struct Leaving {
    uint64_t bucket = 0;
    bool lingers = false;
  };
  /// The first of these ways that fits, whichever way of placing it takes; with places that are given later where the
  /// others lose bytes to gaps and those do not.
  [[nodiscard]] bool is_decided(Plan& plan, TraceId trace, std::span<const Leaving> ways);
  /// Gradients of such buckets may linger in a pass like this one, and leave enough room.
  [[nodiscard]] bool may_linger(TraceId id, const Trace& trace, uint64_t bucket);
  [[nodiscard]] std::vector<Leaving> ways_to_leave(TraceId id, const Trace& trace);
  /// By what pays, gathered ahead as far as that fits. `below`: only where it costs less.
  [[nodiscard]] bool is_decided(Plan& plan, std::optional<Wide> below = std::nullopt);
  /// Within a budget, the ways of keeping parameters that fit, those that gather least first; none where the pass does
  /// not fit at all.
  [[nodiscard]] std::vector<Trial> tried_ways(Plan& plan);
  /// `reserve`: bytes at the arena's end where nothing is kept.
  [[nodiscard]] Trial tried(const Plan& plan, const ScheduleOptions& options, uint64_t reserve,
                            std::vector<pliant_action>& room) const;
  [[nodiscard]] bool decide_all(Plan& plan);
  /// To what is gathered without one, in the actions and at the end. False: none are found.
  [[nodiscard]] bool give_places(Plan& plan);
  /// What modules around others use lies so that whatever may be entered inside has room in one piece.
  [[nodiscard]] bool leaves_one_piece(const Plan& plan) const;
  /// What lies where when so many of its calls have been answered, by parameter.
  [[nodiscard]] std::vector<uint64_t> places_in(const Plan& plan, size_t calls) const;
  /// What gathers cost under which nothing is computed: not ahead of their visit, or as the one before it is left.
  [[nodiscard]] Wide late_gathers(const Plan& plan) const;
  /// The schedule is brought to where the plan is.
  void leave_plan();
  /// The pass that ends, as far as either of them went in its first calls.
  [[nodiscard]] bool began_as(const Trace& trace) const;
  void forget_least_used_plans(size_t most_bytes);
  [[nodiscard]] Schedule schedule_from(StateId state, const ScheduleOptions& options, uint64_t reserve) const {
    return {*layout_, costs_, options, reserve, states_[state].kept};
  }
  /// Bytes at the arena's end that are left to gradients in a pass like this one.
  uint64_t reserve_of(TraceId id, const Trace& trace, uint64_t bucket, bool lingers);
  /// A pass that is not known: there is no room for all, so modules around others lie behind each other.
  [[nodiscard]] bool packs_when_unknown(bool with_gradient) const {
    return layout_->all_bytes() + (with_gradient ? reserve_ : 0) > layout_->model().budget;
  }
  [[nodiscard]] StateId state_of(std::vector<Kept> kept);
  /// Plans and states; what is whole stays.
  void forget_plans();
  /// After other parameters or costs.
  void refresh();
  /// By parameter, what gathering it costs: nanoseconds where anything was measured, else bytes.
  [[nodiscard]] std::vector<uint64_t> costs_of_all() const;
  [[nodiscard]] size_t calls() const { return plan_ != nullptr ? next_ : now_.calls.size(); }

  PlannerOptions options_;
  std::unique_ptr<Layout> layout_;
  bool is_stale_ = false;  ///< the layout is to be built, plans are of no use
  TraceSet traces_;
  Succession succession_;
  std::vector<uint64_t> nanoseconds_;  ///< agreed on; empty: none
  Costs costs_;
  uint64_t bucket_ = 0;
  uint64_t reserve_ = 0;                                              ///< for passes that are not known
  std::map<std::tuple<TraceId, uint64_t, bool>, uint64_t> reserves_;  ///< by trace, bucket and whether they linger

  std::map<PlanKey, Plan> plans_;
  std::set<PlanKey> does_not_fit_;
  size_t plan_bytes_ = 0;
  std::vector<State> states_;
  std::multimap<uint64_t, StateId> states_by_digest_;
  size_t kept_ = 0;  ///< in all states

  // The pass that is under way.
  bool in_pass_ = false;
  const Plan* plan_ = nullptr;  ///< that is followed
  size_t next_ = 0;             ///< call of it
  StateId state_ = 0;           ///< where the pass began; between two passes
  Schedule schedule_;           ///< where no plan is followed
  Trace now_;                   ///< its calls so far, where no plan is followed
  RollingDigest digest_;
  TraceId expected_ = kNoTrace;
  TraceId predicted_ = kNoTrace;  ///< what was expected of the pass as it began
  uint32_t misses_ = 0;           ///< passes one after the other that began in another way than was predicted
  Uses uses_;
  uint64_t bucket_now_ = 0;
  bool lingers_now_ = false;
  /// Complete gradients that wait to be reduced: the last list of them, its lowest number and its bytes.
  struct Waiting {
    size_t count = 0;
    uint32_t lowest = 0;
    uint64_t bytes = 0;
  };
  Waiting waiting_;
  uint64_t passes_ = 0;
  uint64_t looked_at_ = 0;
  uint64_t lost_to_gaps_ = 0;  ///< in the pass that ended last
};

}  // namespace pliant::coordinator::planned
