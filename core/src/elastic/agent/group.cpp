// Group: what is known of the workers, what their messages and deaths change, and how a job ends.
#include "elastic/agent/group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "elastic/assignment_record.hpp"

namespace pliant::elastic {
namespace {

// A generation that cannot hold together is a fault of the machine or the program, not of one worker.
constexpr int64_t kBrokenLimit = 3;

}  // namespace

std::string describe(const ExitStatus& status) {
  if (status.signalled) return fmt::format("was killed by signal {} ({})", status.code, ::strsignal(status.code));
  return fmt::format("exited with code {}{}{}", status.code, status.last_words.empty() ? "" : ": ", status.last_words);
}

int code_of(const Error& error) {
  return static_cast<int>(error.status() == Status::kResourceExhausted ? ExitCode::kUsage : ExitCode::kFailed);
}

Group::Group(GroupOptions options, GroupActions& actions, int64_t committed, std::optional<SnapshotRecord> snapshot)
    : options_(std::move(options)),
      actions_(actions),
      committed_(committed),
      fit_(options_.rates),
      rates_(options_.rates),
      snapshot_(std::move(snapshot)) {
  progress_at_ = actions_.now();
}

// What is known of the workers.

int64_t Group::largest_world(int64_t at_most) const {
  const auto above = options_.micro_batch_of.upper_bound(at_most);
  return above == options_.micro_batch_of.begin() ? 0 : std::prev(above)->first;
}

std::vector<WorkerId> Group::ready_members() const {
  std::vector<WorkerId> ready;
  for (const auto& [id, member] : members_) {
    if (member.ready && !member.finished && member.fenced.empty()) ready.push_back(id);
  }
  // Those that hold most come first and the order of ranks stays, so that a survivor gives its state and work moves
  // little.
  std::stable_sort(ready.begin(), ready.end(), [this](WorkerId a, WorkerId b) {
    const Member& left = members_.at(a);
    const Member& right = members_.at(b);
    if (left.holds != right.holds) return left.holds > right.holds;
    const auto place = [](const Member& m) { return m.rank < 0 ? INT64_MAX : m.rank; };
    return place(left) < place(right);
  });
  return ready;
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
    if (kill.agent || kill.rank != rank) continue;
    armed.push_back({static_cast<int64_t>(i), kill.step, *parse_injection_point(kill.at)});
  }
  return armed;
}

std::vector<InjectedKill> Group::unstruck() const {
  std::vector<InjectedKill> waiting;
  std::copy_if(options_.injections.begin(), options_.injections.end(), std::back_inserter(waiting),
               [](const InjectedKill& kill) { return kill.agent || kill.rank >= 0; });
  return waiting;
}

// Events.

void Group::started(WorkerId worker) {
  members_[worker].since = actions_.now();
}

void Group::received(WorkerId worker, const FromWorker& message) {
  const auto found = members_.find(worker);
  if (found == members_.end()) return;
  std::visit([&](const auto& m) { on(worker, found->second, m); }, message);
}

void Group::on(WorkerId, Member& member, const Hello&) {
  member.hello = true;
  uses_api_ = true;
}

void Group::on(WorkerId worker, Member& member, const Ready& message) {
  if (fingerprint_.empty()) {
    const Result<int64_t> total = actions_.total_steps(message.fingerprint);
    if (!total) return end({static_cast<int>(total.error().exit_code()), "failed", total.error().message()}, true);
    total_steps_ = *total;
    fingerprint_ = message.fingerprint;
  } else if (message.fingerprint != fingerprint_) {
    return end(
        {2, "failed",
         fmt::format(
             "{} sees other data or options than the workers before it (fingerprint {} instead of {}); all workers "
             "must read the same files",
             label(worker), message.fingerprint, fingerprint_)},
        true);
  }
  member.ready = true;
  if (phase_ == Phase::kEnding) {
    member.stopped = true;
    return actions_.send(worker, Stop{});
  }
  const bool saved = committed_ == 0 || (snapshot_ && snapshot_->step == committed_);
  if (committed_ >= total_steps_ && saved) return end({0, "finished", ""}, false);
  if (phase_ == Phase::kStarting) return regroup(reason_);
  const auto now_ready = static_cast<int64_t>(ready_members().size());
  grow_ = largest_world(now_ready) > static_cast<int64_t>(ranks_.size());
}

void Group::on(WorkerId, Member&, const CommIdMade& message) {
  if (message.generation != generation_ || phase_ != Phase::kForming) return;
  for (const WorkerId rank : ranks_) {
    if (members_.at(rank).rank != 0) actions_.send(rank, CommIdShared{generation_, message.id});
  }
}

void Group::on(WorkerId, Member& member, const Formed& message) {
  if (message.generation != generation_ || phase_ != Phase::kForming) return;
  member.formed = true;
  member.holds = committed_;
  for (const WorkerId rank : ranks_) {
    if (!members_.at(rank).formed) return;
  }
  phase_ = Phase::kRunning;
  progress_at_ = actions_.now();
  actions_.event(fmt::format("generation {}: {} {} from step {} ({})", generation_, ranks_.size(),
                             ranks_.size() == 1 ? "rank" : "ranks", committed_, reason_),
                 false);
  try_commit();  // a quick rank's vote may overtake a slow rank's Formed: they come over different sockets
}

void Group::on(WorkerId, Member& member, const Holds& message) {
  member.holds = message.step;
  member.told = true;
  if (phase_ == Phase::kStarting) regroup(reason_);
}

void Group::on(WorkerId worker, Member& member, const Reducing& message) {
  const bool present = phase_ == Phase::kRunning || phase_ == Phase::kForming;
  if (message.generation != generation_ || !present || message.step != committed_) return;
  member.reducing = true;
  const Assignment* const own = assignment();
  if (own == nullptr || digest_of(*own) == message.assignment) return;
  end({3, "failed",
       fmt::format("step {}: the balancer gave {} another assignment than the agent; a balancer must answer the same "
                   "request alike in every process",
                   committed_, label(worker))},
      true);
}

void Group::on(WorkerId, Member& member, const Vote& message) {
  const bool present = phase_ == Phase::kRunning || phase_ == Phase::kForming;
  if (message.generation != generation_ || !present || message.step != committed_) return;
  member.vote = message;
  if (phase_ == Phase::kRunning) try_commit();
}

void Group::on(WorkerId worker, Member&, const Broken& message) {
  if (message.generation != generation_ || (phase_ != Phase::kRunning && phase_ != Phase::kForming)) return;
  const std::string line = fmt::format("{}: a collective failed: {}", label(worker), message.reason);
  actions_.event(line, true);
  actions_.interrupted();
  if (++broken_in_a_row_ >= kBrokenLimit) return end({message.exit_code, "failed", line}, true);
  abort_generation();
  regroup(line);
}

void Group::on(WorkerId worker, Member&, const SnapshotWritten& message) {
  const bool last = phase_ == Phase::kSaving && worker == saver_ && message.step == committed_;
  if (!message.error.empty()) {
    actions_.event(fmt::format("no snapshot of step {}: {}", message.step, message.error), true);
    if (!last) return;
    return end({1, "failed",
                fmt::format("{} is committed, but the snapshot could not be written: {}",
                            committed_ >= total_steps_ ? "every step" : fmt::format("step {}", committed_ - 1),
                            message.error)},
               false);
  }
  const SnapshotRecord record{message.step, message.file};
  if (const auto recorded = actions_.record(record); !recorded) {
    return end({code_of(recorded.error()), "failed", recorded.error().message()}, true);
  }
  snapshot_ = record;
  if (last) end(verdict_when_saved(), false);
}

void Group::on(WorkerId worker, Member&, const Injected& message) {
  const auto i = static_cast<size_t>(message.id);
  if (message.id < 0 || i >= options_.injections.size()) return;
  actions_.event(fmt::format("injected kill strikes {} at step {} ({})", label(worker), options_.injections[i].step,
                             options_.injections[i].at),
                 false);
  options_.injections[i].rank = -1;  // spent
}

void Group::on(WorkerId, Member& member, const Finished&) {
  member.finished = true;
}

void Group::on(WorkerId worker, Member&, const Failed& message) {
  end({message.exit_code, "failed", fmt::format("{}: {}", label(worker), message.reason)}, true);
}

// Losses and the end.

void Group::ended(WorkerId worker, const ExitStatus& status) {
  const auto found = members_.find(worker);
  if (found == members_.end()) return;
  const Member member = found->second;
  const std::string who = label(worker);
  members_.erase(found);
  if (phase_ == Phase::kEnding) {
    if (!member.finished && !member.stopped && pending_->exit_code == 0) {
      actions_.event(fmt::format("{} {} after the last commit", who, describe(status)), true);
    }
    if (members_.empty()) over_ = pending_;
    return;
  }
  if (phase_ == Phase::kSaving && worker != saver_) {
    return actions_.event(fmt::format("{} {} after the last commit", who, describe(status)), true);
  }
  std::string how = fmt::format("{} {}", who, describe(status));
  if (!member.fenced.empty()) how = fmt::format("{} {}", who, member.fenced);
  if (!status.signalled && status.code == 0) how = fmt::format("{} exited with code 0 before the job was done", who);
  if (member.hello && !status.signalled && (status.code == 2 || status.code == 3)) {
    return end({status.code, "failed", how}, true);  // a wrong config or plugin does not get better by trying again
  }
  lost(worker, member, how);
}

void Group::lost(WorkerId, const Member& member, const std::string& how) {
  actions_.event(how, true);
  actions_.interrupted();
  if (phase_ == Phase::kSaving) {
    if (save()) return;
    phase_ = Phase::kStarting;  // the last state is gone: back to the snapshot
  }
  if (options_.on_loss == "stop") return end({1, "failed", how}, true);
  if (options_.on_loss == "replace" && stop_code_ == 0) {
    if (restarts_ < options_.max_restarts) {
      ++restarts_;
      actions_.spawn();
    } else {
      actions_.event(fmt::format("all {} restarts are spent; going on without a replacement", options_.max_restarts),
                     true);
    }
  }
  if (members_.empty()) {
    if (options_.on_loss == "replace") return end({1, "failed", fmt::format("no worker is left; {}", how)}, true);
    return end({75, "no valid world size", fmt::format("no worker is left; {}", how)}, true);
  }
  const bool was_rank = member.rank >= 0 && (phase_ == Phase::kForming || phase_ == Phase::kRunning);
  if (was_rank) abort_generation();
  if (was_rank || phase_ == Phase::kStarting) regroup(how);
}

void Group::request_stop(int exit_code) {
  if (stop_code_ != 0) return;
  stop_code_ = exit_code;
  if (phase_ == Phase::kStarting) end({exit_code, "stopped", "stopped before a step was under way"}, true);
}

void Group::end(Verdict verdict, bool kill_now) {
  if (!pending_) pending_ = std::move(verdict);
  phase_ = Phase::kEnding;
  for (auto& [id, member] : members_) {
    if (kill_now || !member.ready) {
      member.stopped = true;
      actions_.kill(id);
    } else if (!member.stopped) {
      member.stopped = true;
      actions_.send(id, Stop{});
    }
  }
  progress_at_ = actions_.now();
  if (members_.empty()) over_ = pending_;
}

void Group::tick() {
  if (!uses_api_ && !options_.must_attach) return;
  const double now = actions_.now();
  for (auto& [id, member] : members_) {
    if (member.ready || !member.fenced.empty() || now - member.since < options_.start_timeout_s) continue;
    member.fenced = fmt::format("was not ready {} s after its start and was killed ([run] start_timeout_s)",
                                options_.start_timeout_s);
    actions_.kill(id);
  }
  const double waited = now - progress_at_;
  if (waited >= options_.hang_timeout_s) fence_hung(waited);
}

void Group::fence_hung(double waited) {
  progress_at_ = actions_.now();
  std::vector<WorkerId> late;
  for (auto& [id, member] : members_) {
    if (phase_ == Phase::kStarting) {  // only those who were asked what they hold keep the others waiting
      if (member.asked && !member.told && member.fenced.empty()) late.push_back(id);
      continue;
    }
    const bool idle = phase_ == Phase::kEnding ? member.finished : member.rank < 0;
    const bool waits = phase_ == Phase::kRunning   ? member.reducing
                       : phase_ == Phase::kForming ? member.formed
                                                   : phase_ == Phase::kSaving && id != saver_;
    if (!idle && !waits && member.fenced.empty()) late.push_back(id);
  }
  if (late.empty()) {  // all wait for one another: somebody does not run at all, or the collective is stuck
    std::copy_if(ranks_.begin(), ranks_.end(), std::back_inserter(late),
                 [this](WorkerId id) { return actions_.is_stopped(id); });
  }
  if (late.empty() && phase_ != Phase::kEnding && phase_ != Phase::kStarting) {
    actions_.interrupted();
    abort_generation();
    return regroup(fmt::format("no progress for {:.1f} s", waited));
  }
  for (const WorkerId id : late) {
    const auto found = members_.find(id);
    if (found == members_.end()) continue;
    found->second.fenced = fmt::format("made no progress for {:.1f} s and was killed ([run] hang_timeout_s)", waited);
    actions_.kill(id);
  }
}

}  // namespace pliant::elastic
