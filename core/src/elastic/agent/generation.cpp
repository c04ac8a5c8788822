// Group: how a generation is formed, and how a step of it is committed.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "elastic/agent/group.hpp"
#include "elastic/assignment_record.hpp"
#include "elastic/snapshot_draft.hpp"

namespace pliant::elastic {
namespace {

// A worker that replaces another is waited for at least so long, where nobody holds the state.
constexpr double kStartPatience = 5;

std::string text_of(RowRange rows) {
  if (rows.count == 1) return fmt::format("row {}", rows.first);
  return fmt::format("rows {}..{}", rows.first, rows.first + rows.count - 1);
}

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

void Group::regroup(const std::string& reason) {
  reason_ = reason;
  phase_ = Phase::kStarting;
  cut_off_at_.reset();
  if (pending_) return save_and_close();
  if (sharded_ && generations_ > 0 && !shards_are_there(usable_members(true))) {
    // One that is stopped may continue; a snapshot is as good, and there.
    if (owners_live() && !is_restorable() && stop_code_ == 0) return;
    if (!owners_live() || is_restorable()) lose_shards();
  }
  if (stop_code_ != 0) return stop_now();
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
    for (const WorkerId id : std::exchange(usable, {})) fence(id, "holds a part of a state that nobody holds whole");
  }
  const auto count = static_cast<int64_t>(that_stay(usable).size());
  if (const int64_t world_size = largest_world(count); world_size > 0) return form(usable, world_size, reason);
  const auto leaving =
      std::count_if(members_.begin(), members_.end(), [](const auto& entry) { return entry.second.leaves; });
  if (count + leaving < static_cast<int64_t>(members_.size()) || owed() > 0) return;  // some may still come
  end({75, "no valid world size",
       fmt::format("{} workers are left and no valid world size is that small{}; {}", count, why_not(count), reason)},
      false);
}

void Group::lose_shards() {
  owners_.clear();
  needed_.clear();
  parts_.reset();
  for (auto& [id, member] : members_) {
    member.holds = 0;
    member.may_hold = false;
    member.is_void = false;
  }
}

void Group::take_over(const std::string& owners, int64_t bytes_moved) {
  const auto count = stay_ > 0 ? stay_ : static_cast<int64_t>(ranks_.size());
  for (const WorkerId id : owners_) {
    if (members_.contains(id)) members_.at(id).holds = 0;  // it may have had nothing to give, and no rank
  }
  owners_.assign(ranks_.begin(), ranks_.begin() + count);
  shares_ = owners;
  needed_.clear();
  const auto map = sharded::Ownership::load(shares_);
  for (int64_t i = 0; i < count; ++i) {
    const bool has_none = map && i < map->world_size() && map->chunks_of(static_cast<int32_t>(i)) == 0;
    if (!has_none) needed_.insert(owners_[static_cast<size_t>(i)]);
  }
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Member& member = members_.at(ranks_[i]);
    member.holds = static_cast<int64_t>(i) < count ? committed_ : 0;
    member.may_hold = member.is_void = false;
  }
  if (bytes_moved > 0) {
    bytes_moved_ += bytes_moved;
    actions_.event(fmt::format("{} bytes of the state went to new owners ({})", bytes_moved, reason_), false);
  }
  dismiss_leavers();
}

std::string Group::announce_leavers(int64_t step) {
  std::string who;
  for (InjectedKill& one : options_.injections) {
    if (!one.leave || one.step != step || one.rank < 0 || one.rank >= static_cast<int64_t>(ranks_.size())) continue;
    const WorkerId id = ranks_[static_cast<size_t>(std::exchange(one.rank, -1))];
    const auto others = static_cast<int64_t>(that_stay(ranks_).size()) - 1;
    if (largest_world(others) == 0) {
      actions_.event(fmt::format("{} cannot leave: {} workers would be left and no valid world size is that small{}",
                                 label(id), others, why_not(others)),
                     true);
      continue;
    }
    members_.at(id).leaves = true;
    who += fmt::format("{}{} leaves", who.empty() ? "" : ", ", label(id));
  }
  return who;
}

void Group::keep_leavers() {
  for (auto& [id, member] : members_) {
    if (!member.leaves || member.told_to_stop || member.surely_holds() != committed_) continue;
    member.leaves = false;
    actions_.event(fmt::format("{} stays: nobody else holds the state", label(id)), true);
  }
}

void Group::dismiss_leavers() {
  for (auto& [id, member] : members_) {
    const bool owns = std::count(owners_.begin(), owners_.end(), id) > 0;
    if (!member.leaves || owns || member.told_to_stop || !member.fenced.empty()) continue;
    member.told_to_stop = true;
    actions_.send(id, Stop{});
  }
}

void Group::begin_parts(const std::string& file, const std::vector<WorkerId>& writers) {
  if (file.empty() || writers.empty()) return;
  const auto map = sharded::Ownership::load(shares_);
  parts_ = Parts{committed_, file, writers, generation_, {}, {}, false};
  for (size_t i = 0; map && i < owners_.size(); ++i) {
    parts_->cuts[owners_[i]] = digest_of_cut(map->runs_of(static_cast<int32_t>(i)));
  }
}

std::string Group::why_not(int64_t world_size) const {
  const auto other = options_.other_batch_of.find(world_size);
  if (other == options_.other_batch_of.end()) return {};
  return fmt::format(" (the policy answers a global batch of {} for {}, but a running job keeps its own)",
                     other->second, world_size);
}

// What it is short of, descriptors say, may be had again in a moment: a tick tries on.
void Group::wait_for_rendezvous(const Error& error) {
  const bool first = !refused_by_rendezvous_since_;
  if (first) refused_by_rendezvous_since_ = time();
  const bool for_long = time() - *refused_by_rendezvous_since_ >= options_.hang_timeout_s;
  if (error.status() != Status::kResourceExhausted || for_long) return end({3, "failed", error.message()}, true);
  if (first) actions_.event(fmt::format("{}; trying on", error.message()), true);
}

void Group::form(const std::vector<WorkerId>& usable, int64_t world_size, const std::string& reason) {
  const Result<int64_t> generation = actions_.next_generation(world_size);
  if (!generation) return wait_for_rendezvous(generation.error());
  refused_by_rendezvous_since_.reset();
  const bool has_shards = sharded_ && shards_are_there(usable);
  std::vector<WorkerId> next_ranks = that_stay(usable);
  next_ranks.resize(static_cast<size_t>(world_size));
  const int64_t best = has_shards ? committed_ : members_.at(usable.front()).surely_holds();
  if (snapshot_ && snapshot_->step > best) {
    drop_snapshots("all who held its state were lost before it was compared",
                   [](const Unconfirmed& one) { return one.record.unconfirmed; });
  }
  const bool restore = snapshot_ && snapshot_->step > best;
  if (restore) confirm_snapshots();  // all stand on it from now on
  const int64_t next_step = restore ? snapshot_->step : best;
  if (next_step < committed_) {
    if (const auto recorded = actions_.record(RestartRecord{next_step}); !recorded) {
      return end({code_of(recorded.error()), "failed", recorded.error().message()}, true);
    }
    actions_.event(fmt::format("no worker holds step {}: back to {} {}", committed_,
                               restore ? "the snapshot of step" : "step", next_step),
                   true);
    committed_ = next_step;
    for (auto& [id, member] : members_) {
      if (member.holds > next_step || member.may_hold) fence(id, "holds steps that the job has given up");
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
  const GenerationRecord record{*generation, world_size, next_step, reason};
  if (const auto recorded = stay_ > 0 ? Result<>{} : actions_.record(record); !recorded) {
    return end({code_of(recorded.error()), "failed", recorded.error().message()}, true);
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
    actions_.event(fmt::format("{} is stopped; the group goes on without it until it continues", label(worker)), true);
  }
  member.rank = -1;
  member.stage = Stage::kIdle;
  member.vote.reset();
  member.cut_off.reset();
}

void Group::try_commit() {
  for (const WorkerId rank : ranks_) {
    if (!members_.at(rank).vote) return;
  }
  const Vote& first = *members_.at(ranks_.front()).vote;
  const Result<StepFacts> planned = actions_.facts_of(committed_);
  if (!planned) return end({static_cast<int>(planned.error().exit_code()), "failed", planned.error().message()}, true);
  const StepFacts& facts = *planned;
  for (const WorkerId rank : ranks_) {
    const Vote& vote = *members_.at(rank).vote;
    if (vote.digest != facts.digest || vote.loss_tokens != facts.size.loss_tokens) {
      return end(
          {1, "failed",
           fmt::format(
               "step {}: {} reduced other samples than the plan holds ({} loss tokens instead of {}); not committed",
               committed_, label(rank), vote.loss_tokens, facts.size.loss_tokens)},
          true);
    }
  }
  if (!states_agree()) return;
  const std::string not_finite = what_is_not_finite();
  if (!not_finite.empty() && options_.on_nonfinite != "skip") return stop_at(not_finite);
  CommitRecord record;
  record.step = committed_;
  record.skipped = !not_finite.empty();
  record.generation = generation_;
  record.epoch = facts.epoch;
  record.batch_index = facts.batch_index;
  record.size = facts.size;
  record.digest = first.digest;
  record.loss = first.loss_tokens > 0 ? first.loss_sum / static_cast<double>(first.loss_tokens) : 0;
  record.learning_rate = first.learning_rate;
  if (first.compared) record.state = first.state;
  const Assignment* const shared_out = assignment();
  if (shared_out == nullptr) return;
  record.shares = rows_of_ranks(*shared_out);
  actions_.agent_kill_point(committed_, "vote");
  if (const auto recorded = actions_.record(record); !recorded) {
    return end({code_of(recorded.error()), "failed",
                fmt::format("step {} is not committed: {}", committed_, recorded.error().message())},
               false);
  }
  actions_.agent_kill_point(committed_, "commit");
  if (record.skipped) {
    actions_.event(fmt::format("step {}: {}; its update is left out and its samples are used", committed_, not_finite),
                   true);
  }
  learn_costs();
  finish_step(record);
}

bool Group::states_agree() {
  States states;
  int64_t longest = 0;
  bool compared = true;
  for (const WorkerId rank : ranks_) {
    const Vote& vote = *members_.at(rank).vote;
    states[rank] = vote.state;
    compared = compared && vote.compared;
    longest = std::max(longest, vote.digest_microseconds);
  }
  if (!compared) return true;  // none is, by the job's options
  const std::optional<uint64_t> right = state_of_most(states);
  if (!right) {
    disputed_ = true;
    drop_unconfirmed();
    end({1, "failed",
         fmt::format("step {} is not committed: the ranks began it with different states and none has a majority "
                     "({}). {}",
                     committed_, listed(states), what_a_dispute_means())},
        true);
    return false;
  }
  const bool agree =
      std::all_of(states.begin(), states.end(), [right](const auto& state) { return state.second == *right; });
  if (!agree) {
    if (part_with_others(states, *right, fmt::format("began step {}", committed_))) return false;
    actions_.interrupted();
    abort_generation();
    regroup("some ranks had copied a wrong state");
    return false;
  }
  ++digests_;
  digest_seconds_ += static_cast<double>(longest) * 1e-6;
  last_state_ = right;
  for (const WorkerId rank : ranks_) {
    members_.at(rank).origin = rank;
    members_.at(rank).last_state = right;
  }
  confirm_snapshots_of(ranks_);
  return true;
}

std::optional<uint64_t> Group::state_of_most(const States& states) const {
  std::set<WorkerId> origins;
  std::set<std::pair<WorkerId, uint64_t>> alike;
  std::vector<uint64_t> of_ranks;
  for (const auto& [id, state] : states) {
    origins.insert(members_.at(id).origin);
    alike.emplace(members_.at(id).origin, state);
    of_ranks.push_back(state);
  }
  std::vector<uint64_t> of_origins;
  for (const auto& [origin, state] : alike) of_origins.push_back(state);
  const std::vector<uint64_t>& voices = origins.size() == 1 ? of_ranks : of_origins;
  for (const uint64_t voice : voices) {
    if (2 * std::count(voices.begin(), voices.end(), voice) > static_cast<int64_t>(voices.size())) return voice;
  }
  return std::nullopt;
}

std::string Group::listed(const States& states) const {
  std::string all;
  for (const auto& [id, state] : states) {
    const WorkerId origin = members_.at(id).origin;
    all += fmt::format("{}{}: {:016x}", all.empty() ? "" : ", ", label(id), state);
    if (origin != id) all += fmt::format(", a copy of worker {}'s", origin);
  }
  return all;
}

std::string Group::what_a_dispute_means() const {
  return fmt::format(
      "Whose is right cannot be told; a rank computed otherwise than the others, or left out an update. `pliant run "
      "--resume` goes on from the newest snapshot{}",
      snapshot_ ? fmt::format(", of step {}", snapshot_->step) : ", of which there is none");
}

bool Group::part_with_others(const States& states, uint64_t right, const std::string& when) {
  bool ended = false;
  for (const auto& [id, state] : states) {
    if (state == right) continue;
    Member& member = members_.at(id);
    member.vote.reset();
    member.is_void = true;
    member.holds = -1;
    const auto origin = states.find(member.origin);
    if (member.origin != id && (origin == states.end() || origin->second == state)) {
      actions_.event(
          fmt::format("{} had copied its state from worker {}, whose state is another than that of the other "
                      "ranks; it copies anew",
                      label(id), member.origin),
          true);
    } else {
      fence(id, fmt::format("{} with another state than the other ranks ({:016x} instead of {:016x}) and was ended",
                            when, state, right));
      ended = true;
    }
    const bool wrote = std::any_of(unconfirmed_.begin(), unconfirmed_.end(),
                                   [id = id](const Unconfirmed& one) { return one.writer == id; });
    if (!wrote && !(due_ && due_->writer == id)) continue;
    drop_unconfirmed();
    due_ = Due{committed_, -1};  // one of the others writes it
  }
  return ended;
}

void Group::drop_unconfirmed() {
  for (const Unconfirmed& one : unconfirmed_) actions_.drop_snapshot(one.record);
  if (!unconfirmed_.empty()) snapshot_ = confirmed_;
  unconfirmed_.clear();
}

void Group::drop_snapshots(const std::string& why, const std::function<bool(const Unconfirmed&)>& are_meant) {
  std::erase_if(unconfirmed_, [&](const Unconfirmed& one) {
    if (!are_meant(one)) return false;
    actions_.event(fmt::format("the snapshot of step {} is dropped: {}", one.record.step, why), false);
    actions_.drop_snapshot(one.record);
    save_soon_ = true;
    return true;
  });
  snapshot_ = unconfirmed_.empty() ? confirmed_ : unconfirmed_.back().record;
}

void Group::confirm_snapshots_of(const std::vector<WorkerId>& ranks) {
  drop_snapshots("its writer was lost before its state was compared with that of the other ranks",
                 [&ranks](const Unconfirmed& one) { return std::count(ranks.begin(), ranks.end(), one.writer) == 0; });
  confirm_snapshots();
}

void Group::confirm_snapshots() {
  if (unconfirmed_.empty()) return;
  confirmed_ = unconfirmed_.back().record;
  confirmed_->unconfirmed = false;
  snapshot_ = confirmed_;
  unconfirmed_.clear();
  actions_.confirmed(*confirmed_);
}

void Group::compare_last_states() {
  if (phase_ != Phase::kSaving || saver_ >= 0) return;
  States states;
  for (const WorkerId rank : ranks_) {
    const auto found = members_.find(rank);
    if (found == members_.end() || !found->second.fenced.empty()) continue;
    const Member& member = found->second;
    const bool stopped = member.stopped_at && time() - *member.stopped_at >= kStoppedSeconds;
    if (!member.last_state && !stopped) return;
    if (member.last_state) states[rank] = *member.last_state;
  }
  const std::optional<uint64_t> right = state_of_most(states);
  if (!right && !states.empty()) {
    disputed_ = true;
    drop_unconfirmed();
    const std::string reason = fmt::format(
        "{}, but the ranks ended with different states and none has a majority ({}). {}",
        actions_.has_step(committed_) ? fmt::format("step {} is committed", committed_ - 1) : "every step is committed",
        listed(states), what_a_dispute_means());
    if (pending_) actions_.event(reason, true);
    pending_ = Verdict{1, "failed", reason};
    return close();
  }
  if (right) part_with_others(states, *right, "ended");
  for (const auto& [id, state] : states) {  // the job may be over before they are
    if (state != right) actions_.event(fmt::format("{} {}", label(id), members_.at(id).fenced), true);
  }
  last_state_ = right;
  if (save()) return;
  if (!pending_) pending_ = verdict_when_saved();
  close();
}

std::string Group::what_is_not_finite() const {
  std::string rows;
  bool finite = true;
  for (const WorkerId rank : ranks_) {
    const Vote& vote = *members_.at(rank).vote;
    finite = finite && vote.finite;
    if (vote.not_finite.empty()) continue;
    std::string own;
    for (const RowRange& range : vote.not_finite) own += (own.empty() ? "" : ", ") + text_of(range);
    rows += fmt::format("{}{} on rank {}", rows.empty() ? "" : "; ", own, members_.at(rank).rank);
  }
  if (finite && rows.empty()) return {};
  if (rows.empty()) return "the sum of the gradients of all ranks overflows, although those of the rows are finite";
  return fmt::format("the gradient or the loss of {} has a NaN or an infinity", rows);
}

void Group::stop_at(const std::string& not_finite) {
  const bool again = options_.stopped_before_at == committed_;
  const std::string reason = fmt::format(
      "step {} is not committed: {}{}. Look at the samples of these rows, lower the learning rate, or leave such steps "
      "out with [run] on_nonfinite = \"skip\"",
      committed_, not_finite, again ? ", as at this step when the job ended before" : "");
  if (const auto recorded = actions_.record(NotFiniteRecord{committed_, not_finite}); !recorded) {
    actions_.event(recorded.error().message(), true);
  }
  end({1, "failed", reason}, false);
}

const Assignment* Group::assignment() {
  if (assignment_) return &*assignment_;
  const auto world_size = static_cast<int64_t>(ranks_.size());
  const Sharing how{.world_size = world_size, .micro_batch = options_.micro_batch_of.at(world_size)};
  Result<Assignment> made = actions_.assignment_of(committed_, how, rates_);
  if (made) return &assignment_.emplace(std::move(*made));
  end({static_cast<int>(made.error().exit_code()), "failed", made.error().message()}, true);
  return nullptr;
}

void Group::learn_costs() {
  if (!options_.fit) return;
  for (const WorkerId rank : ranks_) fit_.add(members_.at(rank).vote->share);
  if (!fit_.end_step()) return;
  rates_ = fit_.rates();
  actions_.event(fmt::format("balancer: a token is taken to cost {} and a squared length {}, by the times of the ranks",
                             rates_.per_token, rates_.per_square),
                 false);
}

void Group::finish_step(const CommitRecord& record) {
  Commit commit;
  commit.step = committed_;
  commit.skip = record.skipped;
  commit.rates = rates_;
  ++committed_;
  assignment_.reset();
  last_state_.reset();
  asked_for_states_ = false;
  broken_.clear();
  if (refusal_ && committed_ > refusal_->committed) refusal_.reset();
  fenced_for_breaking_ = 0;
  cut_off_at_.reset();
  stalled_since_.reset();
  progress_at_ = time();
  const bool last = !actions_.has_step(committed_) || stop_code_ != 0;
  const std::string leavers = announce_leavers(record.step);
  const bool grows = may_grow();
  commit.wait = last || grows || !leavers.empty();
  commit.compare = last && options_.compare_states && !sharded_;
  const bool due =
      std::exchange(save_soon_, false) || (options_.snapshot_every > 0 && committed_ % options_.snapshot_every == 0);
  const bool may = due && !(sharded_ && is_writing_parts());  // one that is under way is not overtaken
  const bool writes = (last || may) && !commit.compare;
  if (writes) commit.snapshot = actions_.snapshot_path(committed_);
  if (due && writes) due_ = Due{committed_, ranks_.front()};
  if (sharded_) owners_ = ranks_;
  if (sharded_ && writes) begin_parts(commit.snapshot, ranks_);
  for (const WorkerId rank : ranks_) {
    Member& member = members_.at(rank);
    member.holds = committed_;
    member.vote.reset();
    member.last_state.reset();
    member.stage = Stage::kFormed;
    member.woken = false;
    actions_.send(rank, commit);
  }
  actions_.committed(record, static_cast<int64_t>(ranks_.size()));
  if (last) {
    phase_ = Phase::kSaving;
    saver_ = commit.compare ? -1 : ranks_.front();
  } else if (!leavers.empty()) {
    regroup(leavers);
  } else if (commit.wait) {
    grown_at_ = time();
    regroup("a worker joined");
  }
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
