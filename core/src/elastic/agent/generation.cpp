// Group: how a generation is formed, and how a step of it is committed.
#include <fmt/format.h>

#include <algorithm>

#include "elastic/agent/group.hpp"
#include "elastic/assignment_record.hpp"
#include "elastic/snapshot.hpp"

namespace pliant::elastic {

void Group::abort_generation() {
  for (const WorkerId rank : ranks_) {
    if (members_.contains(rank)) actions_.send(rank, Abort{generation_});
  }
}

// Nobody is known to hold the last commit. Somebody may hold it all the same: ask before anything is given up.
bool Group::must_ask(const std::vector<WorkerId>& ready) {
  if (generations_ == 0 || ready.empty() || members_.at(ready.front()).holds == committed_) return false;
  bool waiting = false;
  for (const WorkerId id : ready) {
    Member& member = members_.at(id);
    if (member.told) continue;
    if (!member.asked) {
      actions_.send(id, Tell{});
      progress_at_ = actions_.now();
    }
    member.asked = waiting = true;
  }
  return waiting;
}

void Group::regroup(const std::string& reason) {
  reason_ = reason;
  phase_ = Phase::kStarting;
  if (pending_) return;
  if (stop_code_ != 0) {
    if (generations_ == 0 || !save()) end({stop_code_, "stopped", "stopped between two generations"}, false);
    return;
  }
  const std::vector<WorkerId> ready = ready_members();
  const bool all_ready = ready.size() == members_.size();
  const bool state_survives = !ready.empty() && members_.at(ready.front()).holds == committed_ && generations_ > 0;
  // With nobody to go on from, everybody starts together.
  if (!all_ready && !state_survives) return;
  if (must_ask(ready)) return;
  const int64_t world_size = largest_world(static_cast<int64_t>(ready.size()));
  if (world_size > 0) return form(ready, world_size, reason);
  if (all_ready) {
    end({75, "no valid world size",
         fmt::format("{} workers are left and no valid world size is that small{}; {}", ready.size(),
                     why_not(static_cast<int64_t>(ready.size())), reason)},
        false);
  }
}

std::string Group::why_not(int64_t world_size) const {
  const auto other = options_.other_batch_of.find(world_size);
  if (other == options_.other_batch_of.end()) return {};
  return fmt::format(" (the policy answers a global batch of {} for {}, but a running job keeps its own)",
                     other->second, world_size);
}

void Group::form(std::vector<WorkerId> ready, int64_t world_size, const std::string& reason) {
  const Result<int64_t> generation = actions_.next_generation(world_size);
  if (!generation) return end({3, "failed", generation.error().message()}, true);
  const int64_t best = members_.at(ready.front()).holds;
  const bool restore = snapshot_ && snapshot_->step > best;
  const int64_t next_step = restore ? snapshot_->step : best;
  if (next_step < committed_) {
    if (const auto recorded = actions_.record(RestartRecord{next_step}); !recorded) {
      return end({code_of(recorded.error()), "failed", recorded.error().message()}, true);
    }
    actions_.event(fmt::format("no worker holds step {}: back to {} {}", committed_,
                               restore ? "the snapshot of step" : "step", next_step),
                   true);
    committed_ = next_step;
  }
  if (const auto recorded = actions_.record(GenerationRecord{*generation, world_size, next_step, reason}); !recorded) {
    return end({code_of(recorded.error()), "failed", recorded.error().message()}, true);
  }
  generation_ = *generation;
  ++generations_;
  phase_ = Phase::kForming;
  progress_at_ = actions_.now();
  grow_ = told_of_wait_ = false;
  assignment_.reset();
  Form form;
  form.generation = generation_;
  form.world_size = world_size;
  form.next_step = next_step;
  form.micro_batch = options_.micro_batch_of.at(world_size);
  form.rates = rates_;
  ranks_.assign(ready.begin(), ready.begin() + world_size);
  form.copy_state = restore || next_step == 0 || std::any_of(ranks_.begin(), ranks_.end(), [&](WorkerId id) {
                      return members_.at(id).holds != next_step;
                    });
  for (size_t i = 0; i < ready.size(); ++i) {
    Member& member = members_.at(ready[i]);
    const bool ranked = static_cast<int64_t>(i) < world_size;
    member.rank = ranked ? static_cast<int64_t>(i) : -1;
    member.formed = member.reducing = member.told = member.asked = false;
    member.vote.reset();
    Form own = form;
    own.rank = member.rank;
    own.wants_state = i != 0 && (restore || next_step == 0 || member.holds != next_step);
    own.restore = restore && i == 0 ? snapshot_->file : "";
    own.injections = injections_for(member.rank);
    actions_.send(ready[i], own);
  }
}

void Group::try_commit() {
  for (const WorkerId rank : ranks_) {
    if (!members_.at(rank).vote) return;
  }
  const Vote& first = *members_.at(ranks_.front()).vote;
  const StepFacts facts = actions_.facts_of(committed_);
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
  CommitRecord record;
  record.step = committed_;
  record.generation = generation_;
  record.epoch = facts.epoch;
  record.batch_index = facts.batch_index;
  record.size = facts.size;
  record.digest = first.digest;
  record.loss = first.loss_tokens > 0 ? first.loss_sum / static_cast<double>(first.loss_tokens) : 0;
  record.learning_rate = first.learning_rate;
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
  learn_costs();
  finish_step(record);
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
  commit.rates = rates_;
  ++committed_;
  assignment_.reset();
  broken_in_a_row_ = 0;
  progress_at_ = actions_.now();
  const bool last = committed_ >= total_steps_ || stop_code_ != 0;
  commit.wait = last || may_grow();
  const bool due = options_.snapshot_every > 0 && committed_ % options_.snapshot_every == 0;
  if (due || last) commit.snapshot = snapshot_file(committed_).string();
  for (const WorkerId rank : ranks_) {
    Member& member = members_.at(rank);
    member.holds = committed_;
    member.vote.reset();
    member.reducing = false;
    actions_.send(rank, commit);
  }
  actions_.committed(record, static_cast<int64_t>(ranks_.size()), total_steps_);
  if (last) {
    phase_ = Phase::kSaving;
    saver_ = ranks_.front();
  } else if (commit.wait) {
    grown_at_ = actions_.now();
    regroup("a worker joined");
  }
}

bool Group::may_grow() {
  if (!grow_) return false;
  const double left = grown_at_ ? *grown_at_ + options_.min_resize_interval_s - actions_.now() : 0;
  if (left > 0 && !told_of_wait_) {
    actions_.event(fmt::format("a worker is ready and joins in {:.0f} s (min_time of the elasticity policy)", left),
                   false);
  }
  told_of_wait_ = left > 0;
  return left <= 0;
}

bool Group::save() {
  const std::vector<WorkerId> ready = ready_members();
  if (ready.empty() || members_.at(ready.front()).holds != committed_) return false;
  phase_ = Phase::kSaving;
  saver_ = ready.front();
  progress_at_ = actions_.now();
  actions_.send(saver_, Save{committed_, snapshot_file(committed_).string()});
  return true;
}

Verdict Group::verdict_when_saved() const {
  if (committed_ >= total_steps_) return {0, "finished", ""};
  return {stop_code_, "stopped", fmt::format("stopped after step {}", committed_)};
}

}  // namespace pliant::elastic
