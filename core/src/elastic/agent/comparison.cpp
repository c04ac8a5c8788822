// Group: whether ranks hold the same state, and which snapshots count.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "elastic/agent/group.hpp"

namespace pliant::elastic {

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
    end(job_failed(fmt::format(
            "step {} is not committed: the ranks began it with different states and there is no majority ({}). {}",
            committed_, listed(states), what_a_dispute_means())),
        true);
    return false;
  }
  const bool agree =
      std::all_of(states.begin(), states.end(), [right](const auto& state) { return state.second == *right; });
  if (!agree) {
    if (part_with_others(states, *right, fmt::format("began step {}", committed_))) return false;
    actions_.interrupted();
    abort_generation();
    regroup({GroupCause::kFault, "some ranks had copied a wrong state"});
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
      "Which state is right is unknown; a rank computed something else than the others or missed an update. `{}` {}",
      actions_.resume_command(),
      snapshot_ ? fmt::format("continues from the newest snapshot, of step {}", snapshot_->step)
                : "starts from the beginning, because there is no snapshot");
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
          fmt::format(
              "{} had copied its state from worker {}, whose state differs from the other ranks; it copies again",
              label(id), member.origin),
          true);
    } else {
      fence(id, fmt::format("{} with another state than the other ranks ({:016x} instead of {:016x}) and was killed",
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
  drop_snapshots("its writer was lost before its state was compared with the other ranks",
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
        "{}, but the ranks ended with different states and there is no majority ({}). {}",
        has_step(committed_) ? fmt::format("step {} is committed", committed_ - 1) : "every step is committed",
        listed(states), what_a_dispute_means());
    if (pending_) actions_.event(reason, true);
    pending_ = job_failed(reason);
    return close();
  }
  if (right) part_with_others(states, *right, "ended");
  for (const auto& [id, state] : states) {  // the job may be over before they are
    if (state != right) actions_.event(fmt::format("{} {}", label(id), members_.at(id).fenced), true);
  }
  last_state_ = right;
  if (save()) return;
  if (!pending_) pending_ = end_when_saved();
  close();
}

}  // namespace pliant::elastic
