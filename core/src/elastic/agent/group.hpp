// Group: the agent's decisions about workers that use the embedding API: who is which rank, when a step is final, what
// to do when a worker is lost. Pure: it sees events and asks for actions, so that tests can play any history.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "elastic/agent/cost_fit.hpp"
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
};
/// "was killed by signal 9 (Killed)", "exited with code 1: no such file".
std::string describe(const ExitStatus& status);

/// Exit code of a job that cannot write its ledger: 2 when there is no room for it, which the operator can mend,
/// else 1.
int code_of(const Error& error);

/// What the plan says of a job's steps.
struct StepFacts {
  int64_t epoch = 0;
  int64_t batch_index = 0;
  BatchSize size;
  uint64_t digest = 0;
};

/// What the group asks of the agent.
class GroupActions {
 public:
  virtual ~GroupActions() = default;
  virtual void send(WorkerId worker, const ToWorker& message) = 0;
  /// Starts one more worker; Group::started follows.
  virtual void spawn() = 0;
  virtual void kill(WorkerId worker) = 0;
  /// True when the process is stopped (SIGSTOP, a debugger).
  [[nodiscard]] virtual bool is_stopped(WorkerId worker) = 0;
  /// The number of the next generation, from the rendezvous.
  virtual Result<int64_t> next_generation(int64_t world_size) = 0;
  /// Called once the first worker is ready: the dataset is in the run directory. Returns the job's steps.
  virtual Result<int64_t> total_steps(const std::string& fingerprint) = 0;
  virtual StepFacts facts_of(int64_t step) = 0;
  /// Which rank computes what. `how`: world size and micro-batch; the rest is the job's.
  virtual Result<Assignment> assignment_of(int64_t step, const Sharing& how, CostRates rates) = 0;
  virtual Result<> record(const CommitRecord& record) = 0;
  virtual Result<> record(const GenerationRecord& record) = 0;
  virtual Result<> record(const SnapshotRecord& record) = 0;
  virtual Result<> record(const RestartRecord& record) = 0;
  virtual void committed(const CommitRecord& record, int64_t world_size, int64_t total_steps) = 0;
  virtual void event(const std::string& line, bool warning) = 0;
  /// Work was lost just now.
  virtual void interrupted() = 0;
  /// Seconds, monotonic.
  [[nodiscard]] virtual double now() const = 0;
  /// Dies by SIGKILL when an injection says so.
  virtual void agent_kill_point(int64_t step, const char* at) = 0;
};

struct GroupOptions {
  int64_t workers = 1;
  std::map<int64_t, int64_t> micro_batch_of;  ///< by valid world size <= workers, for the pinned global batch
  std::map<int64_t, int64_t> other_batch_of;  ///< sizes that are not valid because the policy answers another batch
  CostRates rates;                            ///< what the balancer begins with
  bool fit = false;                           ///< the rates follow the measured times
  std::string on_loss = "replace";
  int64_t max_restarts = 3;
  bool must_attach = false;  ///< a worker that never says Hello is late too
  double start_timeout_s = 120;
  double hang_timeout_s = 300;
  double min_resize_interval_s = 0;  ///< between two resizes that nothing forces
  int64_t snapshot_every = 0;
  std::vector<InjectedKill> injections;
};

/// The end of a job.
struct Verdict {
  int exit_code = 0;
  std::string outcome;
  std::string reason;
};

class Group {
 public:
  /// `committed`: steps on the lineage; `snapshot`: the newest one, when the job resumes.
  Group(GroupOptions options, GroupActions& actions, int64_t committed, std::optional<SnapshotRecord> snapshot);

  void started(WorkerId worker);
  void received(WorkerId worker, const FromWorker& message);
  void ended(WorkerId worker, const ExitStatus& status);
  /// Commit what is under way, snapshot, end. `exit_code`: 130 or 143.
  void request_stop(int exit_code);
  /// Looks for workers that are late. Call about every second.
  void tick();

  /// Set when every worker is gone and the job is over.
  [[nodiscard]] const std::optional<Verdict>& verdict() const { return over_; }
  [[nodiscard]] bool uses_api() const { return uses_api_; }
  [[nodiscard]] int64_t committed() const { return committed_; }
  [[nodiscard]] int64_t generations() const { return generations_; }
  [[nodiscard]] int64_t restarts() const { return restarts_; }
  /// Injected kills that were not carried out.
  [[nodiscard]] std::vector<InjectedKill> unstruck() const;

 private:
  /// kSaving: the last step is committed, all ranks wait, one of them writes the snapshot that the job ends with.
  enum class Phase { kStarting, kForming, kRunning, kSaving, kEnding };
  struct Member {
    bool hello = false;
    bool ready = false;
    bool finished = false;
    bool stopped = false;  ///< Stop was sent
    int64_t rank = -1;
    int64_t holds = 0;  ///< committed steps in its state, at least
    bool asked = false;
    bool told = false;  ///< holds is its own answer to Tell
    bool formed = false;
    bool reducing = false;
    std::optional<Vote> vote;
    double since = 0;    ///< when it was started
    std::string fenced;  ///< why it was killed for being late
  };

  void on(WorkerId worker, Member& member, const Ready& message);
  void on(WorkerId worker, Member& member, const CommIdMade& message);
  void on(WorkerId worker, Member& member, const Formed& message);
  void on(WorkerId worker, Member& member, const Holds& message);
  void on(WorkerId worker, Member& member, const Reducing& message);
  void on(WorkerId worker, Member& member, const Vote& message);
  void on(WorkerId worker, Member& member, const Broken& message);
  void on(WorkerId worker, Member& member, const SnapshotWritten& message);
  void on(WorkerId worker, Member& member, const Injected& message);
  void on(WorkerId worker, Member& member, const Finished& message);
  void on(WorkerId worker, Member& member, const Failed& message);
  void on(WorkerId worker, Member& member, const Hello& message);

  [[nodiscard]] int64_t largest_world(int64_t at_most) const;
  [[nodiscard]] std::string why_not(int64_t world_size) const;
  [[nodiscard]] std::vector<WorkerId> ready_members() const;
  [[nodiscard]] std::string label(WorkerId worker) const;
  [[nodiscard]] bool must_ask(const std::vector<WorkerId>& ready);
  void abort_generation();
  void regroup(const std::string& reason);
  void form(std::vector<WorkerId> ready, int64_t world_size, const std::string& reason);
  void try_commit();
  /// The assignment of the step in hand; nullptr when the balancer failed, which ends the job.
  const Assignment* assignment();
  /// What the ranks' times of the step say of the costs.
  void learn_costs();
  void finish_step(const CommitRecord& record);
  /// Whether workers that wait may join now; says once why not.
  [[nodiscard]] bool may_grow();
  /// Has a worker that holds the last commit write the final snapshot; false when there is none.
  [[nodiscard]] bool save();
  [[nodiscard]] Verdict verdict_when_saved() const;
  void lost(WorkerId worker, const Member& member, const std::string& how);
  void end(Verdict verdict, bool kill_now);
  void fence_hung(double waited);
  [[nodiscard]] std::vector<Injection> injections_for(int64_t rank) const;

  GroupOptions options_;
  GroupActions& actions_;
  Phase phase_ = Phase::kStarting;
  std::map<WorkerId, Member> members_;
  std::vector<WorkerId> ranks_;  ///< of the present generation
  int64_t generation_ = 0;
  std::string reason_ = "start";
  int64_t generations_ = 0;
  int64_t restarts_ = 0;
  int64_t broken_in_a_row_ = 0;
  int64_t committed_ = 0;
  int64_t total_steps_ = 0;
  std::string fingerprint_;
  CostFit fit_;
  CostRates rates_;
  std::optional<Assignment> assignment_;  ///< of the step in hand, once it was needed
  std::optional<SnapshotRecord> snapshot_;
  bool grow_ = false;  ///< regroup at the next commit
  bool told_of_wait_ = false;
  std::optional<double> grown_at_;  ///< the last resize that nothing forced
  WorkerId saver_ = -1;             ///< writes the final snapshot
  int stop_code_ = 0;               ///< 0: no stop was asked for
  bool uses_api_ = false;
  double progress_at_ = 0;          ///< last sign of progress
  std::optional<Verdict> pending_;  ///< the verdict once all workers are gone
  std::optional<Verdict> over_;
};

}  // namespace pliant::elastic
