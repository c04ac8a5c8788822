// Group: how a step of a generation is committed.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "elastic/agent/group.hpp"
#include "elastic/assignment_record.hpp"
#include "sharded/visit_differences.hpp"

namespace pliant::elastic {
namespace {

/// Ranks that have parted are named so long after it was first seen.
constexpr double kPartedSeconds = 0.25;

std::string text_of(RowRange rows) {
  if (rows.count == 1) return fmt::format("row {}", rows.first);
  return fmt::format("rows {}..{}", rows.first, rows.first + rows.count - 1);
}

}  // namespace

void Group::try_commit() {
  for (const WorkerId rank : ranks_) {
    const auto& member = members_.at(rank);
    if (!member.vote || !member.fenced.empty()) return;  // what was killed ends, whatever it sent before
  }
  const Vote& first = *members_.at(ranks_.front()).vote;
  const Result<StepFacts> planned = actions_.facts_of(committed_);
  if (!planned) return end(job_failed(planned.error()), true);
  const StepFacts& facts = *planned;
  for (const WorkerId rank : ranks_) {
    const Vote& vote = *members_.at(rank).vote;
    if (vote.digest != facts.digest || vote.loss_tokens != facts.size.loss_tokens) {
      return end(job_failed(fmt::format(
                     "step {}: the ranks used other samples than planned ({} loss tokens instead of {}); not committed",
                     committed_, vote.loss_tokens, facts.size.loss_tokens)),
                 true);
    }
  }
  if (voters_have_parted()) return;
  if (!rates_agree()) return;
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
  record.metrics = metrics_of_votes();
  record_evaluations();  // all ranks have gone on from there
  actions_.agent_kill_point(committed_, "vote");
  if (const auto recorded = actions_.record(record); !recorded) {
    return end(job_without_ledger(recorded.error(), fmt::format("step {} is not committed: ", committed_)), false);
  }
  actions_.agent_kill_point(committed_, "commit");
  if (record.skipped) {
    actions_.event(fmt::format("step {}: {}; its update is skipped, its samples count as used", committed_, not_finite),
                   true);
  }
  learn_costs();
  const std::string reason = reason_to_end();
  finish_step(record, reason);
}

void Group::compare_visits(bool at_once) {
  look();
  if (is_after_last_step()) {
    have_parted(at_once);
    return;
  }
  if (phase_ != Phase::kRunning || have_parted(at_once)) return;
  for (const auto& [worker, message] : std::exchange(put_off_, {})) received(worker, message);
}

bool Group::is_after_last_step() const {
  return phase_ == Phase::kSaving && !pending_ && !aborted_;
}

bool Group::have_parted(bool at_once) {
  if (!sharded_) return false;
  const std::optional<std::string> differ = actions_.how_visits_differ(ranks_, generation_, false);
  if (!differ) {
    parted_at_.reset();
    return false;
  }
  if (!parted_at_) parted_at_ = time();
  if (at_once || time() - *parted_at_ >= kPartedSeconds) end_parted(*differ);
  return true;
}

bool Group::voters_have_parted() {
  if (!sharded_) return false;
  std::vector<sharded::VisitCount> visits;
  for (const WorkerId rank : ranks_) visits.push_back(members_.at(rank).vote->visits);
  const std::optional<std::string> differ = sharded::how_visits_differ(visits);
  if (!differ) return false;
  end_parted(actions_.how_visits_differ(ranks_, generation_, true)
                 .value_or(*differ + "; the modules are unknown because the visit pages cannot be read"));
  return true;
}

void Group::end_parted(const std::string& differ) {
  const bool is_after = is_after_last_step();
  const std::string where = is_after ? fmt::format("after step {}, which is committed", committed_ - 1)
                                     : fmt::format("step {} is not committed", committed_);
  end(job_failed(fmt::format("{}: {}. All ranks must visit the same modules in the same order, even without rows",
                             where, differ)),
      true);
  if (is_after) abort_generation();  // whoever waits for another breaks off, and writes its part of the snapshot
}

std::string Group::what_is_not_finite() const {
  std::string rows;
  std::string sums;
  std::string overflows;
  bool finite = true;
  for (const WorkerId rank : ranks_) {
    const Vote& vote = *members_.at(rank).vote;
    finite = finite && vote.finite;
    if (!vote.sum_finite) sums += fmt::format("{}rank {}", sums.empty() ? "" : ", ", members_.at(rank).rank);
    if (vote.sum_overflows)
      overflows += fmt::format("{}rank {}", overflows.empty() ? "" : ", ", members_.at(rank).rank);
    if (vote.not_finite.empty()) continue;
    std::string own;
    for (const RowRange& range : vote.not_finite) own += (own.empty() ? "" : ", ") + text_of(range);
    if (vote.not_finite_more > 0) own += fmt::format(" and {} more ranges of rows", vote.not_finite_more);
    rows += fmt::format("{}{} on rank {}", rows.empty() ? "" : "; ", own, members_.at(rank).rank);
  }
  std::string what;
  if (!rows.empty()) what = fmt::format("the gradient or the loss of {} is NaN or infinite", rows);
  if (!sums.empty()) {
    what += fmt::format(
        "{}the sum of the gradients on {} is NaN or infinite; the rows are unknown because the device adds gradients "
        "up without checking each",
        what.empty() ? "" : "; ", sums);
  }
  if (!overflows.empty()) {
    what += fmt::format("{}the sum of the gradients on {} overflows, although the gradient of each row is finite",
                        what.empty() ? "" : "; ", overflows);
  }
  if (finite || !what.empty()) return what;
  return "the sum of the gradients of all ranks overflows, although the gradients of rows and ranks are finite";
}

void Group::stop_at(const std::string& not_finite) {
  const bool again = options_.stopped_before_at == committed_;
  const std::string reason = fmt::format(
      "step {} is not committed: {}{}. Check the samples of these rows{}, lower the learning rate, or skip such steps "
      "with [run] on_nonfinite = \"skip\"",
      committed_, not_finite, again ? ", as when the job ended at this step before" : "",
      sharded_ ? " and that no parameter is read outside of a module that uses it" : "");
  if (const auto recorded = actions_.record(NotFiniteRecord{committed_, not_finite}); !recorded) {
    actions_.event(recorded.error().message(), true);
  }
  end(job_failed(reason), false);
}

const Assignment* Group::assignment() {
  if (assignment_) return &*assignment_;
  const auto world_size = static_cast<int64_t>(ranks_.size());
  const Sharing how{.world_size = world_size, .micro_batch = options_.micro_batch_of.at(world_size)};
  Result<Assignment> made = actions_.assignment_of(committed_, how, rates_);
  if (made) return &assignment_.emplace(std::move(*made));
  end(job_failed(made.error()), true);
  return nullptr;
}

void Group::learn_costs() {
  if (!options_.fit) return;
  for (const WorkerId rank : ranks_) fit_.add(members_.at(rank).vote->share);
  if (!fit_.end_step()) return;
  rates_ = fit_.rates();
  actions_.event(fmt::format("balancer: costs fitted to measured times: {} per token, {} per squared length",
                             rates_.per_token, rates_.per_square),
                 false);
}

void Group::finish_step(const CommitRecord& record, const std::string& reason_to_end) {
  Commit commit;
  commit.step = committed_;
  commit.skip = record.skipped;
  commit.rates = rates_;
  if (const auto found = std::exchange(found_, std::nullopt)) commit.evaluation = *found;
  ++committed_;
  has_committed_ = true;
  end_if_asked(reason_to_end);
  committers_ = ranks_;
  lost_since_.clear();
  assignment_.reset();
  last_state_.reset();
  asked_for_states_ = false;
  broken_.clear();
  if (refusal_ && committed_ > refusal_->committed) refusal_.reset();
  fenced_for_breaking_ = 0;
  cut_off_at_.reset();
  stalled_since_.reset();
  progress_at_ = time();
  const bool last = !has_step(committed_) || stop_signal_ != 0;
  const std::string leavers = announce_leavers(record.step);
  const bool grows = may_grow();
  commit.wait = last || grows || !leavers.empty();
  commit.compare = last && options_.compare_states && !sharded_;
  const bool due =
      std::exchange(save_soon_, false) || (options_.snapshot_every > 0 && committed_ % options_.snapshot_every == 0);
  const bool may = due && !(sharded_ && is_writing_parts());  // one that is under way is not overtaken
  if (due && !may) save_soon_ = true;                         // but followed
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
    regroup({GroupCause::kLeave, leavers});
  } else if (commit.wait) {
    grown_at_ = time();
    regroup({GroupCause::kJoin, "a worker joined"});
  }
}

}  // namespace pliant::elastic
