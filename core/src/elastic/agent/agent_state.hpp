// What an Agent holds: its workers with the handles through which the loop hears of them, its run, its decisions. One
// thread.
#pragma once

#include <signal.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/durable_file.hpp"
#include "elastic/agent/agent.hpp"
#include "elastic/agent/job_plan.hpp"
#include "elastic/agent/rescue.hpp"
#include "elastic/agent/stop.hpp"
#include "elastic/agent/worker_log.hpp"
#include "elastic/agent/worker_process.hpp"
#include "sharded/visit_page.hpp"

namespace pliant::elastic {

struct Agent::State final : GroupActions, ForeignActions {
  using Clock = std::chrono::steady_clock;
  static constexpr double kOneOrderSeconds = 1;  ///< signals so close to one another count as one

  // A worker with the handles through which the loop hears of it. The handles are copies: the process owns the
  // originals.
  struct Slot {
    WorkerProcess process;
    int64_t rank;
    WorkerLog log;
    boost::asio::posix::stream_descriptor socket;
    boost::asio::posix::stream_descriptor end;
    bool broken = false;                           ///< speaks no protocol, and is killed for it
    bool is_ended = false;                         ///< by the agent, or an injection
    bool has_finished = false;                     ///< says so
    std::optional<sharded::VisitReader> visits{};  ///< of a sharded job, once it was asked for
  };

  State(AgentOrder given, JobObserver& hears, std::optional<Warden> guard)
      : order(std::move(given)),
        launches(order.callers.empty()),
        observer(hears),
        warden(std::move(guard)),
        ledger(std::move(order.ledger)) {}

  AgentOrder order;
  const bool launches;  // its workers; else they have called, and whoever started them starts them again
  JobObserver& observer;
  std::optional<Warden> warden;
  std::optional<Ledger> ledger;
  std::optional<JobPlan> job_plan;
  std::optional<Rendezvous> rendezvous;
  std::optional<Group> group;
  std::optional<ForeignGroup> foreign;
  boost::asio::io_context loop{1};
  StopSignals stop_signals{loop};
  StopCalls stop_calls{loop};
  boost::asio::steady_timer timer{loop};
  boost::asio::steady_timer visits_timer{loop};
  std::optional<boost::asio::posix::stream_descriptor> warden_end;
  bool warden_missing = false;
  std::map<WorkerId, Slot> slots;
  WorkerId next_worker = 0;
  Generation generation;  // the newest one
  bool generation_in_hand = false;
  int64_t foreign_restarts = 0;              // before the program said that it uses the API
  int stops_seen = 0;                        // signals and calls
  double signalled_at = -kOneOrderSeconds;   // when the last signal came
  std::optional<JobEnd> forced;              // by a second of these
  std::string spawn_failure;                 // of the first group, or of a foreign one
  std::vector<ExitStatus> shown_ends;        // of workers whose last lines were shown
  int64_t replacements = 0;                  // workers that were started in the place of others, one at a time
  int64_t workers_owed = 0;                  // that are to be started and could not be yet
  std::string spawn_refused;                 // why, as it was last said
  size_t pruned = 0;                         // snapshots of the lineage whose files were removed, from the oldest on
  std::string best_kept;                     // file of the snapshot that [run] keep_best keeps
  uintmax_t dataset_size = 0;                // bytes of the file in the run directory
  FileDescriptor home;                       // the run directory, as it was
  HeldLists lists;                           // of it, once workers have made them
  std::string gone;                          // what became of the run directory; empty: it is there
  std::optional<DirectoryLock> rescue_lock;  // of the one that was made instead
  Clock::time_point began = Clock::now();
  Pace pace;
  std::optional<Evaluation> last_evaluation;

  // The common part of both kinds of group.

  [[nodiscard]] double now() const override { return std::chrono::duration<double>(Clock::now() - began).count(); }
  void event(const std::string& line, bool warning) override { observer.on_event(line, warning); }
  void busy(const std::vector<BusyWorker>& workers) override { observer.on_busy(workers); }
  void kill(WorkerId worker) override { signal(worker, SIGKILL); }
  void wake(WorkerId worker) override { signal(worker, SIGCONT); }
  void signal(WorkerId worker, int number) override;
  [[nodiscard]] std::optional<std::string> how_visits_differ(const std::vector<WorkerId>& ranks, int64_t of_generation,
                                                             bool all_done) override;
  /// nullptr: it has none.
  [[nodiscard]] const sharded::VisitReader* page_of(WorkerId worker, Slot& slot) const;
  [[nodiscard]] bool is_stopped(WorkerId worker) override;
  std::vector<std::pair<std::string, std::string>> environment(int64_t rank, int64_t world_size,
                                                               int64_t restarts) const;

  // Starts one worker and listens to it.
  Result<> start(int64_t rank, int64_t world_size, int64_t restarts);
  /// Welcomes those that have called and listens to them.
  void adopt_group();
  /// The number of a worker that runs from now on.
  WorkerId take(WorkerProcess process, int64_t rank, WorkerLog log);
  /// Hears of what it says, and of its end.
  void attend(WorkerId id);
  void listen(WorkerId id);

  // Handles what a worker has said; false when there is nothing more to hear from it.
  bool hear(WorkerId id);

  // Kills a worker that does not keep to the protocol; its end is a loss like any other. Returns false.
  bool break_with(WorkerId id, const Error& why);
  void flush(WorkerId id);
  void worker_ended(WorkerId id);

  // Whoever stops a job often signals the agent and the workers together (systemd, Slurm). A worker that died of that
  // is no loss, so the agent gives its own signal time to arrive.
  [[nodiscard]] bool order_to_stop(const ExitStatus& status) const;
  void count_end(WorkerId id, const ExitStatus& status);
  void show_log(Slot& slot, bool all);
  /// The last lines of one that ended as none before it.
  void show_tail(const Slot& slot, const ExitStatus& status, const std::vector<std::string>& lines);

  // GroupActions.

  void send(WorkerId worker, const ToWorker& message) override;
  void spawn() override;
  [[nodiscard]] int64_t owed() const override { return workers_owed; }

  // What keeps a worker from being started, a lack of descriptors say, may pass.
  void spawn_owed();

  // A worker that joins reads what the agent has in its memory: what was removed or damaged since is written again.
  void restore_files();
  Result<> spawn_one();
  void spawn_group(int64_t world_size, int64_t restarts) override;
  Result<int64_t> next_generation(int64_t world_size) override;
  Result<> open_plan(const std::string& fingerprint) override;
  /// Of a run that goes on in a later epoch: opens the plan there. False where the run's list of epochs does not lead
  /// there, or the ledger is not of what the sampler gives there.
  [[nodiscard]] bool open_plan_in_epoch(const Plan& plan, const Dataset& dataset);
  bool has_step(int64_t step) override { return job_plan->batches().has_step(step); }
  Result<StepFacts> facts_of(int64_t step) override { return job_plan->facts_of(step); }
  Result<Assignment> assignment_of(int64_t step, const Sharing& how, CostRates rates) override {
    return job_plan->assignment_of(step, how, rates);
  }

  Result<> record(const CommitRecord& entry) override { return append(entry); }
  Result<> record(const GenerationRecord& entry) override;
  Result<> record(const RestartRecord& entry) override { return append(entry); }
  Result<> record(const NotFiniteRecord& entry) override { return append(entry); }
  Result<> record(const Evaluation& entry) override;
  Result<> record(const EndRecord& entry) override { return append(entry); }
  Result<> record(const SnapshotRecord& entry) override;
  void drop_snapshot(const SnapshotRecord& entry) override;
  std::string snapshot_path(int64_t step) const override;
  void confirmed(const SnapshotRecord& entry) override { prune_snapshots(entry.step); }
  bool has_snapshot(const SnapshotRecord& entry) const override;
  std::optional<Evaluation> evaluation_of(int64_t steps) const override;
  std::optional<std::pair<std::string, std::string>> first_difference(const std::string& one,
                                                                      const std::string& other) const override;
  [[nodiscard]] bool has_newest_snapshot() const;
  std::string resume_command() const override {
    return elastic::resume_command(order.directory, order.options.command);
  }

  template <class Record>
  Result<> append(const Record& entry) {
    if (Result<> there = look(); !there) return there;
    return ledger->append(entry);
  }

  // Whether the run directory is still there. The first look that finds it gone leaves it for a fresh one, whose ledger
  // has the same records; the job ends then, with a snapshot there where there is one or a worker can write one.
  Result<> look();

  // For a rescue: what is held can still be read when it is removed.
  void hold_lists();

  // A foreign program keeps its state elsewhere and goes on; what it prints is lost.
  void look_without_ledger();
  void leave_directory();
  Result<> move_to_fresh_directory();

  // The end of the job, unless nothing is left of the run that it is about.
  JobEnd at_end(JobEnd over);

  // Keeps the newest ones of at most `step` steps, and those of more, which do not count yet.
  void prune_snapshots(int64_t step);
  void say_what_keep_best_missed();
  void interrupted() override { pace.interrupted(now()); }

  void committed(const CommitRecord& entry, int64_t world_size) override;
  void agent_kill_point(int64_t step, const char* at) override;

  // The loop.

  void listen_for_stops();

  // For signal `number`. `by`: what asks for it, in one word.
  void stop(int number, const char* by);
  void wait_for_tick();
  /// Of a sharded job: compares what its ranks visit, ten times a second.
  void wait_for_visits();
  void tend_warden();
  void watch_warden();
  [[nodiscard]] std::optional<JobEnd> job_end() const;
  void open_group(int64_t restarts_spent);
  void open_groups();
  JobEnd run();
};

}  // namespace pliant::elastic
