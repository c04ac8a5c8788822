// Group: how a job begins: its first workers agree on what it is, and one of them writes the data set, of which the
// agent makes its plan.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "elastic/agent/group.hpp"

namespace pliant::elastic {
namespace {

/// What all workers must bring alike.
struct Fact {
  std::string (*of)(const Ready&);
  const char* differs;  ///< of one that brings something else
  const char* is;       ///< before the value
  const char* remedy;
};

constexpr std::array<Fact, 7> kFacts{{
    {[](const Ready& ready) { return ready.options; }, "has other options", "options of digest",
     "config.toml of the run must not change while the job runs: stop the job and resume it with the new config"},
    {[](const Ready& ready) { return ready.fingerprint; }, "reads other data", "data of fingerprint",
     "all workers must read the same files"},
    {[](const Ready& ready) { return std::string(ready.sharded ? "sharded" : "whole"); }, "has a model of another kind",
     "a model that is", "all workers must run the same program"},
    {[](const Ready& ready) { return ready.model; }, "has another model", "a model of digest",
     "all workers must build the same model, with the same parameters, modules and names of optimizer states"},
    {[](const Ready& ready) { return ready.arrays.empty() ? "none" : ready.arrays; }, "has other arrays",
     "arrays of digest",
     "TrainingState::arrays must give the same names, types and shapes in the same order on all workers"},
    {[](const Ready& ready) { return ready.gradient; }, "has another gradient", "a gradient of",
     "all workers must train the same parameters"},
    {[](const Ready& ready) { return ready.policies; }, "has another balancer or learning-rate rule",
     "answers of digest", "plugins must be the same on all machines, and must not change while the job runs"},
}};

/// In what a worker that brings `other` is none of the job that `right` is of; nullptr: in nothing.
const Fact* difference(const Ready& right, const Ready& other) {
  const auto* const found =
      std::find_if(kFacts.begin(), kFacts.end(), [&](const Fact& fact) { return fact.of(right) != fact.of(other); });
  return found == kFacts.end() ? nullptr : found;
}

/// What stands behind "digest" in `value`; empty: nothing does.
std::string digest_in(const Fact& fact, const std::string& value) {
  const std::string all = fmt::format("{} {}", fact.is, value);
  constexpr std::string_view kBefore = "digest ";
  const size_t at = all.rfind(kBefore);
  return at == std::string::npos ? std::string() : all.substr(at + kBefore.size());
}

}  // namespace

std::string Group::how_differs(const Ready& right, const Ready& other) const {
  const Fact* const found = difference(right, other);
  if (found == nullptr) return {};
  std::string first;
  if (const auto lines =
          actions_.first_difference(digest_in(*found, found->of(other)), digest_in(*found, found->of(right))))
    first = fmt::format(": {} instead of {}", lines->first, lines->second);
  return fmt::format("{} than the other workers ({} {} instead of {}{}); {}", found->differs, found->is,
                     found->of(other), found->of(right), first, found->remedy);
}

void Group::on(WorkerId worker, Member& member, const Ready& message) {
  if (const std::string other = job_ ? how_differs(*job_, message) : std::string(); !other.empty()) {
    return fence(worker, other);
  }
  if (job_) tell_of_other_plugins(worker, message);
  member.ready = was_ready_ = true;
  member.brings = message;
  if (!message.host_visible) {
    member.device = message.device;
    member.device_name = message.device_name;
  }
  early_deaths_ = 0;
  member.answered_at = time();
  slowest_start_ = std::max(slowest_start_, time() - member.since);
  if (phase_ == Phase::kEnding) {
    member.told_to_stop = true;
    return actions_.send(worker, Stop{});
  }
  replace_those_that_ended();  // others are well: what those met was their own
  if (is_planned_ && end_if_done()) return;
  if (phase_ == Phase::kStarting) regroup(reason_);
}

void Group::begin_job(const std::vector<WorkerId>& usable) {
  if (!job_ && !agree_on_job()) return;
  if (std::count(usable.begin(), usable.end(), data_writer_) > 0) return;  // it is at it
  const auto writer =
      std::find_if(usable.begin(), usable.end(), [this](WorkerId id) { return members_.at(id).fenced.empty(); });
  if (writer == usable.end()) return;
  data_writer_ = *writer;
  progress_at_ = time();
  actions_.send(data_writer_, WriteData{});
}

const Ready* Group::what_most_bring(const std::vector<WorkerId>& workers) const {
  const auto agree_with = [&](const Ready& one) {
    return std::count_if(workers.begin(), workers.end(),
                         [&](WorkerId id) { return difference(one, members_.at(id).brings) == nullptr; });
  };
  const Ready* of_run = nullptr;
  bool is_one = true;
  for (const WorkerId id : workers) {
    const Ready& own = members_.at(id).brings;
    if (2 * agree_with(own) > static_cast<int64_t>(workers.size())) return &own;
    if (options_.fingerprint.empty() || own.fingerprint != options_.fingerprint) continue;
    is_one = is_one && (of_run == nullptr || difference(*of_run, own) == nullptr);
    of_run = &own;
  }
  return is_one ? of_run : nullptr;
}

bool Group::agree_on_job() {
  std::vector<WorkerId> workers;
  for (const auto& [id, member] : members_) {
    if (member.ready && !member.finished && member.fenced.empty()) workers.push_back(id);
  }
  if (const Ready* const right = what_most_bring(workers)) {
    job_ = *right;
    sharded_ = right->sharded;
    for (const WorkerId id : workers) {
      const std::string other = how_differs(*job_, members_.at(id).brings);
      if (!other.empty()) {
        fence(id, other);
      } else {
        tell_of_other_plugins(id, members_.at(id).brings);
      }
    }
    return true;
  }
  std::string all;
  std::string remedies;
  for (const Fact& fact : kFacts) {
    const auto of = [&](WorkerId id) { return fact.of(members_.at(id).brings); };
    const bool agree =
        std::all_of(workers.begin(), workers.end(), [&](WorkerId id) { return of(id) == of(workers.front()); });
    if (agree) continue;
    for (const WorkerId id : workers) {
      all += fmt::format("{}{}: {} {}", all.empty() ? "" : ", ", label(id), fact.is, of(id));
    }
    const WorkerId one = workers.front();
    const WorkerId other =
        *std::find_if(workers.begin(), workers.end(), [&](WorkerId id) { return of(id) != of(one); });
    if (const auto lines = actions_.first_difference(digest_in(fact, of(one)), digest_in(fact, of(other))))
      all += fmt::format(", which begin to differ where {} has {} and {} {}", label(one), lines->first, label(other),
                         lines->second);
    remedies += fmt::format("; {}", fact.remedy);
  }
  end(job_failed(fmt::format("the workers do not agree on the job and there is no majority ({}){}", all, remedies),
                 Origin::kInput),
      true);
  return false;
}

void Group::on(WorkerId worker, Member& member, const DataWritten& message) {
  if (is_planned_ || pending_ || !member.fenced.empty()) return;
  if (!message.error.empty()) {
    // Those that agree would write the same into the same file, unless this one is short of something.
    if (message.status != static_cast<int>(Status::kResourceExhausted)) {
      return end(job_failed(message.error, message.origin == Origin::kInput ? Origin::kInput : Origin::kRun), true);
    }
    return fence(worker, fmt::format("cannot write the data set: {}", message.error));
  }
  if (const Result<> opened = actions_.open_plan(job_->fingerprint); !opened) {
    return end(job_failed(opened.error()), true);
  }
  is_planned_ = true;
  if (!end_if_done()) regroup(reason_);
}

bool Group::end_if_done() {
  const bool covered = !is_unsaved() || (snapshot_ && !has_step(snapshot_->step));
  if (has_step(committed_) || !covered || phase_ == Phase::kSaving) return false;
  if (committed_ > 0 && !has_step(committed_ - 1)) {
    actions_.event(fmt::format("{} steps are committed, more than the job has now: nothing to do", committed_), false);
  }
  end({}, false);
  return true;
}

void Group::on(WorkerId, Member& member, const Refused& message) {
  member.refused = message;
}

}  // namespace pliant::elastic
