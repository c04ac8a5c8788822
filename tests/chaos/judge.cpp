// The judge of disturbed jobs: not only how they ended, but what they threw away. Pure.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>

#include "chaos/evidence.hpp"

namespace pliant::test {
namespace {

// A snapshot that was due at the last commit may not have been written when all holders died.
constexpr int64_t kSnapshotInHand = 1;

bool may_exit_with(const Evidence& job, const Incarnation& run) {
  if (run.exit_code == 0) return !run.ledger_removed;
  if (run.exit_code > 128) return run.signals.contains(run.exit_code - 128);
  if (run.exit_code == 75) return job.on_loss_shrink && !run.struck.empty();
  return run.surroundings_struck && run.exit_code <= 3;
}

// It was asked once to stop, and had the time to do so.
bool was_stopped_in_order(const Incarnation& run) {
  const int number = run.exit_code - 128;
  return run.stops_asked == 1 && (number == SIGINT || number == SIGTERM || number == SIGHUP) &&
         run.signals.contains(number);
}

// True when nobody was left who held the state; where it is cut over the workers, when one may have died.
bool were_all_struck(const Evidence& job, const Incarnation& run, int64_t world_size) {
  if (job.sharded && !run.struck.empty()) return true;
  return run.disk_struck || static_cast<int64_t>(run.doomed.size()) >= world_size;
}

int64_t most_steps_back(const Evidence& job, size_t at, const Retreat& retreat) {
  const int64_t since_snapshot = job.snapshot_every + kSnapshotInHand;
  if (!retreat.at_start || at == 0) {
    const Incarnation& run = job.incarnations[at];
    if (run.disk_struck) return INT64_MAX;  // there may have been no room for a snapshot
    return were_all_struck(job, run, retreat.world_size) ? since_snapshot : 0;
  }
  const Incarnation& before = job.incarnations[at - 1];
  if (before.disk_struck) return INT64_MAX;
  if (was_stopped_in_order(before) || before.exit_code < 128)
    return were_all_struck(job, before, retreat.world_size) ? since_snapshot : 0;
  return since_snapshot;
}

void judge_one(const Evidence& job, size_t at, std::vector<std::string>& against) {
  const Incarnation& run = job.incarnations[at];
  const auto complain = [&](const std::string& words) { against.push_back(fmt::format("run {}: {}", at + 1, words)); };
  if (!run.ended) return complain("did not end");
  if (!may_exit_with(job, run)) {
    complain(run.ledger_removed && run.exit_code == 0
                 ? "exit 0, although its ledger was removed"
                 : fmt::format("exit code {}, for which nothing was done", run.exit_code));
  }
  if (run.exit_code > 0 && run.exit_code < 128 && run.err.empty()) complain("failed without a word");
  for (const int64_t worker : run.lost) {
    if (!run.struck.contains(worker) && !run.surroundings_struck)
      complain(fmt::format("lost worker {}, which nobody touched", worker));
  }
  if (!run.surroundings_struck && run.restarts > static_cast<int64_t>(run.struck.size())) {
    complain(fmt::format("{} workers were replaced and {} touched", run.restarts, run.struck.size()));
  }
  for (const Retreat& retreat : run.retreats) {
    if (const int64_t most = most_steps_back(job, at, retreat); retreat.steps > most)
      complain(fmt::format("{} committed steps were given up; at most {} had to be", retreat.steps, most));
  }
  if (run.worst.seconds > run.worst.bound) {
    complain(fmt::format("{:.1f} s without progress; {:.1f} s are explained", run.worst.seconds, run.worst.bound));
  }
  if (run.left_behind > 0 && !(run.warden_struck && run.exit_code > 128))
    complain(fmt::format("{} processes were left behind", run.left_behind));
}

}  // namespace

int64_t recomputed(const Evidence& evidence) {
  int64_t steps = 0;
  for (const Incarnation& run : evidence.incarnations) {
    for (const Retreat& retreat : run.retreats) steps += retreat.steps;
  }
  return steps;
}

int64_t healthy_lost(const Incarnation& incarnation) {
  if (incarnation.surroundings_struck) return 0;
  return std::count_if(incarnation.lost.begin(), incarnation.lost.end(),
                       [&](int64_t worker) { return !incarnation.struck.contains(worker); });
}

std::vector<std::string> judge(const Evidence& evidence) {
  std::vector<std::string> against;
  if (!evidence.skipped.empty()) return against;
  for (size_t at = 0; at < evidence.incarnations.size(); ++at) judge_one(evidence, at, against);
  if (evidence.incarnations.empty() || evidence.incarnations.back().exit_code != 0) {
    against.emplace_back("the job was never finished");
    return against;
  }
  if (!evidence.same_weights) against.emplace_back("the weights are others than an undisturbed job's");
  if (evidence.samples_used_once != evidence.samples_expected || evidence.samples_repeated != 0) {
    against.push_back(fmt::format("{} of {} samples were used once, {} more often", evidence.samples_used_once,
                                  evidence.samples_expected, evidence.samples_repeated));
  }
  return against;
}

}  // namespace pliant::test
