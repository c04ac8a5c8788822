// Planner: knows the passes that it has seen, and answers the next one from a plan where it has one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "schedule.hpp"
#include "traces.hpp"

namespace pliant::coordinator::planned {

struct PlannerOptions {
  uint64_t traces = 16;
  ScheduleOptions schedule;
};

/// A pass is expected to follow the trace that came after the same passes the last time. Its answers are decided once,
/// from what is whole when it begins, and kept as a plan; a pass that begins the same is answered from it, at the price
/// of a comparison and a copy a call. One that leaves its trace is decided call by call from there on, by the trace of
/// another pass that began so, or, where there is none, by demand. Nothing that is known is forgotten by that.
class Planner {
 public:
  Planner() = default;
  Planner(sdk::Model model, PlannerOptions options);

  void set_parameters(uint32_t module, std::span<const uint32_t> own, std::span<const uint32_t> external);
  void set_costs(std::span<const uint64_t> nanoseconds);
  void begin_pass(bool with_gradient, sdk::Actions& actions);
  void enter(const sdk::Visit& visit, sdk::Actions& actions) { call(call_of(visit, false), actions); }
  void leave(const sdk::Visit& visit, sdk::Actions& actions) { call(call_of(visit, true), actions); }
  void end_pass();
  void end_step(sdk::Actions& actions);
  /// All that is known is forgotten; what is whole stays.
  void drop_trace(sdk::Actions& actions);
  [[nodiscard]] sdk::CoordinatorCounts counts() const;
  /// Bytes of complete gradients that may wait for others: as many as are wished for, as far as the budget spares them.
  [[nodiscard]] uint64_t bucket() const { return options_.schedule.bucket; }
  void save(sdk::Writer& out) const;
  void load(sdk::Reader& in);

 private:
  /// What is whole between two passes, each once. 0: nothing.
  using StateId = uint32_t;
  struct Answer {
    uint32_t end;  ///< of its actions
    int64_t whole_elements;
  };
  struct Plan {
    std::shared_ptr<const Trace> trace;
    std::shared_ptr<const Trace> after;
    std::vector<pliant_action> actions;
    std::vector<Answer> answers;  ///< to begin_pass, then to each call
    StateId begins = 0;
    StateId ends = 0;
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
  void look_what_pays();
  void record(const sdk::Actions& actions);
  /// The schedule is brought to where the plan is.
  void leave_plan();
  /// Later calls are expected to be those of the trace.
  void follow(TraceId trace, Moment now);
  void switch_trace();
  [[nodiscard]] StateId state_of(const Schedule& schedule);
  void forget_plans();
  [[nodiscard]] size_t calls() const { return plan_ != nullptr ? next_ : now_.calls.size(); }

  PlannerOptions options_;
  std::unique_ptr<Layout> layout_;
  TraceSet traces_;
  Succession succession_;
  std::vector<uint64_t> costs_;  ///< empty: bytes

  std::map<PlanKey, Plan> plans_;
  std::vector<Schedule> states_;
  std::multimap<uint64_t, StateId> states_by_digest_;

  // The pass that is under way.
  bool in_pass_ = false;
  const Plan* plan_ = nullptr;  ///< that is followed
  size_t next_ = 0;             ///< call of it
  StateId state_ = 0;           ///< where the pass began; between two passes
  Schedule schedule_;           ///< where no plan is followed
  Trace now_;                   ///< its calls so far, where no plan is followed
  RollingDigest digest_;
  TraceId expected_ = kNoTrace;
  Uses uses_;
  bool records_ = false;  ///< the pass has followed what was expected of it from its begin on
  PlanKey key_{};
  Plan made_;
  uint64_t passes_ = 0;
};

}  // namespace pliant::coordinator::planned
