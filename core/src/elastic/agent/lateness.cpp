// Group: who is late, stopped or cut off from the others, and what is done about it. Whoever holds the others up is
// dealt with by name; nobody is killed for waiting.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "elastic/agent/group.hpp"

namespace pliant::elastic {
namespace {

// Time between two looks at the clock counts up to here: in the rest the agent itself was stopped, or its disk or the
// machine was slow. Ticks come more often.
constexpr double kMostBetweenLooks = 0.5;
// Idle workers are asked for a sign of life so often.
constexpr double kProbeSeconds = 1;
// The death of a process reaches the agent sooner than that after its peers saw it.
constexpr double kDeathNoticeSeconds = 1;
constexpr int64_t kMostStrikes = 3;

std::string why_overdue(const GroupMember::Busy& busy, double now) {
  return fmt::format("was busy for {:.1f} s with {}, for which it had announced {:.1f} s at most, and was killed",
                     now - busy.since, busy.what, busy.at_most_s);
}

}  // namespace

void Group::look() {
  const double now = actions_.now();
  unwatched_ += std::max(0.0, now - looked_at_ - kMostBetweenLooks);
  looked_at_ = now;
}

void Group::tick() {
  look();
  if (!uses_api_ && !options_.must_attach) return;
  if (!members_.empty() || actions_.owed() == 0)
    nobody_since_.reset();
  else if (!nobody_since_)
    nobody_since_ = time();
  if (nobody_since_ && time() - *nobody_since_ >= options_.start_timeout_s && !over_) {
    over_ = job_failed(fmt::format("cannot start a worker for {} s", options_.start_timeout_s));
    return;
  }
  show_busy();
  start_those_due();
  give_those_up_that_ended();
  fence_those_not_started();
  note_stopped();
  compare_last_states();
  if (phase_ == Phase::kStarting && uses_api_) regroup(reason_);  // somebody may have continued, or waited long enough
  if (parted_at_ && phase_ == Phase::kRunning) return;            // about to end
  if (phase_ == Phase::kRunning) probe_idle();
  const auto stands = [this] { return phase_ == Phase::kForming || phase_ == Phase::kRunning; };
  if (stands()) leave_out_stopped();
  if (waits_for_move()) give_up_move();
  if (stands() && cut_off_at_ && time() - *cut_off_at_ >= kDeathNoticeSeconds) resolve_cut_off();
  const double waited = time() - progress_at_;
  if (waited >= options_.hang_timeout_s && !waits_for_busy()) fence_hung(waited);
}

void Group::fence(WorkerId worker, const std::string& why) {
  Member& member = members_.at(worker);
  if (!member.fenced.empty()) return;
  member.fenced = why;
  actions_.kill(worker);
}

void Group::fence_those_not_started() {
  for (auto& [id, member] : members_) {
    if (member.ready || is_excused(member)) continue;
    if (time() - std::max(member.since, member.busy_until) < options_.start_timeout_s) continue;
    if (member.busy) {
      fence(id, why_overdue(*member.busy, time()));
      continue;
    }
    fence(id, fmt::format("was not ready {} s after its start and was killed ([run] start_timeout_s)",
                          options_.start_timeout_s));
  }
}

void Group::note_stopped() {
  std::vector<WorkerId> writers;  // of the last snapshot, that are not done
  if (phase_ == Phase::kSaving && saver_ >= 0) writers = who_holds_up();
  for (auto& [id, member] : members_) {
    if (!actions_.is_stopped(id)) {
      member.stopped_at.reset();
      continue;
    }
    if (!member.stopped_at) member.stopped_at = time();
    const double stopped = time() - *member.stopped_at;
    if (phase_ == Phase::kEnding && stopped >= kStoppedSeconds) actions_.kill(id);
    const bool is_saving = phase_ == Phase::kSaving && std::count(writers.begin(), writers.end(), id) > 0;
    if (is_saving && stopped >= kStoppedSeconds && !member.cannot_save) {
      member.cannot_save = true;
      if (!save()) actions_.wake(id);
    }
    // The job waits for its state.
    const bool last_holder = phase_ == Phase::kStarting && generations_ > 0 && member.holds == committed_;
    if (last_holder && stopped >= kStoppedSeconds) wake_last_holder(id, member, stopped_members());
    if (member.left_out && stopped >= options_.hang_timeout_s && !wake_last_holder(id, member, {id})) {
      fence(id, fmt::format("was stopped for {:.1f} s and was killed ([run] hang_timeout_s)", stopped));
    }
  }
}

void Group::probe_idle() {
  for (auto& [id, member] : members_) {
    const bool idle = member.ready && !member.finished && member.fenced.empty() && member.rank < 0;
    if (idle && time() - member.answered_at >= kProbeSeconds) ask(id, member);
  }
}

void Group::leave_out_stopped() {
  for (const WorkerId id : ranks_) {
    Member& member = members_.at(id);
    const bool joins = phase_ == Phase::kForming && member.holds != committed_;  // the others stand without it
    const double patience = joins ? 0 : kStoppedSeconds;
    if (!member.stopped_at || time() - std::max(*member.stopped_at, progress_at_) < patience) continue;
    if (waits_for_move() && !member.woken) {  // the state would be lost with it
      member.woken = true;
      member.stopped_at.reset();
      progress_at_ = time();
      actions_.wake(id);
      continue;
    }
    if (stop_signal_ == 0 && !pending_ && !can_form_without(id)) continue;
    const std::string line = fmt::format("{} is stopped", label(id));
    actions_.interrupted();
    abort_generation();
    return regroup({GroupCause::kFault, line});
  }
}

void Group::give_up_move() {
  const auto moves = [this](WorkerId id) { return members_.at(id).stage > Stage::kJoining; };
  if (time() - progress_at_ < kStoppedSeconds || std::any_of(ranks_.begin(), ranks_.end(), moves)) return;
  for (const WorkerId id : ranks_) {
    if (members_.at(id).stage >= Stage::kJoining) continue;
    const std::string line = fmt::format("{} did not join", label(id));
    abort_generation();
    return regroup({GroupCause::kFault, line});
  }
}

void Group::resolve_cut_off() {
  std::string line;
  for (const WorkerId id : ranks_) {
    const Member& member = members_.at(id);
    if (line.empty() && member.cut_off) line = fmt::format("{} lost its peers: {}", label(id), *member.cut_off);
  }
  if (!stalled_since_) stalled_since_ = *cut_off_at_;
  cut_off_at_.reset();
  actions_.event(line, true);
  actions_.interrupted();
  if (time() - *stalled_since_ >= options_.hang_timeout_s) {
    abort_generation();
    return end(job_failed(line), true);
  }
  // All processes live, so the link does not. If the group stood before somebody joined, that one is let go first.
  bar_joiners(line, true);
  abort_generation();
  regroup({GroupCause::kFault, line});
}

bool Group::bar_joiners(const std::string& line, bool costs) {
  if (phase_ != Phase::kForming) return false;
  bool barred = false;
  for (const WorkerId id : ranks_) {
    Member& member = members_.at(id);
    if (member.holds == committed_ || !others_hold(id)) continue;
    barred = true;
    if (++member.strikes >= kMostStrikes && costs) fence(id, fmt::format("cannot join the group: {}", line));
    member.barred_until = time() + kStoppedSeconds * static_cast<double>(member.strikes);
  }
  return barred;
}

bool Group::retire(WorkerId worker, Member& member, const JobEnd& over) {
  const bool goes_on = stop_signal_ == 0 && !pending_;
  const bool is_replaced = options_.on_loss == "replace" && restarts_ < options_.max_restarts && goes_on;
  if (!is_replaced) return false;
  const std::string file = actions_.snapshot_path(committed_);
  const std::vector<WorkerId> all = sharded_ ? writers() : std::vector<WorkerId>();
  const bool holds = sharded_ ? !all.empty() : member.surely_holds() == committed_;
  const bool can_save = committed_ > 0 && holds && !file.empty();
  // A snapshot has all of it, or of a sharded job nothing more can be saved: it goes on as after a death.
  if (is_restorable() || (sharded_ && !can_save)) {
    fence(worker, fmt::format("cannot take part: {}", over.reason));
    return true;
  }
  if (!can_save) return false;
  member.retires = over;
  if (sharded_) {
    actions_.event(fmt::format("the ranks write a snapshot of step {}, then {} is replaced", committed_, label(worker)),
                   false);
    ask_for_parts(file, all);
  } else {
    actions_.event(fmt::format("{} writes a snapshot of step {} and is then replaced", label(worker), committed_),
                   false);
    actions_.send(worker, Save{committed_, file});
  }
  return true;
}

void Group::let_retire(WorkerId writer) {
  if (phase_ != Phase::kStarting || !is_restorable()) return;
  bool any = false;
  for (const auto& [id, member] : members_) {
    if (!member.retires || !member.fenced.empty() || (!sharded_ && id != writer)) continue;
    any = true;
    fence(id, sharded_ ? "is replaced now that the state is saved" : "has saved its state and is replaced");
  }
  if (any) regroup(reason_);
}

void Group::give_up_parts() {
  for (const auto& [id, member] : members_) {
    if (member.retires) fence(id, fmt::format("cannot take part: {}", member.retires->reason));
  }
}

std::vector<WorkerId> Group::stopped_members() const {
  std::vector<WorkerId> stopped;
  for (const auto& [id, member] : members_) {
    if (member.stopped_at) stopped.push_back(id);
  }
  return stopped;
}

std::vector<WorkerId> Group::furthest_behind() const {
  std::vector<WorkerId> late;
  Stage least = Stage::kVoted;
  Stage most = Stage::kIdle;
  for (const WorkerId id : ranks_) {
    const Member& member = members_.at(id);
    most = std::max(most, member.stage);
    if (member.stage == Stage::kTold && !id_shared_ && member.rank != 0) continue;  // waits for the id from rank 0
    if (member.stage < least) late.clear();
    least = std::min(least, member.stage);
    if (member.stage == least) late.push_back(id);
  }
  // A stopped one may well be what others of its stage wait for, and is it surely when all are at one stage.
  std::vector<WorkerId> stopped;
  std::copy_if(late.begin(), late.end(), std::back_inserter(stopped),
               [this](WorkerId id) { return actions_.is_stopped(id); });
  const bool all_alike = ranks_.size() > 1 && least == most && late.size() == ranks_.size();
  if (!stopped.empty() || all_alike) return stopped;
  return late;
}

std::vector<WorkerId> Group::who_holds_up() const {
  if (phase_ == Phase::kForming || phase_ == Phase::kRunning) return furthest_behind();
  std::vector<WorkerId> late;
  const auto retires = [](const auto& entry) { return entry.second.retires.has_value(); };
  const bool saves_to_replace = phase_ == Phase::kStarting && std::any_of(members_.begin(), members_.end(), retires);
  if (parts_ && (phase_ == Phase::kSaving || saves_to_replace)) {
    if (parts_->assembling) return {parts_->writers.front()};
    std::copy_if(parts_->writers.begin(), parts_->writers.end(), std::back_inserter(late),
                 [this](WorkerId id) { return !parts_->beside.contains(id); });
    return late;
  }
  if (phase_ == Phase::kSaving && saver_ >= 0) return {saver_};
  if (phase_ == Phase::kSaving) {
    std::copy_if(ranks_.begin(), ranks_.end(), std::back_inserter(late),
                 [this](WorkerId id) { return members_.contains(id) && !members_.at(id).last_state; });
    return late;
  }
  for (const auto& [id, member] : members_) {
    const bool starting = phase_ == Phase::kStarting;
    const bool writes = id == data_writer_ && !is_planned_;
    if (starting ? writes || (member.ready && is_away(id, member)) : !member.finished) late.push_back(id);
  }
  return late;
}

bool Group::wake_last_holder(WorkerId worker, Member& member, const std::vector<WorkerId>& late) {
  const bool counts = snapshot_ && !snapshot_->unconfirmed;
  const bool saved = member.holds <= 0 || (counts && snapshot_->step >= member.holds);
  if (member.woken || saved || !actions_.is_stopped(worker)) return false;
  if (sharded_ && !owners_.empty() && !is_needed(worker)) return false;
  const bool another = !sharded_ && std::any_of(members_.begin(), members_.end(), [&](const auto& entry) {
    const bool well = entry.second.fenced.empty() && !actions_.is_stopped(entry.first) &&
                      std::count(late.begin(), late.end(), entry.first) == 0;
    return well && entry.second.ready && entry.second.holds >= member.holds;
  });
  if (another) return false;
  save_soon_ = true;
  actions_.event(
      fmt::format("continuing {}, which is stopped: step {} would be lost with it", label(worker), member.holds - 1),
      true);
  // Somebody stopped them all, it seems: so are the others, once.
  for (auto& [id, stopped] : members_) {
    if (!stopped.fenced.empty() || stopped.woken || !actions_.is_stopped(id)) continue;
    stopped.woken = true;
    stopped.stopped_at.reset();
    actions_.wake(id);
  }
  return true;
}

// A program may have much to do when its training is over. Nobody but its user can tell, who hears of it once.
void Group::name_those_that_stay(double waited) {
  for (auto& [id, member] : members_) {
    if (std::exchange(member.stays, true)) continue;
    actions_.event(
        fmt::format("{} is done but has not ended for {:.0f} s; the job waits for it (two signals end the job)",
                    label(id), waited),
        true);
  }
}

void Group::on(WorkerId, Member& member, const BusyWith& message) {
  if (member.busy) {
    member.busy_until = time();
    const bool has_ranks = phase_ == Phase::kForming || phase_ == Phase::kRunning;
    if (member.rank >= 0 || !has_ranks) progress_at_ = time();
  }
  member.busy.reset();
  if (!message.what.empty()) member.busy = Member::Busy{message.what, message.at_most_s, time()};
  show_busy();
}

bool Group::is_busy(const Member& member) {
  const bool is_with_program =
      member.stage == Stage::kIdle || member.stage == Stage::kTold || member.stage == Stage::kFormed;
  return member.busy && is_with_program;
}

bool Group::is_excused(const Member& member) const {
  return is_busy(member) && time() - member.busy->since < member.busy->at_most_s;
}

std::vector<WorkerId> Group::those_who_count() const {
  if (phase_ == Phase::kForming || phase_ == Phase::kRunning) return ranks_;
  std::vector<WorkerId> all;
  for (const auto& [id, member] : members_) all.push_back(id);
  return all;
}

bool Group::waits_for_busy() const {
  const std::vector<WorkerId> counted = those_who_count();
  return std::any_of(counted.begin(), counted.end(), [this](WorkerId id) {
    const auto found = members_.find(id);
    return found != members_.end() && found->second.fenced.empty() && is_excused(found->second);
  });
}

std::vector<WorkerId> Group::overdue() const {
  std::vector<WorkerId> late = those_who_count();
  std::erase_if(late, [this](WorkerId id) {
    const auto found = members_.find(id);
    return found == members_.end() || found->second.finished || !is_busy(found->second);
  });
  return late;
}

void Group::show_busy() {
  std::vector<BusyWorker> shown;
  for (const auto& [id, member] : members_) {
    if (!is_busy(member)) continue;
    shown.push_back({id, member.rank, member.busy->what, time() - member.busy->since, member.busy->at_most_s});
  }
  const bool told_before = std::exchange(shows_busy_, !shown.empty());
  if (told_before || shows_busy_) actions_.busy(shown);
}

void Group::fence_hung(double waited) {
  progress_at_ = time();
  std::vector<WorkerId> late = overdue();  // who is busy for too long holds up all others, whatever they wait in
  if (late.empty()) late = who_holds_up();
  if (phase_ == Phase::kEnding && late.empty()) return name_those_that_stay(waited);
  bool dealt_with = false;
  for (const WorkerId id : late) {
    const auto found = members_.find(id);
    if (found == members_.end()) continue;
    dealt_with = true;
    if (wake_last_holder(id, found->second, late)) return;  // who is late then, has run all the time
    if (is_busy(found->second)) {
      fence(id, why_overdue(*found->second.busy, time()));
      continue;
    }
    fence(id, fmt::format("made no progress for {:.1f} s and was killed ([run] hang_timeout_s)", waited));
  }
  if (dealt_with || (phase_ != Phase::kForming && phase_ != Phase::kRunning)) return;
  const std::string line = fmt::format("no progress for {:.1f} s", waited);  // all wait for one another
  actions_.interrupted();
  if (!stalled_since_) {
    stalled_since_ = time();
  } else if (time() - *stalled_since_ >= options_.hang_timeout_s) {
    abort_generation();
    return end(job_failed(line), true);
  }
  abort_generation();
  regroup({GroupCause::kFault, line});
}

}  // namespace pliant::elastic
