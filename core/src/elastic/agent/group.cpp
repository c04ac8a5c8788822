// Group: what is known of the workers, and what their messages change.
#include "elastic/agent/group.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <utility>

#include "elastic/assignment_record.hpp"

namespace pliant::elastic {
namespace {

// Collectives of several workers that fail so often without a commit are a fault of the machine or the program.
constexpr int64_t kBrokenLimit = 3;

std::string describe_of(int64_t count, const ExitStatus& status) {
  if (!status.is_known) return "ended (its launcher knows how)";
  if (status.signalled) {
    return fmt::format("{} killed by signal {} ({})", count > 1 ? "were" : "was", status.code,
                       ::strsignal(status.code));
  }
  return fmt::format("exited with code {}{}{}", status.code, status.last_words.empty() ? "" : ": ", status.last_words);
}

}  // namespace

std::string describe(const ExitStatus& status) {
  return describe_of(1, status);
}

bool ended_by_fault(const ExitStatus& status) {
  constexpr std::array kFaults{SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSYS, SIGTRAP};
  return status.signalled ? std::count(kFaults.begin(), kFaults.end(), status.code) > 0 : status.code != 0;
}

bool ended_alike(const ExitStatus& one, const ExitStatus& other) {
  const auto but_numbers = [](std::string words) {
    std::erase_if(words, [](char c) { return c >= '0' && c <= '9'; });
    return words;
  };
  return one.signalled == other.signalled && one.code == other.code &&
         but_numbers(one.last_words) == but_numbers(other.last_words);
}

std::string all_ended_alike(int64_t count, const std::string& one, const ExitStatus& status) {
  const std::string what = count > 1 ? fmt::format("all {} workers {}", count, describe_of(count, status)) : one;
  return what + (count > 1 ? "; all failed the same way at the start, so they are not restarted"
                           : "; it failed at the start, so it is not restarted");
}

WorkerEnd worker_end(const ExitStatus& status) {
  return status.signalled ? WorkerEnd{0, status.code} : WorkerEnd{status.code, 0};
}

JobEnd job_without_ledger(const Error& error, const std::string& what) {
  return job_failed(what + error.message(),
                    error.status() == Status::kResourceExhausted ? Origin::kInput : Origin::kRun);
}

Group::Group(GroupOptions options, GroupActions& actions, int64_t committed, std::optional<SnapshotRecord> snapshot)
    : options_(std::move(options)),
      actions_(actions),
      committed_(committed),
      fit_(options_.rates),
      rates_(options_.rates),
      snapshot_(std::move(snapshot)),
      confirmed_(snapshot_),
      looked_at_(actions.now()) {
  progress_at_ = time();
}

// What is known of the workers.

int64_t Group::largest_world(int64_t at_most) const {
  const auto above = options_.micro_batch_of.upper_bound(at_most);
  return above == options_.micro_batch_of.begin() ? 0 : std::prev(above)->first;
}

bool Group::is_away(WorkerId worker, const Member& member) const {
  return actions_.is_stopped(worker) || (member.asked_at && time() - *member.asked_at >= kAnswerSeconds);
}

std::vector<WorkerId> Group::usable_members(bool barred) const {
  std::vector<WorkerId> usable;
  for (const auto& [id, member] : members_) {
    if (!member.ready || member.finished || !member.fenced.empty() || member.retires) continue;
    if (!barred && time() < member.barred_until) continue;
    if (member.leaves && std::count(owners_.begin(), owners_.end(), id) == 0) continue;
    if (!is_away(id, member)) usable.push_back(id);
  }
  // Those that hold most come first and the order of ranks stays, so that a survivor gives its state and work moves
  // little.
  std::stable_sort(usable.begin(), usable.end(), [this](WorkerId a, WorkerId b) {
    const Member& left = members_.at(a);
    const Member& right = members_.at(b);
    if (left.surely_holds() != right.surely_holds()) return left.surely_holds() > right.surely_holds();
    const auto place = [](const Member& m) { return m.rank < 0 ? INT64_MAX : m.rank; };
    return place(left) < place(right);
  });
  return usable;
}

bool Group::shards_are_there(const std::vector<WorkerId>& usable) const {
  const auto is_there = [&](WorkerId id) { return has_share(id) && std::count(usable.begin(), usable.end(), id) > 0; };
  return std::any_of(owners_.begin(), owners_.end(), is_there) && std::all_of(needed_.begin(), needed_.end(), is_there);
}

bool Group::owners_live() const {
  const auto lives = [this](WorkerId id) { return has_share(id); };
  return std::any_of(owners_.begin(), owners_.end(), lives) && std::all_of(needed_.begin(), needed_.end(), lives);
}

bool Group::has_share(WorkerId worker) const {
  const auto found = members_.find(worker);
  if (found == members_.end()) return false;
  const Member& member = found->second;
  return !member.finished && member.fenced.empty() && member.surely_holds() == committed_;
}

bool Group::is_needed(WorkerId worker) const {
  return needed_.empty() ? std::count(owners_.begin(), owners_.end(), worker) > 0 : needed_.contains(worker);
}

int64_t Group::place_of(WorkerId worker) const {
  const auto at = std::find(owners_.begin(), owners_.end(), worker);
  return at == owners_.end() || !has_share(worker) ? -1 : at - owners_.begin();
}

std::vector<WorkerId> Group::writers() const {
  std::vector<WorkerId> made;
  std::copy_if(owners_.begin(), owners_.end(), std::back_inserter(made),
               [this](WorkerId id) { return has_share(id) && !members_.at(id).cannot_save; });
  const bool all = std::all_of(needed_.begin(), needed_.end(),
                               [&made](WorkerId id) { return std::count(made.begin(), made.end(), id) > 0; });
  return all ? made : std::vector<WorkerId>();
}

bool Group::may_move() const {
  if (!sharded_ || phase_ != Phase::kForming || aborted_) return false;
  return !owners_.empty() && (stay_ > 0 || ranks_ != owners_);
}

std::vector<WorkerId> Group::that_stay(std::vector<WorkerId> workers) const {
  std::erase_if(workers, [this](WorkerId id) { return members_.at(id).leaves; });
  return workers;
}

bool Group::hold_state(const std::vector<WorkerId>& usable) const {
  if (sharded_) return generations_ > 0 && shards_are_there(usable);
  return generations_ > 0 && !usable.empty() && members_.at(usable.front()).surely_holds() == committed_;
}

bool Group::is_restorable() const {
  return snapshot_ && !snapshot_->unconfirmed && snapshot_->step == committed_ && actions_.has_snapshot(*snapshot_);
}

bool Group::others_hold(WorkerId worker) const {
  std::vector<WorkerId> others = usable_members(false);
  others.erase(std::remove(others.begin(), others.end(), worker), others.end());
  return hold_state(others) && largest_world(static_cast<int64_t>(that_stay(others).size())) > 0;
}

bool Group::can_form_without(WorkerId worker) const {
  if (others_hold(worker)) return true;
  const std::vector<WorkerId> usable = that_stay(usable_members(false));
  const auto others = static_cast<int64_t>(usable.size()) - std::count(usable.begin(), usable.end(), worker);
  return generations_ > 0 && is_restorable() && largest_world(others) > 0;
}

std::string Group::label(WorkerId worker) const {
  const auto found = members_.find(worker);
  if (found == members_.end() || found->second.rank < 0) return fmt::format("worker {}", worker);
  return fmt::format("rank {} (worker {})", found->second.rank, worker);
}

std::vector<Injection> Group::injections_for(int64_t rank) const {
  std::vector<Injection> armed;
  for (size_t i = 0; i < options_.injections.size(); ++i) {
    const InjectedKill& kill = options_.injections[i];
    if (kill.agent || kill.leave || kill.rank != rank) continue;
    armed.push_back({static_cast<int64_t>(i), kill.step, *parse_injection_point(kill.at), kill.stop});
  }
  return armed;
}

std::vector<InjectedKill> Group::pending_kills() const {
  std::vector<InjectedKill> waiting;
  std::copy_if(options_.injections.begin(), options_.injections.end(), std::back_inserter(waiting),
               [](const InjectedKill& kill) { return kill.agent || kill.rank >= 0; });
  return waiting;
}

// Events.

void Group::started(WorkerId worker) {
  look();
  newest_ = std::max(newest_, worker);
  members_[worker].since = time();
  members_[worker].origin = worker;
}

void Group::received(WorkerId worker, const FromWorker& message) {
  look();
  const auto found = members_.find(worker);
  if (found == members_.end()) return;
  std::visit([&](const auto& m) { on(worker, found->second, m); }, message);
}

void Group::on(WorkerId, Member& member, const Hello&) {
  member.hello = true;
  uses_api_ = true;
}

void Group::tell_of_shared_devices() {
  std::map<int64_t, std::vector<WorkerId>> workers_of;
  for (const WorkerId id : ranks_) {
    if (members_.at(id).device >= 0) workers_of[members_.at(id).device].push_back(id);
  }
  for (auto& [device, workers] : workers_of) {
    if (workers.size() < 2 || !told_shared_.insert(device).second) continue;
    std::sort(workers.begin(), workers.end());
    actions_.event(fmt::format("workers {} and {} share device {} ({}): there are more workers than devices, or "
                               "[accelerator] device is set",
                               fmt::join(workers.begin(), workers.end() - 1, ", "), workers.back(), device,
                               members_.at(workers.front()).device_name),
                   false);
  }
}

void Group::on(WorkerId, Member&, const CommIdMade& message) {
  if (message.generation != generation_ || phase_ != Phase::kForming) return;
  id_shared_ = true;
  for (const WorkerId rank : ranks_) {
    if (members_.at(rank).rank != 0) actions_.send(rank, CommIdShared{generation_, message.id});
  }
}

void Group::on(WorkerId, Member& member, const Joining& message) {
  if (message.generation != generation_ || member.stage != Stage::kTold) return;
  member.stage = Stage::kJoining;
  if (stop_signal_ == 0 && !pending_) replace_those_held_back();  // this one has not failed as they have
}

void Group::on(WorkerId worker, Member& member, const Copying& message) {
  if (message.in_place) {  // whatever has become of its generation since
    member.holds = -1;
    member.may_hold = true;
  }
  const bool is_end = phase_ == Phase::kSaving && !pending_ && stop_signal_ == 0;
  if (sharded_ && message.in_place && is_end) {  // no generation after it begins at a snapshot: another worker does
    parts_.reset();
    if (!message.given_up) return;  // who lost or left it ends, or is ended
    return fence(worker, fmt::format("gave up between the commit of step {}, the last, and its update, and was killed",
                                     committed_ - 1));
  }
  const bool writes = parts_ && std::count(parts_->writers.begin(), parts_->writers.end(), worker) > 0;
  if (writes && message.in_place && message.generation <= parts_->generation) {  // what it was asked for it has not
    on(worker, member, SnapshotWritten{parts_->step, parts_->file, "it holds a part of a state"});
  }
  if (message.generation == generation_ && member.stage == Stage::kJoining) member.stage = Stage::kCopying;
  const bool is_present = message.generation == generation_ && phase_ == Phase::kForming;
  if (!sharded_ || !message.in_place || is_present) return;
  if (phase_ == Phase::kStarting) return regroup(reason_);
  if (phase_ != Phase::kForming && phase_ != Phase::kRunning) return;
  if (message.given_up && std::exchange(member.gave_up_at, committed_) == committed_) {
    fence(worker,
          fmt::format("gave up twice between the commit of step {} and the next step, and was killed", committed_ - 1));
  }
  abort_generation();  // it goes on with a part that this rank has begun to give away
  regroup({GroupCause::kFault, fmt::format("{} holds an incomplete part of a state", label(worker))});
}

void Group::on(WorkerId worker, Member& member, const Formed& message) {
  if (message.generation != generation_) return;
  // Also where the generation was given up meanwhile; but parts of a state are there once all ranks have theirs.
  if (!sharded_ && (member.may_hold || phase_ == Phase::kForming)) {
    member.holds = committed_;
    member.may_hold = member.is_void = false;
  }
  if (phase_ != Phase::kForming) return;
  if (sharded_ && member.stage < Stage::kFormed) {
    if (shares_of_formed_.empty()) shares_of_formed_ = message.owners;
    if (message.owners != shares_of_formed_) {
      lose_shards();
      return end(job_failed(fmt::format("{} computed another map of owners than the ranks before it", label(worker))),
                 true);
    }
    bytes_of_formed_ += message.bytes_moved;
  }
  member.stage = std::max(member.stage, Stage::kFormed);
  for (const WorkerId rank : ranks_) {
    if (members_.at(rank).stage < Stage::kFormed) return;
  }
  progress_at_ = time();
  if (sharded_) {
    take_over(shares_of_formed_, bytes_of_formed_);
    if (stay_ > 0 || pending_) return regroup(reason_);
  }
  phase_ = Phase::kRunning;
  const auto standing = static_cast<int64_t>(ranks_.size());
  if (standing < (stood_ > 0 ? stood_ : options_.workers)) shrunk_by_ = reason_.text;
  if (standing >= options_.workers) shrunk_by_.clear();
  stood_ = standing;
  actions_.event(fmt::format("generation {}: {} {} from step {} ({})", generation_, ranks_.size(),
                             ranks_.size() == 1 ? "rank" : "ranks", committed_, reason_.text),
                 false);
  try_commit();  // a quick rank's vote may overtake a slow rank's Formed: they come over different sockets
}

void Group::on(WorkerId worker, Member& member, const Holds& message) {
  if (!sharded_) member.holds = member.is_void ? -1 : message.step;
  member.may_hold = false;
  member.asked_at.reset();
  member.answered_at = time();
  if (message.compared && message.step == committed_ && phase_ == Phase::kSaving && saver_ < 0) {
    member.last_state = message.state;
    progress_at_ = time();
    return compare_last_states();
  }
  if (message.step != committed_ && phase_ == Phase::kSaving && saver_ < 0) {  // there is nothing to compare
    std::erase(ranks_, worker);
    return compare_last_states();
  }
  if (phase_ == Phase::kStarting) regroup(reason_);
}

void Group::on(WorkerId, Member& member, const Vote& message) {
  const bool present = phase_ == Phase::kRunning || phase_ == Phase::kForming;
  if (message.generation != generation_ || !present || message.step != committed_) return;
  member.stage = Stage::kVoted;
  member.vote = message;
  member.refused.reset();  // the program goes on
  if (phase_ == Phase::kRunning) try_commit();
}

void Group::on(WorkerId worker, Member& member, const Broken& message) {
  if (sharded_ && is_after_last_step() && message.generation == generation_ && message.cause != BreakCause::kPeerLost) {
    actions_.event(fmt::format("{} reported a failure after the last commit: {}", label(worker), message.reason), true);
    return abort_generation();  // others may wait for its passes
  }
  if (message.generation != generation_ || (phase_ != Phase::kRunning && phase_ != Phase::kForming)) return;
  if (message.cause == BreakCause::kRefused) {  // all workers are alike: no other one, and no other try, takes it
    return end(job_failed(message.reason, Origin::kInput), true);
  }
  if (phase_ == Phase::kRunning && have_parted(false)) {
    put_off_.emplace_back(worker, message);
    return;
  }
  if (message.cause == BreakCause::kPeerLost) {  // most often a process died, which is about to be seen
    member.cut_off = message.reason;
    if (!cut_off_at_) cut_off_at_ = time();
    return;
  }
  const std::string line = fmt::format("{} reported a failure: {}", label(worker), message.reason);
  actions_.event(line, true);
  actions_.interrupted();
  const bool joins = member.holds != committed_;
  // What one rank is short of is its own, whatever others met in between.
  const bool shortage = message.cause == BreakCause::kShortage;
  broken_.push_back({worker, shortage});
  const auto counts = [&](const Break& one) { return shortage ? one.worker == worker : !one.shortage; };
  const bool too_often = std::count_if(broken_.begin(), broken_.end(), counts) >= kBrokenLimit;
  const bool alone = std::all_of(broken_.begin(), broken_.end(),
                                 [&](const Break& one) { return !counts(one) || one.worker == worker; });
  abort_generation();
  // What one meets costs that one. Where nobody holds the state, what they meet one after the other is no one's own.
  const bool others_well = others_hold(worker) || (can_form_without(worker) && !(too_often && !alone));
  const bool common = fenced_for_breaking_ >= kBrokenLimit;
  const JobEnd over = job_failed(line, shortage ? Origin::kPlugin : Origin::kRun);
  if ((joins || (too_often && alone)) && others_well && !common) {
    if (others_hold(worker)) forget_breaks_of(worker);
    ++fenced_for_breaking_;
    fence(worker, fmt::format("cannot take part: {}", message.reason));
  } else if (too_often && alone && bar_joiners(line, false)) {
    forget_breaks_of(worker);  // it goes on as it stood before
  } else if (too_often && alone && !common && retire(worker, member, over)) {
    ++fenced_for_breaking_;
  } else if (too_often || common) {
    return end(over, true);
  }
  regroup({GroupCause::kFault, line});
}

void Group::forget_breaks_of(WorkerId worker) {
  std::erase_if(broken_, [worker](const Break& one) { return one.worker == worker; });
}

void Group::on(WorkerId worker, Member& member, const PartWritten& message) {
  if (!parts_ || parts_->file != message.file || parts_->step != message.step || parts_->assembling) return;
  if (parts_->generation != message.generation) return;  // it was asked again since
  progress_at_ = time();
  std::string error = message.error;
  const auto cut = parts_->cuts.find(worker);
  const bool fits = cut != parts_->cuts.end() && cut->second == message.cut;
  if (error.empty() && !fits) error = "it wrote its part with another map of owners";
  if (error.empty() && !parts_->beside.empty() && parts_->beside.begin()->second != message.beside) {
    error = "the ranks have different learning-rate states or other small state";
  }
  if (!error.empty()) return on(worker, member, SnapshotWritten{message.step, message.file, error});
  std::vector<uint64_t>& digests = parts_->digests;
  if (parts_->beside.empty()) digests.assign(message.digests.size(), 0);
  if (digests.size() != message.digests.size()) digests.clear();
  for (size_t i = 0; i < digests.size(); ++i) digests[i] += message.digests[i];
  parts_->beside[worker] = message.beside;
  if (parts_->beside.size() < parts_->writers.size()) return;
  parts_->assembling = true;
  const bool last = phase_ == Phase::kSaving && message.step == committed_;
  if (is_after_last_step()) have_parted(true);  // some did so without waiting for the others
  actions_.send(parts_->writers.front(),
                Assemble{message.step, message.file, last ? digests : std::vector<uint64_t>{}});
}

void Group::on(WorkerId worker, Member& member, const SnapshotWritten& message) {
  if (sharded_) {
    if (!parts_ || parts_->file != message.file || parts_->step != message.step) return;
    parts_.reset();
  }
  if (member.is_void || disputed_) return;
  const bool last = phase_ == Phase::kSaving && worker == saver_ && message.step == committed_;
  if (message.file != actions_.snapshot_path(message.step)) {  // the run directory was given up since
    if (last && !save()) close();
    return;
  }
  if (!message.error.empty()) {
    actions_.event(fmt::format("no snapshot of step {} from {}: {}", message.step, label(worker), message.error), true);
    if (sharded_ && phase_ == Phase::kStarting && message.step == committed_) give_up_parts();
    if (!sharded_ && !last && member.retires && message.step == committed_) return end(*member.retires, true);
    if (phase_ != Phase::kSaving || (!last && !sharded_)) return;
    member.cannot_save = true;
    if (save()) return;  // another may be able to
    if (!pending_) {
      pending_ = job_failed(fmt::format("{} is committed, but writing the snapshot failed: {}",
                                        has_step(committed_) ? fmt::format("step {}", committed_ - 1) : "every step",
                                        message.error));
    }
    return close();
  }
  if (sharded_ && message.compared) last_state_ = member.last_state = message.state;
  const bool compared = last && last_state_ && member.last_state == last_state_;
  const bool counts = compared || !options_.compare_states || sharded_;
  const bool alone = last || member.retires || ranks_.size() <= 1;  // nobody else could say otherwise
  const SnapshotRecord record{message.step, message.file, compared ? last_state_ : std::nullopt, !counts && !alone};
  const bool known = snapshot_ && snapshot_->step == record.step && snapshot_->file == record.file;
  const bool old = snapshot_ && snapshot_->step > record.step;  // of a rank that was stopped in between
  if (known && !record.unconfirmed) {
    snapshot_->unconfirmed = false;
    if (!unconfirmed_.empty()) unconfirmed_.back().record.unconfirmed = false;
  }
  if (!last && (known || old || record.step > committed_)) return let_retire(worker);
  if (const auto recorded = known ? Result<>{} : actions_.record(record); !recorded) {
    if (!last) return end(job_without_ledger(recorded.error()), true);
    if (pending_) actions_.event(recorded.error().message(), true);
    if (!pending_) pending_ = job_without_ledger(recorded.error());
    if (message.file != actions_.snapshot_path(message.step) && save()) return;
    return close();
  }
  snapshot_ = record;
  unconfirmed_.push_back({record, worker});
  if (counts) confirm_snapshots();
  if (!last) return let_retire(worker);
  if (!pending_) pending_ = end_when_saved();
  close();
}

void Group::on(WorkerId worker, Member&, const Injected& message) {
  const auto i = static_cast<size_t>(message.id);
  if (message.id < 0 || i >= options_.injections.size()) return;
  InjectedKill& one = options_.injections[i];
  actions_.event(
      fmt::format("injected {} of {} at step {} ({})", one.stop ? "stop" : "kill", label(worker), one.step, one.at),
      false);
  one.rank = -1;  // spent
}

void Group::on(WorkerId, Member& member, const Finished& message) {
  member.finished = true;
  memory_.weights = std::max(memory_.weights, message.memory.weights);
  memory_.state = std::max(memory_.state, message.memory.state);
  memory_.sums = std::max(memory_.sums, message.memory.sums);
  memory_.gathered_most = std::max(memory_.gathered_most, message.memory.gathered_most);
  const auto rank_of = [](const sharded::TracedPasses& one) { return std::pair(one.all, one.gathered); };
  if (rank_of(message.passes) > rank_of(traced_passes_)) traced_passes_ = message.passes;
}

}  // namespace pliant::elastic
