// Records of a pass: made, closed, followed and left.
#include "cycle.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace pliant::coordinator::zero3 {
namespace {

/// Records are tried at once so often, then after pauses that double up to so many passes.
constexpr uint32_t kQuickTries = 4;
constexpr uint32_t kLongestPause = 64;
/// Passes after the first one of a step.
constexpr uint32_t kLongestRecord = 16;

}  // namespace

void Cycle::perform(const Call& call, sdk::Actions& actions) {
  switch (call.kind) {
    case Kind::kBeginPass:
      return schedule_.begin_pass(call.flag, actions);
    case Kind::kEnter:
      return schedule_.enter({call.module, call.flag, call.recompute, {}}, actions);
    case Kind::kLeave:
      return schedule_.leave({call.module, call.flag, call.recompute, {}}, actions);
    case Kind::kEndPass:
      return schedule_.end_pass(actions);
    case Kind::kReleaseAll:
      has_released_ = releases_ = true;
      return schedule_.release_all(actions);
    case Kind::kDropTrace:
      return schedule_.drop_trace(actions);
  }
}

void Cycle::decide(const Call& call, sdk::Actions& actions) {
  if (mode_ == Mode::kCopying) catch_up();
  const size_t before = actions.written().size();
  try {
    perform(call, actions);
  } catch (...) {
    if (mode_ == Mode::kRecording) give_up();
    throw;
  }
  if (mode_ == Mode::kRecording) record(call, actions.written().subspan(before));
  const bool may_start = call.kind == Kind::kBeginPass || call.kind == Kind::kEndPass;
  if (may_start && schedule_.at_start()) start_of_pass();
}

void Cycle::record(const Call& call, std::span<const pliant_action> made) {
  if (!schedule_.complete() || actions_.size() + made.size() > std::numeric_limits<uint32_t>::max()) return give_up();
  answers_.push_back({call, static_cast<uint32_t>(actions_.size()), static_cast<uint32_t>(made.size())});
  counts_.push_back(schedule_.counts());
  actions_.insert(actions_.end(), made.begin(), made.end());
}

/// Closes the record that ends here, or begins one. Of a program that releases everything at the end of its steps, a
/// record is a step: its passes begin in other states than its first one, and a record of one would lead into the next.
void Cycle::start_of_pass() {
  const bool begins_step = std::exchange(has_released_, false);
  passes_of_step_ = begins_step ? 0 : passes_of_step_ + 1;
  const bool by_steps = releases_ && passes_of_step_ < kLongestRecord;
  const bool may_close = begins_step || !by_steps;
  if (mode_ == Mode::kRecording) {
    const bool visited = std::any_of(answers_.begin() + static_cast<std::ptrdiff_t>(pass_at_), answers_.end(),
                                     [](const Answer& answer) { return answer.call.kind == Kind::kEnter; });
    // seed resets at the end of a pass: the next begins there, begin_pass says nothing
    if (!visited && !begins_step) return;
    if (may_close && schedule_.same_state(start_)) {
      mode_ = Mode::kCopying;
      next_ = 0;
      failures_ = 0;
      return;
    }
    pass_at_ = answers_.size();
    if (!may_close) return;
    give_up();
  }
  if (!may_close) return;
  if (pause_ > 0) {
    --pause_;
    return;
  }
  mode_ = Mode::kRecording;
  start_ = schedule_;
  counts_at_start_ = schedule_.counts();
  answers_.clear();
  counts_.clear();
  actions_.clear();
  pass_at_ = 0;
}

void Cycle::give_up() {
  mode_ = Mode::kDeciding;
  if (++failures_ > kQuickTries) {
    pause_ = std::min(kLongestPause, uint32_t{1} << std::min(failures_ - kQuickTries, 6U));
  }
}

/// The calls of the record up to here, once more; what they answer is known.
void Cycle::catch_up() {
  const size_t done = next_;
  give_up();
  schedule_ = start_;
  std::vector<pliant_action> room(8 * schedule_.parameter_count() + 64);
  for (size_t i = 0; i < done; ++i) {
    pliant_action_list list{sizeof(pliant_action_list), 0, room.size(), 0, room.data()};
    sdk::Actions actions(list);
    perform(answers_[i].call, actions);
  }
}

void Cycle::set_parameters(uint32_t module, std::span<const uint32_t> own, std::span<const uint32_t> external) {
  if (mode_ == Mode::kCopying) catch_up();
  if (mode_ == Mode::kRecording) give_up();
  schedule_.set_parameters(module, own, external);
}

sdk::CoordinatorCounts Cycle::counts() const {
  if (mode_ != Mode::kCopying) return schedule_.counts();
  return next_ == 0 ? counts_at_start_ : counts_[next_ - 1];
}

}  // namespace pliant::coordinator::zero3
