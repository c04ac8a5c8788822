// What an Agent keeps of its run: plan, ledger, snapshots, and the directory, which may go away.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "data/lengths_file.hpp"
#include "elastic/agent/agent_state.hpp"
#include "elastic/agent/rescue.hpp"
#include "elastic/agent/resume_check.hpp"
#include "elastic/best_snapshot.hpp"
#include "elastic/epoch_log.hpp"
#include "elastic/snapshot.hpp"
#include "elastic/state_digest.hpp"

namespace pliant::elastic {
namespace {

namespace fs = std::filesystem;

std::string fingerprint_of(const Batches& batches) {
  return fmt::format("{:016x}", batches.fingerprint());
}

}  // namespace

Result<> Agent::State::open_plan(const std::string& fingerprint) {
  try {
    if (order.micro_batch_of.empty() || !order.config.has("elasticity")) {
      return failed(Status::kInvalidArgument, kNeedsPlan, Origin::kInput);
    }
    Plan plan;
    plan.global_batch = order.facts.global_batch;
    plan.granule = order.facts.granule;
    const Dataset dataset = or_throw(data::read_dataset(order.directory.dataset()));
    std::error_code absent;
    dataset_size = fs::file_size(order.directory.dataset(), absent);
    const bool is_resumed = ledger.has_value();
    if (is_resumed && fingerprint == ledger->lineage().fingerprint && open_plan_in_epoch(plan, dataset)) return {};
    job_plan.emplace(order.config, plan, dataset);
    if (!ledger) ledger = or_throw(Ledger::create(order.directory.ledger(), order.facts.run_id, fingerprint));
    std::string other = fingerprint;
    // Workers that open in a later epoch have that of epoch 0 from the list of epochs; here it was planned.
    if (is_resumed && other == ledger->lineage().fingerprint) other = fingerprint_of(job_plan->batches());
    if (ledger->lineage().fingerprint != other) {
      job_plan.reset();  // they are another job's
      return other_batches(order, ledger->lineage(), other);
    }
    if (Result<> sound = check_ledger(order, ledger->lineage(), job_plan->batches()); !sound) {
      job_plan.reset();
      return failed(std::move(sound));
    }
    return {};
  } catch (const Error& error) {
    return tl::unexpected<Error>(error);
  }
}

bool Agent::State::open_plan_in_epoch(const Plan& plan, const Dataset& dataset) {
  const std::vector<BegunEpoch> begun = read_epochs(order.directory.path());
  const BegunEpoch* const there = epoch_before(begun, order.snapshot ? order.snapshot->step : 0);
  if (there == nullptr) return false;
  try {
    job_plan.emplace(order.config, plan, dataset, there->position);
    static_cast<void>(job_plan->batches().epoch(there->epoch));
    if (check_ledger_in(*there, order, ledger->lineage(), job_plan->batches())) return true;
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): a plan from the first epoch on will say what differs
  }
  job_plan.reset();
  return false;
}

Result<> Agent::State::record(const GenerationRecord& entry) {
  GenerationRecord with_config = entry;
  with_config.config = digest_of_config(order.config.resolved_toml());
  return append(with_config);
}

Result<> Agent::State::record(const Evaluation& entry) {
  last_evaluation = entry;
  return append(entry);
}

Result<> Agent::State::record(const SnapshotRecord& entry) {
  SnapshotRecord inside = entry;
  if (fs::path(entry.file).is_absolute()) {
    inside.file = fs::path(entry.file).lexically_relative(order.directory.path()).string();
  }
  return append(inside);
}

void Agent::State::drop_snapshot(const SnapshotRecord& entry) {
  std::error_code ignored;  // one that stays costs room only
  fs::remove(order.directory.path() / entry.file, ignored);
}

std::string Agent::State::snapshot_path(int64_t step) const {
  if (gone.empty()) return snapshot_file(step).string();
  return rescue_lock ? (order.directory.path() / snapshot_file(step)).string() : std::string();
}

std::optional<Evaluation> Agent::State::evaluation_of(int64_t steps) const {
  const auto& all = ledger->lineage().evaluations;
  const auto later = [](int64_t than, const Evaluation& one) { return than < one.step; };
  const auto end = std::upper_bound(all.begin(), all.end(), steps, later);
  return end == all.begin() ? std::nullopt : std::optional(*std::prev(end));
}

bool Agent::State::has_snapshot(const SnapshotRecord& entry) const {
  std::error_code error;
  return fs::exists(order.directory.path() / entry.file, error);
}

bool Agent::State::has_newest_snapshot() const {
  const auto& snapshots = ledger->lineage().snapshots;
  return !snapshots.empty() && has_snapshot(snapshots.back());
}

Result<> Agent::State::look() {
  if (!gone.empty()) return {};
  if (!ledger) {
    look_without_ledger();
    return {};
  }
  Result<> there = ledger->check_in_place();
  if (there) {
    hold_lists();
    return {};
  }
  gone = fmt::format("the run directory {} is {}: {}", order.directory.path().string(),
                     there.error().status() == Status::kNotFound ? "gone" : "damaged", there.error().message());
  if (!slots.empty() || has_newest_snapshot()) leave_directory();
  event(gone, true);
  return failed(Status::kNotFound, gone);
}

void Agent::State::hold_lists() {
  const auto hold = [this](FileDescriptor& held, const char* name) {
    if (held.get() >= 0) return;
    if (auto file = open_file(order.directory.path() / name, O_RDONLY, "open")) held = std::move(*file);
  };
  if (order.config.run().digest_every > 0) hold(lists.digests, kDigestsFile);
  if (order.config.run().epochs > 1) hold(lists.epochs, kEpochsFile);
}

void Agent::State::look_without_ledger() {
  if (home.get() < 0 || names(order.directory.path(), home.get())) return;
  home = FileDescriptor();
  event(fmt::format("the run directory {} was removed, moved or replaced: the output of workers is lost",
                    order.directory.path().string()),
        true);
}

void Agent::State::leave_directory() {
  if (const Result<> moved = move_to_fresh_directory(); !moved)
    gone += fmt::format("; cannot save anything: {}", moved.error().message());
}

Result<> Agent::State::move_to_fresh_directory() {
  if (!job_plan) return failed(Status::kFailedPrecondition, "no worker was ready yet");
  Result<RunDirectory> fresh = rescue_directory(order.directory);
  if (!fresh) return failed(std::move(fresh));
  Result<DirectoryLock> lock = DirectoryLock::take(*fresh);
  if (!lock) return failed(std::move(lock));
  Result<Ledger> copy = rescue_run(*fresh, order, job_plan->batches().dataset(), *ledger, lists);
  if (!copy) return failed(std::move(copy));
  gone += fmt::format("; the job's state is saved to {}: continue with `{}`", fresh->path().string(),
                      elastic::resume_command(*fresh, order.options.command));
  rescue_lock = std::move(*lock);
  ledger = std::move(*copy);
  order.directory = std::move(*fresh);
  return {};
}

JobEnd Agent::State::at_end(JobEnd over) {
  static_cast<void>(look());
  if (gone.empty()) {
    if (ledger && over.outcome != JobOutcome::kFailed) {
      prune_snapshots(INT64_MAX);
      say_what_keep_best_missed();
    }
    return over;
  }
  if (rescue_lock && !has_newest_snapshot()) {
    event("no worker could write a snapshot there: a resumed job repeats steps", true);
  }
  return over.outcome == JobOutcome::kFailed ? over : job_failed(gone);
}

void Agent::State::say_what_keep_best_missed() {
  const RunOptions& run = order.config.run();
  const std::vector<Evaluation>& all = ledger->lineage().evaluations;
  const auto is_meant = [&](const Evaluation& one) { return one.values.contains(run.keep_best); };
  if (!run.keep_best.empty() && std::none_of(all.begin(), all.end(), is_meant)) {
    std::set<std::string> names;
    for (const Evaluation& one : all) {
      for (const auto& value : one.values) names.insert(value.first);
    }
    return event(fmt::format("no evaluation gave \"{}\", so that [run] keep_best has kept nothing; {}", run.keep_best,
                             names.empty() ? "there was none: call Session::evaluated"
                                           : fmt::format("they gave {}", fmt::join(names, ", "))),
                 true);
  }
  const auto best =
      best_snapshot(ledger->lineage(), run, [this](const SnapshotRecord& one) { return has_snapshot(one); });
  const Evaluation* const better = better_evaluation(ledger->lineage(), run, best);
  if (better == nullptr) return;
  event(
      fmt::format("{} was {:.6g} after step {}, better than in any snapshot: set [run] snapshot_every so that what is "
                  "evaluated is also saved",
                  run.keep_best, better->values.at(run.keep_best), better->step),
      true);
}

void Agent::State::prune_snapshots(int64_t step) {
  const auto& all = ledger->lineage().snapshots;
  const auto end = std::partition_point(all.begin(), all.end(), [step](const auto& one) { return one.step <= step; });
  auto oldest = static_cast<size_t>(end - all.begin());
  pruned = std::min(pruned, oldest);
  for (int64_t kept = 0; oldest > pruned && kept < order.config.run().keep_snapshots;) {
    if (has_snapshot(all[--oldest])) ++kept;
  }
  const auto best = best_snapshot(ledger->lineage(), order.config.run(),
                                  [this](const SnapshotRecord& one) { return has_snapshot(one); });
  const std::string file = best ? best->file : std::string();
  for (; pruned < oldest; ++pruned) {
    if (all[pruned].file != file) drop_snapshot(all[pruned]);
  }
  if (file == best_kept) return;
  const auto first_kept = all.begin() + static_cast<std::ptrdiff_t>(pruned);
  const auto before = std::find_if(all.begin(), first_kept, [this](const auto& one) { return one.file == best_kept; });
  if (before != first_kept) drop_snapshot(*before);  // a better one has come, and it is not among the newest
  best_kept = file;
  if (best) event(fmt::format("best snapshot by {}: {}, {:.6g}", best->metric, file, best->value), false);
}

void Agent::State::committed(const CommitRecord& entry, int64_t world_size) {
  JobProgress progress = pace.committed(entry, world_size, job_plan->batches().expected_steps(), now());
  progress.metrics = entry.metrics;
  progress.evaluation = last_evaluation;
  observer.on_commit(progress);
}

void Agent::State::agent_kill_point(int64_t step, const char* at) {
  for (const InjectedKill& kill : order.options.injections) {
    if (kill.agent && kill.step == step && kill.at == at) ::kill(::getpid(), SIGKILL);
  }
}

}  // namespace pliant::elastic
