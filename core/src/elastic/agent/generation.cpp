// Group: how a generation is formed.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "elastic/agent/group.hpp"
#include "elastic/run_directory.hpp"

namespace pliant::elastic {
namespace {

// A worker that replaces another is waited for at least so long, where nobody holds the state.
constexpr double kStartPatience = 5;

}  // namespace

void Group::abort_generation() {
  aborted_ = true;
  for (const WorkerId rank : ranks_) {
    if (members_.contains(rank)) actions_.send(rank, Abort{generation_});
  }
}

void Group::ask(WorkerId worker, Member& member) {
  if (member.asked_at) return;
  member.asked_at = time();
  actions_.send(worker, Tell{});
}

// A worker may have copied the last commit and not have come to say so, or may hold it and be stopped.
bool Group::somebody_else_may_hold() {
  bool may_hold = false;
  for (auto& [id, member] : members_) {
    if (!member.ready || member.finished || !member.fenced.empty()) continue;
    if (member.holds != committed_ && !member.may_hold) continue;
    if (!may_hold && !member.asked_at) progress_at_ = time();
    ask(id, member);
    may_hold = true;
  }
  return may_hold;
}

// With nobody to go on from, everybody starts together; but nobody waits for one that is stopped, or, later than at the
// job's start, that takes far longer than the others took.
bool Group::starters_are_due() const {
  const double patience = std::max(kStartPatience, 3 * slowest_start_);
  return std::any_of(members_.begin(), members_.end(), [&](const auto& entry) {
    const Member& member = entry.second;
    if (!member.fenced.empty()) return generations_ == 0;  // a fresh one follows
    if (member.ready || member.finished) return false;
    const double stopped_for_long = generations_ == 0 ? kStoppedSeconds : 0;
    if (member.stopped_at && time() - *member.stopped_at >= stopped_for_long) return false;
    return generations_ == 0 || time() - member.since < patience;
  });
}

void Group::regroup(const GroupReason& reason) {
  reason_ = reason;
  phase_ = Phase::kStarting;
  cut_off_at_.reset();
  if (pending_) return save_and_close();
  if (sharded_ && generations_ > 0 && !shards_are_there(usable_members(true))) {
    // One that is stopped may continue; a snapshot is as good, and there.
    if (owners_live() && !is_restorable() && stop_signal_ == 0) return;
    if (!owners_live() || is_restorable()) lose_shards();
  }
  if (stop_signal_ != 0) return stop_now();
  if (!sharded_ && !hold_state(usable_members(true))) keep_leavers();
  std::vector<WorkerId> usable = usable_members(false);
  const bool enough = hold_state(usable) && largest_world(static_cast<int64_t>(that_stay(usable).size())) > 0;
  if (!enough) usable = usable_members(true);  // what broke before is tried again before anything is given up
  if (!hold_state(usable)) {
    if (!sharded_ && generations_ > 0 && !is_restorable() && somebody_else_may_hold()) return;
    if (starters_are_due()) return;
  }
  if (!is_planned_ && !usable.empty()) return begin_job(usable);
  // A part of a copy begins nothing: fresh ones do.
  if (!snapshot_ && !usable.empty() && members_.at(usable.front()).surely_holds() < 0) {
    const std::string why = fmt::format("holds a part of a state that no worker holds completely: {}",
                                        reason.text.empty() ? "the copy was not finished" : reason.text);
    for (const WorkerId id : std::exchange(usable, {})) fence(id, why);
  }
  const auto count = static_cast<int64_t>(that_stay(usable).size());
  if (const int64_t world_size = largest_world(count); world_size > 0) return form(usable, world_size, reason);
  const auto leaving =
      std::count_if(members_.begin(), members_.end(), [](const auto& entry) { return entry.second.leaves; });
  if (count + leaving < static_cast<int64_t>(members_.size()) || owed() > 0) return;  // some may still come
  end(job_without_world_size(fmt::format("{} workers are left, fewer than the smallest valid world size{}; {}", count,
                                         why_not(count), reason.text),
                             reason.worker),
      false);
}

std::string Group::why_not(int64_t world_size) const {
  const auto other = options_.other_batch_of.find(world_size);
  if (other == options_.other_batch_of.end()) return {};
  return fmt::format(" (the policy plans global batch {} for {}, but a running job keeps its own)", other->second,
                     world_size);
}

// What it is short of, descriptors say, may be had again in a moment: a tick tries on.
void Group::wait_for_rendezvous(const Error& error) {
  const bool first = !refused_by_rendezvous_since_;
  if (first) refused_by_rendezvous_since_ = time();
  const bool for_long = time() - *refused_by_rendezvous_since_ >= options_.hang_timeout_s;
  if (error.status() != Status::kResourceExhausted || for_long)
    return end(job_failed(error.message(), Origin::kPlugin), true);
  if (first) actions_.event(fmt::format("{}; retrying", error.message()), true);
}

void Group::form(const std::vector<WorkerId>& usable, int64_t world_size, const GroupReason& reason) {
  const Result<int64_t> generation = actions_.next_generation(world_size);
  if (!generation) return wait_for_rendezvous(generation.error());
  refused_by_rendezvous_since_.reset();
  parted_at_.reset();
  const bool has_shards = sharded_ && shards_are_there(usable);
  std::vector<WorkerId> next_ranks = that_stay(usable);
  next_ranks.resize(static_cast<size_t>(world_size));
  const int64_t best = has_shards ? committed_ : members_.at(usable.front()).surely_holds();
  if (snapshot_ && snapshot_->step > best) {
    drop_snapshots("all workers with its state were lost before it was compared",
                   [](const Unconfirmed& one) { return one.record.unconfirmed; });
  }
  const bool restore = snapshot_ && snapshot_->step > best;
  if (restore) confirm_snapshots();  // all stand on it from now on
  const int64_t next_step = restore ? snapshot_->step : best;
  if (next_step < committed_) {
    if (const auto recorded = actions_.record(RestartRecord{next_step}); !recorded) {
      return end(job_without_ledger(recorded.error()), true);
    }
    actions_.event(fmt::format("no worker holds step {}: going back to {} {}", committed_,
                               restore ? "the snapshot of step" : "step", next_step),
                   true);
    committed_ = next_step;
    if (ended_ && ended_->step > next_step) ended_.reset();
    std::erase_if(evaluations_, [next_step](const auto& entry) { return entry.first > next_step; });
    for (auto& [id, member] : members_) {
      if (member.holds > next_step || member.may_hold) fence(id, "holds steps that the job has discarded");
    }
  }
  stay_ = 0;
  if (has_shards && !restore) {  // those who own a part of the state and get no rank come along to give it away
    for (const WorkerId id : owners_) {
      const bool comes = is_needed(id) && place_of(id) >= 0 && std::count(usable.begin(), usable.end(), id) > 0;
      if (comes && std::count(next_ranks.begin(), next_ranks.end(), id) == 0) next_ranks.push_back(id);
    }
    if (static_cast<int64_t>(next_ranks.size()) > world_size) stay_ = world_size;
  }
  const GenerationRecord record{*generation, world_size, next_step, reason.text, {}, reason.cause};
  if (const auto recorded = stay_ > 0 ? Result<>{} : actions_.record(record); !recorded) {
    return end(job_without_ledger(recorded.error()), true);
  }
  generation_ = *generation;
  if (stay_ == 0) ++generations_;
  bytes_of_formed_ = 0;
  shares_of_formed_.clear();
  phase_ = Phase::kForming;
  progress_at_ = time();
  told_of_wait_ = id_shared_ = aborted_ = false;
  assignment_.reset();
  Form form;
  form.generation = generation_;
  form.world_size = static_cast<int64_t>(next_ranks.size());
  form.next_step = next_step;
  form.micro_batch = options_.micro_batch_of.at(world_size);
  form.rates = rates_;
  // One of the present state comes with the next commit, as it does where nothing has happened.
  if (const auto last = actions_.evaluation_of(next_step - 1)) form.evaluation = *last;
  if (const auto own = actions_.evaluation_of(next_step); own && own->step == next_step) found_ = own;
  if (has_shards && !restore) {
    form.owners = shares_;
    form.stay = stay_ > 0 ? stay_ : form.world_size;
    for (const WorkerId id : next_ranks) {
      form.was.push_back(place_of(id));
      if (form.was.back() < 0) form.copy_state = true;
      if (form.was[static_cast<size_t>(form.donor)] < 0) form.donor = static_cast<int64_t>(form.was.size()) - 1;
    }
  } else {
    owners_.clear();  // they begin anew
    needed_.clear();
    parts_.reset();
  }
  if (!restore) ask_for_due_snapshot(usable.front());
  for (auto& [id, member] : members_) leave(id, member, std::count(usable.begin(), usable.end(), id) > 0);
  ranks_ = next_ranks;
  tell_of_shared_devices();
  form.copy_state = sharded_
                        ? form.copy_state
                        : (restore || next_step == 0 || std::any_of(ranks_.begin(), ranks_.end(), [&](WorkerId id) {
                             return members_.at(id).holds != next_step;
                           }));
  const auto wants_state = [&](WorkerId id) {
    return !sharded_ && id != usable.front() && (restore || next_step == 0 || members_.at(id).holds != next_step);
  };
  form.compare = options_.compare_states && !sharded_ && (due_ || !unconfirmed_.empty());
  Member& donor = members_.at(usable.front());
  if (restore) donor.origin = usable.front();
  for (const WorkerId id : ranks_) {
    if (wants_state(id)) members_.at(id).origin = donor.origin;
    form.compare = form.compare || members_.at(id).origin != id;
  }
  for (const WorkerId id : usable) {
    Member& member = members_.at(id);
    const auto at = std::find(ranks_.begin(), ranks_.end(), id);
    const bool ranked = at != ranks_.end();
    member.rank = ranked ? at - ranks_.begin() : -1;
    member.stage = ranked ? Stage::kTold : Stage::kIdle;
    member.asked_at.reset();
    member.answered_at = time();
    Form own = form;
    own.rank = member.rank;
    own.wants_state =
        sharded_ ? ranked && !form.was.empty() && form.was[static_cast<size_t>(member.rank)] < 0 : wants_state(id);
    member.may_hold = ranked && (own.wants_state || member.holds != next_step);
    own.restore = restore && (member.rank == 0 || sharded_) ? snapshot_->file : "";
    own.injections = injections_for(member.rank);
    if (options_.trace) own.trace = RunDirectory::trace_of(id);
    if (sharded_) own.visits = RunDirectory::visits_of(id);
    actions_.send(id, own);
  }
  dismiss_leavers();
}

// It is asked before it hears of the generation, so that it writes first.
void Group::ask_for_due_snapshot(WorkerId holder) {
  if (sharded_ || !due_ || (snapshot_ && snapshot_->step >= due_->step)) return due_.reset();
  const auto writer = members_.find(due_->writer);
  if (writer != members_.end() && writer->second.fenced.empty()) return;  // it writes, or says that it cannot
  const std::string file = actions_.snapshot_path(committed_);
  if (file.empty()) return;
  due_->writer = holder;
  actions_.send(holder, Save{committed_, file});
}

void Group::leave(WorkerId worker, Member& member, bool usable) {
  if (usable) {
    member.left_out = false;
  } else if (!member.left_out && member.ready && member.fenced.empty() && actions_.is_stopped(worker)) {
    member.left_out = true;
    actions_.event(fmt::format("{} is stopped; the group continues without it until it runs again", label(worker)),
                   true);
  }
  member.rank = -1;
  member.stage = Stage::kIdle;
  member.vote.reset();
  member.cut_off.reset();
}

bool Group::may_grow() {
  if (members_.size() == ranks_.size()) return false;
  const auto usable = static_cast<int64_t>(that_stay(usable_members(false)).size());
  if (largest_world(usable) <= static_cast<int64_t>(ranks_.size())) return false;
  const double left = grown_at_ ? *grown_at_ + options_.min_resize_interval_s - time() : 0;
  if (left > 0 && !told_of_wait_) {
    actions_.event(fmt::format("a worker is ready and joins in {:.0f} s (min_time of the elasticity policy)", left),
                   false);
  }
  told_of_wait_ = left > 0;
  return left <= 0;
}

}  // namespace pliant::elastic
