// Group: what is done when a worker is lost, and how a job ends. No state is thrown away that a snapshot could keep.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "elastic/agent/group.hpp"
#include "pliant/exit_code.hpp"

namespace pliant::elastic {
namespace {

constexpr int64_t kMostDoublings = 5;       // 32 s between two tries
constexpr double kAlikeAtStartSeconds = 5;  // for other workers to end as the first did at its start

/// What a worker refuses that ended so: its config or a plugin; nullopt: nothing.
std::optional<Origin> refusal_of(const ExitStatus& status) {
  return status.signalled ? std::nullopt : origin_of(status.code);
}

}  // namespace

// Losses.

void Group::ended(WorkerId worker, const ExitStatus& status) {
  look();
  const auto found = members_.find(worker);
  if (found == members_.end()) return;
  const Member member = found->second;
  const std::string who = label(worker);
  members_.erase(found);
  if (!member.finished) lost_since_.insert(worker);
  if (phase_ == Phase::kEnding) {
    if (!member.finished && !member.told_to_stop && is_done(*pending_)) {
      actions_.event(fmt::format("{} {} after the last commit", who, describe(status)), true);
    }
    if (members_.empty()) finish_job();
    return;
  }
  const auto lives = [this](WorkerId id) { return members_.contains(id) && members_.at(id).fenced.empty(); };
  const bool compares = phase_ == Phase::kSaving && saver_ < 0;
  const bool others = !compares || std::any_of(ranks_.begin(), ranks_.end(), lives);
  const bool is_writer = parts_ && std::count(parts_->writers.begin(), parts_->writers.end(), worker) > 0;
  const bool has_written = is_writer && parts_->assembling && worker != parts_->writers.front();
  const bool is_missed = sharded_ && std::count(owners_.begin(), owners_.end(), worker) > 0 && !has_written;
  if (is_writer && !has_written) parts_.reset();
  if (phase_ == Phase::kSaving && worker != saver_ && others && !is_missed) {
    ++lost_while_saving_;
    const std::string how = member.fenced.empty() ? describe(status) + " after the last commit" : member.fenced;
    if (!member.is_void) actions_.event(fmt::format("{} {}", who, how), true);
    return compare_last_states();
  }
  if (member.leaves && member.told_to_stop) {
    return actions_.event(fmt::format("{} has left", who), false);
  }
  std::string how = fmt::format("{} {}", who, describe(status));
  if (!member.fenced.empty()) how = fmt::format("{} {}", who, member.fenced);
  if (!status.signalled && status.code == 0) how = fmt::format("{} exited with code 0 before the job was done", who);
  const std::optional<Origin> refuses = member.hello ? refusal_of(status) : std::nullopt;
  const bool attaches = member.hello || options_.must_attach;
  const bool fails = attaches && member.fenced.empty() && ended_by_fault(status) && options_.on_loss != "stop";
  if (!was_ready_ && stop_signal_ == 0 && (refuses || fails)) return ended_at_start(status, how, refuses);
  const bool by_itself = refuses && member.ready && member.fenced.empty() && phase_ != Phase::kSaving;
  if (by_itself && stop_signal_ == 0 && refuses_for_good(worker, member, *refuses)) {
    actions_.interrupted();
    abort_generation();
    return end(job_failed(how, *refuses, worker_end(status)), true);
  }
  lost(member, how, member.fenced.empty() ? std::optional(worker_end(status)) : std::nullopt, refuses);
}

// What all meet at their start does not get better by trying again, but it may be that only this worker met it.
void Group::ended_at_start(const ExitStatus& status, const std::string& how, std::optional<Origin> refuses) {
  const WorkerEnd worker = worker_end(status);
  if (refuses && !refused_) refused_ = job_failed(how, *refuses, worker);
  const bool is_like_all =
      static_cast<int64_t>(unsaid_.size()) == unreplaced_ && (!alike_ || ended_alike(*alike_, status));
  ++unreplaced_;
  if (!alike_) {
    alike_ = status;
    alike_since_ = time();
  }
  unsaid_.push_back(how);
  if (refuses && options_.on_loss == "stop") {
    unsaid_.clear();
    return end(*refused_, true);
  }
  if (!is_like_all) say_how_they_ended();
  if (!members_.empty() || owed() > 0) return;
  if (is_like_all) {
    const std::string first = std::exchange(unsaid_, {}).front();
    return end(job_failed(all_ended_alike(unreplaced_, first, *alike_), refuses.value_or(Origin::kRun), worker), true);
  }
  if (refused_) return end(*refused_, true);
  if (options_.on_loss == "replace") replace_those_that_ended();
  if (!members_.empty() || owed() > 0) return;
  const std::string reason = fmt::format("no workers are left; {}", how);
  if (options_.on_loss == "replace") return end(job_failed(reason, Origin::kRun, worker), true);
  end(job_without_world_size(reason, worker), true);
}

void Group::say_how_they_ended() {
  for (const std::string& how : std::exchange(unsaid_, {})) actions_.event(how, true);
}

void Group::replace_those_that_ended() {
  say_how_they_ended();
  alike_.reset();
  for (; unreplaced_ > 0; --unreplaced_) {
    if (options_.on_loss == "replace") replace(false);
  }
}

void Group::give_those_up_that_ended() {
  const bool is_late = held_back_ > 0 && time() - held_back_since_ >= kAlikeAtStartSeconds;
  if (is_late && stop_signal_ == 0 && !pending_) replace_those_held_back();
  if (!alike_ || time() - alike_since_ < kAlikeAtStartSeconds || phase_ != Phase::kStarting) return;
  say_how_they_ended();
  if (!refused_ && stop_signal_ == 0 && !pending_) replace_those_that_ended();
}

// Ranks that refuse the same thing at the same time are one refusal: the machine may have been short of something then.
// What names options of the config is no shortage; once steps were made with it another world size may still do.
bool Group::refuses_for_good(WorkerId worker, const Member& member, Origin origin) {
  std::optional<Refused> what;
  if (member.refused && member.refused->origin == origin) what = member.refused;
  if (what && !what->options.empty() && !has_committed_) return true;
  const bool alike = refusal_ && refusal_->origin == origin && refusal_->what == what;
  if (!alike) refusal_ = Refusal{origin, what, newest_, generation_, committed_};
  return worker > refusal_->newest || (member.stage > Stage::kTold && generation_ > refusal_->generation);
}

void Group::lost(const Member& member, const std::string& how, std::optional<WorkerEnd> worker,
                 std::optional<Origin> refuses) {
  actions_.event(how, stop_signal_ == 0);
  actions_.interrupted();
  if (phase_ == Phase::kSaving) {
    if (save()) return;
    if (pending_) return close();
    phase_ = Phase::kStarting;  // the last state is gone: back to the snapshot
    for (; lost_while_saving_ > 0; --lost_while_saving_) {
      if (stop_signal_ == 0 && options_.on_loss == "replace") replace(false);
    }
  }
  const bool was_rank = member.rank >= 0 && (phase_ == Phase::kForming || phase_ == Phase::kRunning);
  if (was_rank) abort_generation();
  if (stop_signal_ == 0 && !pending_) {
    if (options_.on_loss == "stop") return end(job_failed(how, Origin::kRun, worker), true);
    const bool has_failed = member.ready && worker && worker->exit_code != 0;
    if (options_.on_loss == "replace" && has_failed && may_hold_back(member)) {
      if (held_back_++ == 0) held_back_since_ = time();
    } else if (options_.on_loss == "replace") {
      replace(!member.ready);
    }
    if (members_.empty() && owed() == held_back_) {
      const std::string reason = fmt::format(
          "{}; {}",
          held_back_ > 0 ? "all workers failed in the first step, so they are not restarted" : "no workers are left",
          how);
      const Origin origin = refuses.value_or(Origin::kRun);
      if (options_.on_loss == "replace" || refuses) return end(job_failed(reason, origin, worker), true);
      return end(job_without_world_size(reason, worker), true);
    }
  }
  if (was_rank || phase_ == Phase::kStarting) regroup({GroupCause::kLoss, how, worker});
}

// What all ranks meet in their first step is the program's, and others would meet it, too. A rank that has formed may
// be in it before the last one has.
bool Group::may_hold_back(const Member& member) const {
  const bool is_in_step = phase_ == Phase::kRunning || (phase_ == Phase::kForming && member.stage == Stage::kFormed);
  return !has_committed_ && !has_replaced_ && (held_back_ > 0 || (is_in_step && ranks_.size() > 1));
}

void Group::replace_those_held_back() {
  if (held_back_ == 0) return;
  for (; held_back_ > 0; --held_back_) replace(false);
  has_replaced_ = true;
}

void Group::replace(bool too_early) {
  if (restarts_ >= options_.max_restarts) {
    return actions_.event(
        fmt::format("all {} restarts are used; continuing without a replacement", options_.max_restarts), true);
  }
  ++restarts_;
  // Before any was ready it is most likely the program itself that fails: nobody wants to wait for that.
  if (!too_early || !was_ready_) return actions_.spawn();
  const double wait = std::ldexp(1.0, static_cast<int>(std::min(early_deaths_++, kMostDoublings)));
  starts_due_.push_back(time() + wait);
  actions_.event(fmt::format("a replacement starts in {:.0f} s", wait), false);
}

void Group::start_those_due() {
  if (stop_signal_ != 0 || pending_) starts_due_.clear();
  const auto due = std::partition(starts_due_.begin(), starts_due_.end(), [this](double at) { return time() < at; });
  const auto count = starts_due_.end() - due;
  starts_due_.erase(due, starts_due_.end());
  for (auto i = count; i > 0; --i) actions_.spawn();
}

int64_t Group::owed() const {
  return actions_.owed() + static_cast<int64_t>(starts_due_.size()) + held_back_;
}

// The end.

void Group::request_stop(int signal) {
  look();
  if (stop_signal_ != 0) return;
  stop_signal_ = signal;
  const bool forms = phase_ == Phase::kForming && !may_move();  // what moves comes to its owners first
  if (forms) abort_generation();
  if (forms || phase_ == Phase::kStarting) stop_now();
}

void Group::fail(JobEnd failure) {
  look();
  end(std::move(failure), false);
}

void Group::stop_now() {
  if (is_unsaved() && save()) return;
  end(job_stopped(stop_signal_, generations_ == 0 ? "stopped before the first step"
                                                  : fmt::format("stopped after step {}", committed_)),
      generations_ == 0);
}

bool Group::is_unsaved() const {
  if (committed_ == 0 || disputed_) return false;
  return !snapshot_ || snapshot_->step != committed_ || !actions_.has_snapshot(*snapshot_);
}

bool Group::save() {
  const std::string file = actions_.snapshot_path(committed_);
  if (generations_ == 0 || file.empty()) return false;
  if (sharded_) return save_shards(file);
  if (compare_before_saving()) return true;
  const auto can_save = [this](const Member& member, bool surely) {
    const bool holds = member.holds == committed_ && !member.may_hold;
    const bool is_right = !last_state_ || member.last_state == last_state_;  // one that was stopped was not compared
    const bool counts = surely ? holds && is_right : holds || member.may_hold;
    return member.ready && !member.finished && member.fenced.empty() && !member.cannot_save && counts;
  };
  std::vector<WorkerId> usable = usable_members(true);
  for (const auto& [id, member] : members_) {  // a stopped one is better than none
    if (std::count(usable.begin(), usable.end(), id) == 0) usable.push_back(id);
  }
  const auto first = [&](bool surely) {
    return std::find_if(usable.begin(), usable.end(), [&](WorkerId id) { return can_save(members_.at(id), surely); });
  };
  auto found = first(true);
  if (found == usable.end()) found = first(false);  // it says so if it holds something else
  if (found == usable.end()) return false;
  phase_ = Phase::kSaving;
  saver_ = *found;
  progress_at_ = time();
  if (actions_.is_stopped(saver_)) actions_.wake(saver_);
  actions_.send(saver_, Save{committed_, file});
  return true;
}

bool Group::compare_before_saving() {
  if (!options_.compare_states || last_state_ || asked_for_states_) return false;
  std::vector<WorkerId> holders = usable_members(true);
  std::erase_if(holders, [this](WorkerId id) { return members_.at(id).surely_holds() != committed_; });
  if (holders.size() < 2) return false;
  asked_for_states_ = true;
  phase_ = Phase::kSaving;
  saver_ = -1;
  progress_at_ = time();
  ranks_ = holders;
  for (const WorkerId id : ranks_) {
    members_.at(id).last_state.reset();
    actions_.send(id, Tell{true});
  }
  return true;
}

bool Group::save_shards(const std::string& file) {
  const std::vector<WorkerId> all = writers();
  if (all.empty()) return false;
  phase_ = Phase::kSaving;
  saver_ = all.front();
  ask_for_parts(file, all);
  return true;
}

JobEnd Group::end_when_saved() const {
  if (!actions_.has_step(committed_)) return {};
  if (ended_ && ended_->step <= committed_) return job_ended_early(ended_->reason);
  return job_stopped(stop_signal_, fmt::format("stopped after step {}", committed_));
}

void Group::end(JobEnd how, bool kill) {
  say_how_they_ended();
  if (!pending_) {
    pending_ = std::move(how);
    kill_at_end_ = kill || (options_.kill_when_failed && is_broken_off(*pending_));
  }
  save_and_close();
}

void Group::save_and_close() {
  if (phase_ == Phase::kSaving) return;  // what the writer says closes
  if (phase_ != Phase::kEnding) {
    if (is_unsaved() && may_move()) return;
    abort_generation();  // nobody waits for one that is told to stop before it
    if (is_unsaved() && save()) return;
  }
  close();
}

void Group::close() {
  phase_ = Phase::kEnding;
  for (auto& [id, member] : members_) {
    if (kill_at_end_ || !member.ready) {
      member.told_to_stop = true;
      actions_.kill(id);
    } else if (!member.told_to_stop) {
      member.told_to_stop = true;
      actions_.send(id, Stop{});
    }
  }
  progress_at_ = time();
  if (members_.empty()) finish_job();
}

}  // namespace pliant::elastic
