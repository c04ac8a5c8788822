// Passes that begin and end in the same state get the same answers for ever: they are kept and copied.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule.hpp"

namespace pliant::coordinator::zero3 {

/// A Schedule whose calls are recorded from the start of a pass to the start of the next one, or, where the program
/// ends steps, from the start of a step to that of the next, if it is in the same state then. Later passes are answered
/// from the record, as long as the calls are those of the record; at the first one that is not, the schedule is brought
/// to where the record is and decides again.
class Cycle {
 public:
  Cycle() = default;
  explicit Cycle(Schedule schedule) : schedule_(std::move(schedule)) {}

  void set_parameters(uint32_t module, std::span<const uint32_t> own, std::span<const uint32_t> external);
  void begin_pass(bool with_gradient, sdk::Actions& actions) {
    answer({Kind::kBeginPass, with_gradient, false, 0}, actions);
  }
  void enter(const sdk::Visit& visit, sdk::Actions& actions) {
    if (mode_ == Mode::kDeciding) return schedule_.enter(visit, actions);
    answer({Kind::kEnter, visit.backward, visit.recompute, visit.module}, actions);
  }
  void leave(const sdk::Visit& visit, sdk::Actions& actions) {
    if (mode_ == Mode::kDeciding) return schedule_.leave(visit, actions);
    answer({Kind::kLeave, visit.backward, visit.recompute, visit.module}, actions);
  }
  void end_pass(sdk::Actions& actions) { answer({Kind::kEndPass, false, false, 0}, actions); }
  void release_all(sdk::Actions& actions) { answer({Kind::kReleaseAll, false, false, 0}, actions); }
  void drop_trace(sdk::Actions& actions) { answer({Kind::kDropTrace, false, false, 0}, actions); }
  [[nodiscard]] sdk::CoordinatorCounts counts() const;
  /// Calls are answered from a record now, as long as they are those of it.
  [[nodiscard]] bool copies() const { return mode_ == Mode::kCopying; }

 private:
  enum class Kind : uint8_t { kBeginPass, kEnter, kLeave, kEndPass, kReleaseAll, kDropTrace };
  struct Call {
    Kind kind;
    bool flag;  ///< with gradient; backward
    bool recompute;
    uint32_t module;
    bool operator==(const Call&) const = default;
  };
  /// As small as it can be: a record of all answers is to stay in the cache.
  struct Answer {
    Call call;
    uint32_t begin;  ///< in actions_
    uint32_t count;
  };
  enum class Mode { kDeciding, kRecording, kCopying };

  [[gnu::always_inline]] void answer(const Call& call, sdk::Actions& actions) {
    if (mode_ == Mode::kCopying) {
      const Answer& known = answers_[next_];
      if (known.call == call) {
        actions.append(std::span(actions_.data() + known.begin, known.count));
        if (++next_ == answers_.size()) next_ = 0;
        return;
      }
    }
    decide(call, actions);
  }
  void decide(const Call& call, sdk::Actions& actions);
  void perform(const Call& call, sdk::Actions& actions);
  void record(const Call& call, std::span<const pliant_action> made);
  void start_of_pass();
  void catch_up();
  void give_up();

  Schedule schedule_;
  Mode mode_ = Mode::kDeciding;
  Schedule start_;  ///< of the record
  std::vector<Answer> answers_;
  std::vector<sdk::CoordinatorCounts> counts_;  ///< after each answer
  std::vector<pliant_action> actions_;
  sdk::CoordinatorCounts counts_at_start_{};
  size_t next_ = 0;     ///< the answer that comes next while copying
  size_t pass_at_ = 0;  ///< the first answer of the pass that is recorded
  uint32_t passes_of_step_ = 0;
  bool releases_ = false;      ///< the program ends steps
  bool has_released_ = false;  ///< since a pass began
  uint32_t failures_ = 0;      ///< records that led nowhere, since one did
  uint32_t pause_ = 0;         ///< passes before the next record
};

}  // namespace pliant::coordinator::zero3
