// GroupActions: what a group of workers asks of the agent, and the words that both use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "elastic/ledger.hpp"
#include "elastic/message.hpp"
#include "pliant/balancer.hpp"
#include "pliant/batches.hpp"
#include "pliant/job.hpp"

namespace pliant::elastic {

using WorkerId = int64_t;  ///< 0, 1, ... in the order of starting; never reused

/// How a worker process ended.
struct ExitStatus {
  bool signalled = false;
  int code = 0;              ///< exit code, or the signal
  std::string last_words{};  ///< of one that failed, from its log; may be empty
  bool is_known = true;      ///< false: it was not the agent's child
};
[[nodiscard]] WorkerEnd worker_end(const ExitStatus& status);
/// "was killed by signal 9 (Killed)", "exited with code 1: no such file".
std::string describe(const ExitStatus& status);
/// By a fault of its own: an exit code other than 0, or a signal that a fault raises, as SIGSEGV and SIGABRT.
bool ended_by_fault(const ExitStatus& status);
/// They ended alike: with the same code or signal, and last words that differ at most in numbers, as of ranks.
bool ended_alike(const ExitStatus& one, const ExitStatus& other);
/// Why a job ends all of whose `count` workers ended as `status` at their start; `one` is how the first did.
std::string all_ended_alike(int64_t count, const std::string& one, const ExitStatus& status);

/// The end of a job that cannot write its ledger: kInput when there is no room for it, which the operator can mend.
/// `what` is said before the error's own words.
[[nodiscard]] JobEnd job_without_ledger(const Error& error, const std::string& what = {});

/// What the plan says of a job's steps.
struct StepFacts {
  int64_t epoch = 0;
  int64_t batch_index = 0;
  BatchSize size;
  uint64_t digest = 0;
  uint64_t rows = 0;  ///< digest_of the batch
};

/// What the group asks of the agent.
class GroupActions {
 public:
  virtual ~GroupActions() = default;
  virtual void send(WorkerId worker, const ToWorker& message) = 0;
  /// Starts one more worker, now or as soon as it can be; Group::started follows.
  virtual void spawn() = 0;
  /// Workers that spawn() was asked for and that could not be started yet.
  [[nodiscard]] virtual int64_t owed() const = 0;
  virtual void kill(WorkerId worker) = 0;
  /// Continues a stopped process (SIGCONT).
  virtual void wake(WorkerId worker) = 0;
  /// True when the process is stopped (SIGSTOP, a debugger).
  [[nodiscard]] virtual bool is_stopped(WorkerId worker) = 0;
  /// The number of the next generation, from the rendezvous.
  virtual Result<int64_t> next_generation(int64_t world_size) = 0;
  /// Called once the first workers agree and one of them has written the dataset into the run directory.
  virtual Result<> open_plan(const std::string& fingerprint) = 0;
  /// False when the job ends before `step`. Not more expensive than facts_of(step - 1).
  virtual bool has_step(int64_t step) = 0;
  virtual Result<StepFacts> facts_of(int64_t step) = 0;
  /// Which rank computes what. `how`: world size and micro-batch; the rest is the job's.
  virtual Result<Assignment> assignment_of(int64_t step, const Sharing& how, CostRates rates) = 0;
  virtual Result<> record(const CommitRecord& record) = 0;
  virtual Result<> record(const GenerationRecord& record) = 0;
  virtual Result<> record(const SnapshotRecord& record) = 0;
  virtual Result<> record(const RestartRecord& record) = 0;
  virtual Result<> record(const NotFiniteRecord& record) = 0;
  virtual Result<> record(const Evaluation& record) = 0;
  virtual Result<> record(const EndRecord& record) = 0;
  /// Where a worker writes the snapshot of `step`: relative to the run directory or absolute. Empty: nowhere.
  [[nodiscard]] virtual std::string snapshot_path(int64_t step) const = 0;
  /// Removes the file of a snapshot that was recorded: what it holds is wrong, or nobody knows.
  virtual void drop_snapshot(const SnapshotRecord& record) = 0;
  /// What `record` holds was compared, or nobody compares: snapshots before it are kept for keep_snapshots alone.
  virtual void confirmed(const SnapshotRecord& record) = 0;
  /// False when the file of a snapshot that was recorded is gone.
  [[nodiscard]] virtual bool has_snapshot(const SnapshotRecord& record) const = 0;
  /// The last evaluation of at most `steps` committed steps that was recorded; nullopt: there is none.
  [[nodiscard]] virtual std::optional<Evaluation> evaluation_of(int64_t steps) const {
    static_cast<void>(steps);
    return std::nullopt;
  }
  virtual void committed(const CommitRecord& record, int64_t world_size) = 0;
  /// What a person types to go on with the run where it lies now (elastic::resume_command).
  [[nodiscard]] virtual std::string resume_command() const = 0;
  /// Of a sharded job: how the ranks of a generation differ in what they have visited, in words (how_visits_differ);
  /// nullopt: not at all, or nobody knows.
  [[nodiscard]] virtual std::optional<std::string> how_visits_differ(const std::vector<WorkerId>& ranks,
                                                                     int64_t generation, bool all_done) {
    static_cast<void>(ranks);
    static_cast<void>(generation);
    static_cast<void>(all_done);
    return std::nullopt;
  }
  /// Where the lists with these digests begin to differ, which workers have brought (Session::State::noted): a line of
  /// each. nullopt: nobody knows.
  [[nodiscard]] virtual std::optional<std::pair<std::string, std::string>> first_difference(
      const std::string& one, const std::string& other) const {
    static_cast<void>(one);
    static_cast<void>(other);
    return std::nullopt;
  }
  /// Workers whose programs do what is no step; empty: none does any more.
  virtual void busy(const std::vector<BusyWorker>& workers) { static_cast<void>(workers); }
  virtual void event(const std::string& line, bool warning) = 0;
  /// Work was lost just now.
  virtual void interrupted() = 0;
  /// Seconds, monotonic.
  [[nodiscard]] virtual double now() const = 0;
  /// Dies by SIGKILL when an injection says so.
  virtual void agent_kill_point(int64_t step, const char* at) = 0;
};

}  // namespace pliant::elastic
