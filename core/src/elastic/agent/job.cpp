// run_job(): settles everything that can be wrong before a worker starts, runs the agent, and sums up.
#include "pliant/job.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "base/result.hpp"
#include "config/app_places.hpp"
#include "data/input_file.hpp"
#include "elastic/agent/agent.hpp"
#include "elastic/agent/resume_choice.hpp"
#include "elastic/agent/worker_process.hpp"
#include "elastic/audit.hpp"
#include "elastic/best_snapshot.hpp"
#include "elastic/epoch_log.hpp"
#include "elastic/job_trace.hpp"
#include "elastic/snapshot.hpp"
#include "elastic/snapshot_draft.hpp"
#include "pliant/balancer.hpp"
#include "pliant/learning_rate.hpp"
#include "plugin/plugin.hpp"

namespace pliant {
namespace {

namespace fs = std::filesystem;
using elastic::RunDirectory;

constexpr size_t kLossWindow = 10;

struct Pinned {
  Plan plan;
  std::map<int64_t, int64_t> micro_batch_of;
  std::map<int64_t, int64_t> other_batch_of;  ///< sizes at which the policy answers another global batch
  std::string digest;
};

// The global batch of the job and every world size, up to the number of workers, that has the same one. `before`: of
// the job that is to go on.
Pinned pin_plan(const Config& config, const std::optional<PinnedBatch>& before) {
  const int64_t workers = config.run().workers;
  Pinned pinned;
  if (!config.has("elasticity")) {  // a foreign program without a plan may have any size
    for (int64_t size = 1; size <= workers; ++size) pinned.micro_batch_of[size] = 1;
    return pinned;
  }
  try {
    pinned.plan = make_plan(config, workers);
  } catch (const Error& error) {
    if (error.status() != Status::kIncompatibleWorldSize) throw;
    throw with_changes(config, error, workers, before);
  }
  const Planner planner(config);
  pinned.digest = planner.digest();
  for (int64_t size = 1; size <= workers; ++size) {
    try {
      const Plan at_size = planner.plan(size);
      const bool same = at_size.global_batch == pinned.plan.global_batch && at_size.granule == pinned.plan.granule;
      (same ? pinned.micro_batch_of : pinned.other_batch_of)[size] = same ? at_size.micro_batch : at_size.global_batch;
    } catch (const Error& error) {
      if (error.status() != Status::kIncompatibleWorldSize) throw;
    }
  }
  if (!pinned.micro_batch_of.contains(workers)) {
    throw Error(
        Status::kIncompatibleWorldSize,
        fmt::format(
            "the plan has no micro-batch for {} workers and global batch {}; see `pliant plan {} --world-size {}`",
            workers, pinned.plan.global_batch, config.file().string(), workers),
        Origin::kInput);
  }
  return pinned;
}

// The kernel keeps no exit status for a parent that ignores SIGCHLD: every worker would seem to end well.
void check_children() {
  struct sigaction had {};
  const bool ignored =
      ::sigaction(SIGCHLD, nullptr, &had) == 0 && (had.sa_handler == SIG_IGN || (had.sa_flags & SA_NOCLDWAIT) != 0);
  if (!ignored) return;
  throw Error(Status::kFailedPrecondition,
              "this program ignores SIGCHLD (or sets SA_NOCLDWAIT), so exit codes of workers would be lost; restore "
              "the signal's default before the job");
}

// An injection that cannot strike is a mistake in the experiment.
void check_injections(const Config& config, const JobOptions& options) {
  const std::vector<InjectedKill>& injections = options.injections;
  if (injections.empty()) return;
  if (config.run().attach == "never") {
    throw Error(Status::kInvalidArgument, "--inject needs a program that uses the embedding API; attach is \"never\"",
                Origin::kInput);
  }
  for (const InjectedKill& kill : injections) {
    const bool is_of_shards = kill.at == "gather" || kill.at == "scatter" || kill.at == "finish";
    if (is_of_shards && !config.has("coordinator")) {
      throw Error(
          Status::kInvalidArgument,
          fmt::format("--inject: at={} exists in sharded jobs only, and the config has no [coordinator]", kill.at),
          Origin::kInput);
    }
    if (kill.at == "bucket" && (config.run().deterministic || config.has("coordinator"))) {
      throw Error(Status::kInvalidArgument,
                  "--inject: at=bucket exists where buckets of the gradient are reduced in backward: with [run] "
                  "deterministic = false, and without [coordinator]",
                  Origin::kInput);
    }
    if (kill.rank < config.run().workers) continue;
    throw Error(Status::kInvalidArgument,
                fmt::format("--inject: no rank {}; {} workers have ranks 0 to {}", kill.rank, config.run().workers,
                            config.run().workers - 1),
                Origin::kInput);
  }
}

void check_trace(const Config& config, const JobOptions& options) {
  if (!options.trace) return;
  if (config.run().attach == "never") {
    throw Error(Status::kInvalidArgument,
                "--trace needs a program that uses the embedding API, which reports its calls; attach is \"never\"",
                Origin::kInput);
  }
  or_throw(elastic::check_trace_file(*options.trace));
}

// The run that options.resume means; says which newer ones it passes over.
Result<RunDirectory> directory_to_resume(const Config& config, const JobOptions& options, JobObserver& observer) {
  if (options.resume_dir) return RunDirectory::open(*options.resume_dir);
  std::vector<RunDirectory> passed_over;
  Result<RunDirectory> found = elastic::newest_to_resume(config.run().log_dir, config.run().name, passed_over);
  if (!found) return found;
  for (const RunDirectory& other : passed_over) {
    observer.on_event(
        fmt::format("the run {} is passed over: it has neither a step nor a snapshot to resume", other.path().string()),
        true);
  }
  if (!passed_over.empty()) observer.on_event(fmt::format("resuming {}", found->path().string()), false);
  return found;
}

// A line of help: the most workers, fewer than the config says, at which it plans the batch that the job has.
std::string fewer_workers_for(const Config& config, const PinnedBatch& kept) {
  if (!config.has("elasticity")) return {};
  const Planner planner(config);
  for (int64_t size = config.run().workers - 1; size > 0; --size) {
    try {
      const Plan plan = planner.plan(size);
      if (plan.global_batch != kept.global_batch || plan.granule != kept.granule) continue;
      return fmt::format("\n  help: --workers {} keeps the job's batch", size);
    } catch (const Error& error) {
      if (error.status() != Status::kIncompatibleWorldSize) throw;
    }
  }
  return {};
}

// Where workers call, the run that they go on with is found, and not named.
JobOptions with_run_found(const Config& config, const JobOptions& options) {
  JobOptions settled = options;
  if (!options.resume_or_begin && !options.calling) return settled;
  if (options.resume && !options.resume_or_begin) return settled;
  const RunOptions& run = config.run();
  if (options.calling && !options.calling->launcher.empty()) {
    const auto own = elastic::newest_of_launcher(run.log_dir, run.name, options.calling->launcher);
    if (own) {
      settled.resume = true;
      settled.resume_dir = own->path();
      return settled;
    }
  }
  std::vector<RunDirectory> passed_over;
  if (options.resume_or_begin && elastic::newest_to_resume(run.log_dir, run.name, passed_over)) settled.resume = true;
  return settled;
}

// The agent before this one may still see to the end of its workers, which were killed.
Result<elastic::DirectoryLock> lock_of(const RunDirectory& directory, bool patiently) {
  constexpr int kTries = 200;
  constexpr int kApartMs = 50;
  Result<elastic::DirectoryLock> lock = elastic::DirectoryLock::take(directory);
  for (int i = 0; patiently && !lock && i < kTries; ++i) {
    ::poll(nullptr, 0, kApartMs);
    lock = elastic::DirectoryLock::take(directory);
  }
  return lock;
}

elastic::AgentOrder prepare(const Config& config, const JobOptions& options, JobObserver& observer) {
  check_children();
  check_injections(config, options);
  check_trace(config, options);
  elastic::AgentOrder order{
      .config = config, .options = options, .directory = RunDirectory({}), .command = options.command};
  if (order.command.empty()) order.command = config.run().command;
  if (order.command.empty() && !options.calling) {
    throw Error(Status::kInvalidArgument, "nothing to run: give [run] command in the config, or a program after `--`",
                Origin::kInput);
  }
  const std::string folder = options.command.empty() ? config.run().working_dir : std::string();  // or as it was typed
  if (!options.calling) order.command.front() = or_throw(elastic::find_program(order.command.front(), folder));
  LearningRate::check(config);
  (void)Balancer(config);  // what it has against its options stops the job here, not in every worker
  ShardedModel::check(config);
  std::optional<elastic::JobFacts> before;
  if (options.resume) {
    order.directory = or_throw(directory_to_resume(config, options, observer));
    before = or_throw(order.directory.read_facts());
  }
  const std::optional<PinnedBatch> kept =
      before ? std::optional(PinnedBatch{before->global_batch, before->granule}) : std::nullopt;
  Pinned pinned = pin_plan(config, kept);
  order.micro_batch_of = std::move(pinned.micro_batch_of);
  order.other_batch_of = std::move(pinned.other_batch_of);
  order.elasticity_digest = std::move(pinned.digest);
  order.min_resize_interval_s = pinned.plan.min_resize_interval_s;
  order.facts = {elastic::fresh_run_id(), config.run().name, pinned.plan.global_batch, pinned.plan.granule,
                 options.calling ? options.calling->launcher : std::string()};
  if (!options.resume) {
    order.directory = or_throw(RunDirectory::create(config.run().log_dir, order.facts));
    return order;
  }
  if (before->global_batch != order.facts.global_batch || before->granule != order.facts.granule) {
    const Error refusal(
        Status::kFailedPrecondition,
        fmt::format(
            "cannot resume {}: the job is pinned to global batch {} in granules of {}, and this config at {} workers "
            "plans {} in granules of {}{}",
            order.directory.path().string(), before->global_batch, before->granule, config.run().workers,
            order.facts.global_batch, order.facts.granule, fewer_workers_for(config, *kept)),
        Origin::kInput);
    throw config.has("elasticity") ? with_changes(config, refusal, config.run().workers, kept) : refusal;
  }
  order.facts = *before;
  return order;
}

// Opens the ledger of the run to resume; it has none when it was stopped before its first step.
void open_ledger(elastic::AgentOrder& order) {
  const fs::path file = order.directory.ledger();
  const bool blank = elastic::Ledger::is_blank(file);
  if (fs::exists(file) && !blank) {
    order.ledger = or_throw(elastic::Ledger::open(file));
    return;
  }
  if (elastic::has_snapshots(order.directory)) {
    throw Error(Status::kDataLoss,
                fmt::format("cannot resume {}: its ledger {} is {}, although it has snapshots: without the ledger it "
                            "is unknown which samples they have used. Restore it from a copy, or start a new run",
                            order.directory.path().string(), file.filename().string(), blank ? "empty" : "missing"),
                Origin::kInput);
  }
  if (blank) fs::remove(file);
}

// Finds the snapshot to begin with; none where the run has none. Damaged ones alone are refused: a job that began anew
// would drop the steps that a copy of one still holds.
void find_snapshot(elastic::AgentOrder& order, JobObserver& observer) {
  const elastic::Lineage& lineage = order.ledger->lineage();
  const elastic::SnapshotOwner owner{order.facts.run_id, lineage.fingerprint};
  bool has_damaged = false;
  for (auto at = lineage.snapshots.rbegin(); at != lineage.snapshots.rend(); ++at) {
    const fs::path file = order.directory.path() / at->file;
    if (!fs::exists(file)) continue;
    if (at->unconfirmed) {
      observer.on_event(fmt::format("skipping the snapshot {}: the job ended before the ranks had confirmed its state "
                                    "in the vote on step {}; going back to the previous one",
                                    file.string(), at->step),
                        true);
      continue;
    }
    const auto whole = elastic::read_snapshot(
        file, [](std::istream&, const elastic::SnapshotHeader&) {}, owner);
    if (whole && whole->step == at->step) {
      LearningRate(order.config, {1, 1, 1, 1, 0}).load(whole->lr_state);  // another rule's ends the job here
      order.snapshot = *at;
      return;
    }
    if (!whole && whole.error().origin() == Origin::kInput) throw whole.error();  // somebody else's
    has_damaged = true;
    observer.on_event(
        fmt::format("{}; going back to the previous one",
                    whole ? fmt::format("the snapshot {} holds {} steps, not {}", file.string(), whole->step, at->step)
                          : whole.error().message()),
        true);
  }
  if (!has_damaged) return;
  throw Error(Status::kDataLoss,
              fmt::format("cannot resume {}: all its snapshots are damaged. Restore one from a copy, or remove them "
                          "all to start from the beginning",
                          order.directory.path().string()),
              Origin::kInput);
}

double mean_loss(const std::vector<elastic::CommitRecord>& commits, size_t from, size_t count) {
  double sum = 0;
  int64_t applied = 0;
  for (size_t i = from; i < from + count; ++i) {
    if (commits[i].skipped) continue;
    sum += commits[i].loss;
    ++applied;
  }
  return applied > 0 ? sum / static_cast<double>(applied) : 0;
}

double longest_sequence(const Dataset& dataset) {
  return *std::max_element(dataset.lengths.begin(), dataset.lengths.end());
}

void sum_up_lineage(JobSummary& summary, const elastic::Lineage& lineage, Batches& batches, const fs::path& directory) {
  const auto& commits = lineage.commits;
  summary.steps = static_cast<int64_t>(commits.size());
  const bool is_finished = summary.end.outcome == JobOutcome::kFinished;
  summary.total_steps = is_finished ? elastic::steps_of_job(batches) : batches.expected_steps();
  int64_t rows = 0;
  int64_t sequences = 0;
  for (const elastic::CommitRecord& commit : commits) {
    summary.tokens += commit.size.tokens;
    if (commit.skipped) ++summary.steps_skipped;
    for (const auto& [name, value] : commit.metrics) summary.metrics[name] = value;
    sequences += commit.size.sequences;
    rows += commit.size.rows - commit.size.padding_rows;
  }
  summary.evaluations = lineage.evaluations;
  const size_t window = std::min(commits.size(), kLossWindow);
  summary.loss_first = mean_loss(commits, 0, window);
  summary.loss_last = mean_loss(commits, commits.size() - window, window);
  if (rows > 0) {
    const Packing packing = batches.packing(0);
    const auto tokens = static_cast<double>(summary.tokens);
    const auto room = static_cast<double>(packing.budget > 0 ? packing.budget : batches.epoch(0).longest_row);
    summary.packing_efficiency = tokens / (static_cast<double>(rows) * room);
    summary.efficiency_without_packing =
        tokens / (static_cast<double>(sequences) * longest_sequence(batches.dataset()));
  }
  const elastic::Audit counted = or_throw(elastic::audit(
      lineage, batches, is_finished ? summary.total_steps : std::min(summary.steps, summary.total_steps)));
  summary.samples_expected = counted.expected;
  summary.samples_used_once = counted.used_once;
  summary.samples_repeated = counted.repeated;
  summary.samples_missing = counted.missing;
  summary.samples_dropped = counted.dropped;
  for (auto at = lineage.snapshots.rbegin(); at != lineage.snapshots.rend() && summary.snapshot.empty(); ++at) {
    std::error_code error;  // one that was not confirmed may have been dropped
    if (fs::exists(directory / at->file, error)) summary.snapshot = at->file;
  }
}

// The job is what it is, whatever becomes of its trace. True when it is there.
bool leave_trace(const RunDirectory& directory, const std::string& run, const fs::path& file, JobObserver& observer) {
  const auto written = elastic::write_job_trace(directory, run, file);
  if (!written) {
    observer.on_event(fmt::format("trace: {}", written.error().message()), true);
    return false;
  }
  const bool is_there = written->generations > 0;
  observer.on_event(elastic::words_of(*written, file), !is_there || written->cut > 0 || !written->unread.empty());
  return is_there;
}

// A resumed job that fails before its first step has used nothing of its config: whoever goes on with the run as it is
// gets the one that its steps were made with.
void put_config_back(const Config& config, const std::string& before, const JobEnd& end, elastic::Agent& agent,
                     JobObserver& observer) {
  const bool is_planned = agent.batches() != nullptr;  // else it was refused
  const bool has_failed = elastic::is_broken_off(end) && agent.pace().steps() == 0;
  const bool uses_api = agent.ledger().has_value() || agent.uses_api();
  std::error_code absent;
  const RunDirectory& directory = agent.directory();
  if (before.empty() || !uses_api || (is_planned && !has_failed) || !fs::exists(directory.config(), absent)) return;
  // The ledger may name a plan's config.
  const Result<> put = is_planned ? directory.change_config(config.resolved_toml(), before)
                                  : elastic::write_file(directory.config(), before);
  if (put) return;
  observer.on_event(fmt::format("the run keeps the config of the job that failed: {}", put.error().message()), true);
}

}  // namespace

std::string_view name_of(JobOutcome outcome) {
  switch (outcome) {
    case JobOutcome::kFinished:
      return "finished";
    case JobOutcome::kEndedEarly:
      return "ended early";
    case JobOutcome::kStopped:
      return "stopped";
    case JobOutcome::kNoWorldSize:
      return "no valid world size";
    case JobOutcome::kFailed:
      break;
  }
  return "failed";
}

ConfigNeeds job_needs(const Config& config) {
  ConfigNeeds needs{"balancer", "rendezvous", "sampler"};
  for (const plugin::Kind& kind : plugin::kinds()) {
    if (config.has(kind.section)) needs.emplace(kind.section);
  }
  return needs;
}

namespace {

// `callers`: who calls; nullptr: the job starts its workers.
JobSummary run_settled(const Config& config, const JobOptions& options, JobObserver& observer,
                       elastic::Callers* callers) {
  const auto began = std::chrono::steady_clock::now();
  elastic::AgentOrder order = prepare(config, options, observer);
  const elastic::DirectoryLock lock = or_throw(lock_of(order.directory, callers != nullptr));
  if (!options.resume) {
    or_throw(order.directory.fill(order.facts, config.resolved_toml()));
    or_throw(order.directory.become_latest());
  } else {
    or_throw(order.directory.make_folders());
    elastic::remove_drafts(order.directory.snapshots());
    order.directory.remove_traces();  // of an agent that was killed
    order.directory.remove_visits();
    open_ledger(order);
    if (order.ledger) find_snapshot(order, observer);
    // One that stays costs a plan, and no more.
    static_cast<void>(elastic::drop_epochs_after(order.directory.path(), order.snapshot ? order.snapshot->step : 0));
    if (const auto before = data::read_whole(order.directory.config())) order.config_before = (*before)->bytes();
    or_throw(order.directory.change_config(order.config_before, config.resolved_toml()));
  }
  or_throw(elastic::write_file(order.directory.app_places(), config::app_places(config)));
  JobSummary summary;
  summary.run_id = order.facts.run_id;
  summary.global_batch = order.facts.global_batch;
  summary.workers = config.run().workers;
  if (options.resume) summary.resumed_from = order.snapshot ? order.snapshot->step : 0;
  std::optional<elastic::Warden> warden;
  if (callers == nullptr) {
    warden.emplace(or_throw(elastic::Warden::start(order.facts.run_id)));
  } else {
    const std::chrono::duration<double> at_most(config.run().start_timeout_s);
    order.callers = or_throw(callers->gather(config.run().workers, at_most));
  }
  const elastic::RunDirectory directory = order.directory;
  const std::string config_before = order.config_before;
  elastic::Agent agent(std::move(order), observer, std::move(warden));
  summary.end = agent.run();
  put_config_back(config, config_before, summary.end, agent, observer);
  if (options.trace && leave_trace(directory, summary.run_id, *options.trace, observer)) summary.trace = *options.trace;
  for (const InjectedKill& kill : agent.pending_kills()) {
    const std::string who = kill.agent ? "the agent" : fmt::format("rank {}", kill.rank);
    observer.on_event(kill.leave ? fmt::format("--inject: {} did not leave at step {}", who, kill.step)
                                 : fmt::format("--inject: the {} of {} at step {} ({}) did not happen",
                                               kill.stop ? "stop" : "kill", who, kill.step, kill.at),
                      true);
  }
  summary.directory = agent.directory().path();
  summary.uses_api = agent.uses_api();
  summary.generations = agent.generations();
  summary.restarts = agent.restarts();
  summary.world_size = agent.world_size();
  summary.shrunk_by = agent.shrunk_by();
  summary.digests = agent.digests();
  summary.digest_seconds = agent.digest_seconds();
  summary.sharded_memory = agent.sharded_memory();
  summary.passes = agent.traced_passes().all;
  summary.passes_followed = agent.traced_passes().followed;
  summary.gathered = agent.traced_passes().gathered;
  summary.gathered_bytes = agent.traced_passes().gathered_bytes;
  summary.bytes_moved = agent.bytes_moved();
  summary.steps_this_run = agent.pace().steps();
  if (agent.ledger()) {
    summary.best = elastic::best_snapshot(agent.ledger()->lineage(), config.run(), [&](const auto& one) {
      std::error_code error;
      return fs::exists(summary.directory / one.file, error);
    });
  }
  if (agent.ledger() && agent.batches() != nullptr) {
    const elastic::Lineage& lineage = agent.ledger()->lineage();
    sum_up_lineage(summary, lineage, *agent.batches(), summary.directory);
    summary.seconds_lost = agent.pace().seconds_lost();
    summary.seconds_to_recover_worst = agent.pace().worst_recovery();
    summary.tokens_per_second = agent.pace().tokens_per_second();
    const bool is_short = summary.samples_missing > 0 || summary.samples_repeated > 0;
    if (summary.end.outcome == JobOutcome::kFinished && is_short) {
      summary.end = elastic::job_failed("the ledger does not hold every sample exactly once");
    }
  }
  std::error_code absent;
  const bool goes_on = summary.end.outcome == JobOutcome::kStopped || summary.end.outcome == JobOutcome::kEndedEarly ||
                       (elastic::is_broken_off(summary.end) && summary.steps > 0);
  if (goes_on && fs::exists(agent.directory().config(), absent))
    summary.resume = elastic::resume_command(agent.directory(), options.command);
  summary.wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return summary;
}

}  // namespace

void refuse_calls(int listener, const Error& why) {
  elastic::Callers(FileDescriptor(listener)).refuse(why);
}

JobSummary run_job(const Config& config, const JobOptions& options, JobObserver& observer) {
  if (!options.calling) return run_settled(config, with_run_found(config, options), observer, nullptr);
  elastic::Callers callers(FileDescriptor(options.calling->listener), options.calling->starter);
  try {
    return run_settled(config, with_run_found(config, options), observer, &callers);
  } catch (const Error& error) {
    callers.refuse(error);
    throw;
  }
}

}  // namespace pliant
