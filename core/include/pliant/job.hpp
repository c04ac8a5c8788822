// run_job(): the agent. Starts the workers of a job, keeps them in step, and sees to it that what they commit is final.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pliant/config.hpp"
#include "pliant/error.hpp"
#include "pliant/metric.hpp"
#include "pliant/sharded.hpp"

namespace pliant {

/// A death, a stop or an announced departure to be arranged, for tests and for seeing what happens:
/// "kill:rank=2,step=20,at=reduce", "stop:rank=2,step=20", "kill:agent,step=20" or "leave:rank=2,step=20".
struct InjectedKill {
  bool agent = false;
  bool leave = false;  ///< it leaves when the step is committed; `at` says nothing then
  bool stop = false;   ///< by SIGSTOP instead of SIGKILL: it stays where it is until it is continued or killed
  int64_t rank = 0;    ///< of the generation that computes the step
  int64_t step = 0;
  /// forward, reduce, vote, commit, apply, copy (half way through a joiner's copy, or a move of parts, the first from
  /// `step` on), snapshot (as it writes the first one that holds `step` steps or more); in sharded jobs also gather,
  /// scatter, and finish (as it finishes such a snapshot). The agent knows vote and commit.
  std::string at = "forward";
};

/// Throws kInvalidArgument (kInput) with the grammar.
InjectedKill parse_injection(std::string_view text);

namespace detail {
struct Inside;
}  // namespace detail

/// Ends a job from outside of it. Copies are one handle; a handle is for one job.
class JobStop {
 public:
  /// Throws kResourceExhausted (kRun) when there is no descriptor for it.
  JobStop();
  /// The first call ends the job after the step at hand, with a snapshot; workers of a foreign program get SIGTERM, and
  /// SIGKILL when they are still there after [run] stop_grace_s. The second call kills the workers at once. The job's
  /// outcome is kStopped then, as by SIGTERM. A call before the job begins counts as soon as it has. Thread-safe, and
  /// async-signal-safe.
  void request() const noexcept;

 private:
  friend struct detail::Inside;
  struct State;
  std::shared_ptr<const State> state_;
};

/// Workers that another launcher starts on this machine, torchrun say, and that call their agent (Session::attach_at).
/// When one of them ends before the job is done the others write a snapshot and are killed: their launcher starts all
/// of them again, beside another agent that goes on with the run. Their output is theirs, [run] command and
/// working_dir mean nothing, and nobody takes care of them should the agent die: their sessions throw then.
struct CallingWorkers {
  int listener = -1;  ///< a listening Unix socket, which run_job takes over; config.run().workers of them call there
  /// Names one start of the launcher, and is kept in the run. The run that it names is resumed where there is one, so
  /// that a group that is started again goes on. Empty: none is.
  std::string launcher{};
  /// A pipe that stays with its owner, or -1. That it ends before all workers have called says that the process which
  /// started this one is gone: the job ends.
  int starter = -1;
};

struct JobOptions {
  std::vector<std::string> command;  ///< replaces [run] command when not empty
  std::vector<InjectedKill> injections;
  bool show_logs = false;  ///< what the workers print becomes events: "rank 2| ..."
  bool resume = false;
  std::optional<std::filesystem::path> resume_dir;  ///< the run to resume; unset: the latest of this name
  bool resume_or_begin = false;                     ///< where there is none of this name a new run begins
  /// SIGINT, SIGTERM and SIGHUP (unless it is ignored) end the job as JobStop does; two within a second are one. What
  /// the program did with them is put back when run_job ends. false: no signal is touched.
  bool take_signals = false;
  std::optional<JobStop> stop;            ///< a handle to end the job with
  std::optional<CallingWorkers> calling;  ///< in the place of workers that run_job starts
  /// Written when the job ends, however it ends, in the format of docs/reference/trace.md: what every rank did and
  /// when. One that is there is replaced. run_job throws for one that cannot be written, before a worker starts.
  std::optional<std::filesystem::path> trace;
};

/// Where the job stands after a commit.
struct JobProgress {
  int64_t step = 0;  ///< committed steps
  int64_t total_steps = 0;
  double loss = 0;
  double learning_rate = 0;
  int64_t world_size = 0;
  int64_t tokens = 0;                     ///< of this step
  double tokens_per_second = 0;           ///< over the last steps
  double seconds = 0;                     ///< since the job began
  double seconds_left = 0;                ///< estimate
  std::map<std::string, double> metrics;  ///< of this step
  std::optional<Evaluation> evaluation;   ///< the last one of this run
};

/// A worker whose program does what is no step (Session::busy).
struct BusyWorker {
  int64_t worker = 0;  ///< number in the order of starting, from 0
  int64_t rank = -1;   ///< -1: it has none
  std::string what;
  double seconds = 0;    ///< since it began
  double at_most_s = 0;  ///< as the program said
};

/// Hears what happens. Called from the thread that runs run_job.
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  virtual void on_commit(const JobProgress&) {}
  /// All that are busy now, again and again while there are some, and once when there are none any more.
  virtual void on_busy(const std::vector<BusyWorker>&) {}
  /// One line for people. `warning`: something was lost or may be wrong.
  virtual void on_event(std::string_view /*line*/, bool /*warning*/) {}
};

/// What became of a job.
enum class JobOutcome {
  kFinished,     ///< every step is committed; of a foreign program: all workers exited with code 0
  kEndedEarly,   ///< as the program asked: Session::end_after_step
  kStopped,      ///< on demand: by a signal or a JobStop
  kFailed,       ///< JobEnd::origin says where the failure comes from
  kNoWorldSize,  ///< fewer workers are left than the smallest valid world size; it can be resumed when there are more
};
/// "finished", "ended early", "stopped", "failed" or "no valid world size".
[[nodiscard]] std::string_view name_of(JobOutcome outcome);

/// How a worker process ended.
struct WorkerEnd {
  int exit_code = 0;  ///< its own, where no signal ended it; 255 where this program waited for it elsewhere
  int signal = 0;     ///< that ended it; 0: none
};

/// How a job ended.
struct JobEnd {
  JobOutcome outcome = JobOutcome::kFinished;
  std::string reason;            ///< for everything but kFinished
  Origin origin = Origin::kRun;  ///< of kFailed: of a wrong config or program kInput, of a plugin that failed kPlugin
  int signal = 0;                ///< of kStopped: the signal; SIGTERM where JobStop stopped it
  /// Of kFailed and kNoWorldSize: how the worker ended for which the job did. Unset where it was another cause, and
  /// where the agent had killed the worker: reason says why.
  std::optional<WorkerEnd> worker{};
};

struct JobSummary {
  JobEnd end;
  bool uses_api = false;  ///< false: a foreign program; the fields on steps and samples are then zero
  std::string run_id;
  std::filesystem::path directory;
  int64_t steps = 0;  ///< committed, over the whole lineage
  int64_t steps_this_run = 0;
  int64_t steps_skipped = 0;     ///< of the committed ones: their update was not finite and was left out
  int64_t digests = 0;           ///< steps of this run at whose beginning the ranks' states were compared
  double digest_seconds = 0;     ///< that this took, on the slowest rank each time
  ShardedMemory sharded_memory;  ///< bytes by kind, the most of any worker; zeros where the job is not sharded
  int64_t bytes_moved = 0;       ///< of a sharded state, from owner to owner while the job ran
  int64_t passes = 0;  ///< over a sharded model, of the worker that made most; 0 where the coordinator keeps no trace
  int64_t passes_followed = 0;  ///< of these: in the order that the coordinator had recorded, so that it fetched ahead
  int64_t gathered = 0;         ///< parameters that became whole on that worker, each as often as it did
  uint64_t gathered_bytes = 0;  ///< of these, whole
  int64_t total_steps = 0;
  int64_t resumed_from = -1;  ///< step of the snapshot; -1 = a fresh job
  int64_t global_batch = 0;
  int64_t workers = 0;
  int64_t world_size = 0;  ///< of the last generation; 0: none stood
  std::string shrunk_by;   ///< why that is fewer than workers; empty: it is not
  int64_t tokens = 0;      ///< over the lineage
  /// Part of the rows' room that tokens fill: tokens over rows times the sampler's budget, or times the longest row
  /// where it has none.
  double packing_efficiency = 0;
  double efficiency_without_packing = 0;  ///< the same with a row for each sequence, as long as the longest one
  double loss_first = 0;                  ///< mean of the first ten steps
  double loss_last = 0;                   ///< mean of the last ten
  double tokens_per_second = 0;           ///< this run, from the first to the last commit, interruptions included
  int64_t samples_expected = 0;
  int64_t samples_used_once = 0;
  int64_t samples_repeated = 0;
  int64_t samples_missing = 0;
  std::map<std::string, int64_t> samples_dropped;
  int64_t generations = 0;  ///< of this run
  int64_t restarts = 0;     ///< workers, or groups of a foreign program, started again
  double seconds_lost = 0;  ///< between the last commit before each loss and the first after it, less a usual step
  double seconds_to_recover_worst = 0;  ///< from the notice of a loss to the next commit, the longest
  double wall_seconds = 0;
  std::map<std::string, double> metrics;  ///< of the last step that has each
  std::vector<Evaluation> evaluations;    ///< of the lineage
  std::string snapshot;                   ///< the newest one, relative to directory; empty: none
  std::optional<BestSnapshot> best;       ///< as [run] keep_best asks
  std::string resume;           ///< the command that goes on with the run, as a shell takes it; empty: nothing is left
  std::filesystem::path trace;  ///< that was written; empty: none
};

/// What a job needs of `config`, which may have been opened with no needs at all: whatever it has a section of, a
/// sampler, a balancer and a rendezvous.
ConfigNeeds job_needs(const Config& config);

/// Runs the job to its end. `config` was opened with job_needs. Throws for what is wrong before the first worker
/// starts; what happens later is in the summary. The calling process becomes the workers' parent; call it from the main
/// thread. Changes nothing that is the whole process's (signals only with options.take_signals), and needs two things
/// of it: SIGCHLD is not ignored (kFailedPrecondition otherwise), and nobody else waits for children that he did not
/// start.
JobSummary run_job(const Config& config, const JobOptions& options, JobObserver& observer);

/// Where a job does not come to run_job: tells those that have called at `listener`, which is closed, why.
void refuse_calls(int listener, const Error& why);

}  // namespace pliant
