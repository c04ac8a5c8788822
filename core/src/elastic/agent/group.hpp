// Group: the agent's decisions about workers that use the embedding API: who is which rank, when a step is final, what
// to do when a worker is lost. Pure: it sees events and asks for actions, so that tests can play any history.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
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
  /// Where a worker writes the snapshot of `step`: relative to the run directory or absolute. Empty: nowhere.
  [[nodiscard]] virtual std::string snapshot_path(int64_t step) const = 0;
  /// Removes the file of a snapshot that was recorded: what it holds is wrong, or nobody knows.
  virtual void drop_snapshot(const SnapshotRecord& record) = 0;
  /// What `record` holds was compared, or nobody compares: snapshots before it are kept for keep_snapshots alone.
  virtual void confirmed(const SnapshotRecord& record) = 0;
  /// False when the file of a snapshot that was recorded is gone.
  [[nodiscard]] virtual bool has_snapshot(const SnapshotRecord& record) const = 0;
  virtual void committed(const CommitRecord& record, int64_t world_size) = 0;
  /// Of a sharded job: how the ranks of a generation differ in what they have visited, in words (how_visits_differ);
  /// nullopt: not at all, or nobody knows.
  [[nodiscard]] virtual std::optional<std::string> how_visits_differ(const std::vector<WorkerId>& ranks,
                                                                     int64_t generation, bool all_done) {
    static_cast<void>(ranks);
    static_cast<void>(generation);
    static_cast<void>(all_done);
    return std::nullopt;
  }
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
  std::string on_nonfinite = "stop";
  std::string fingerprint;                   ///< of the run that the job resumes; empty: it has no ledger yet
  std::optional<int64_t> stopped_before_at;  ///< the step that was not finite when this job ended the last time
  int64_t max_restarts = 3;
  bool compare_states = false;  ///< after a copy and after the last step, too; [run] digest_every above 0
  bool must_attach = false;     ///< a worker that never says Hello is late too
  double start_timeout_s = 120;
  double hang_timeout_s = 300;
  double min_resize_interval_s = 0;  ///< between two resizes that nothing forces
  int64_t snapshot_every = 0;
  bool trace = false;  ///< workers record what they do
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
  /// Nothing more can be committed: gives up the step under way, snapshots where snapshot_path says by now, ends.
  void fail(Verdict verdict);
  /// Looks for workers that are late. Call at least every second: more time between two calls counts for nobody.
  void tick();

  /// Set when every worker is gone and the job is over.
  [[nodiscard]] const std::optional<Verdict>& verdict() const { return over_; }
  [[nodiscard]] bool uses_api() const { return uses_api_; }
  [[nodiscard]] int64_t committed() const { return committed_; }
  [[nodiscard]] int64_t generations() const { return generations_; }
  [[nodiscard]] int64_t restarts() const { return restarts_; }
  /// Comparisons of the ranks' states, and the seconds of the slowest rank in each.
  [[nodiscard]] int64_t digests() const { return digests_; }
  [[nodiscard]] double digest_seconds() const { return digest_seconds_; }
  /// Of a sharded job: the most that a worker held, by kind, as far as workers have ended and said so.
  [[nodiscard]] const ShardedMemory& memory() const { return memory_; }
  /// Of the worker that made most.
  [[nodiscard]] const sharded::TracedPasses& traced_passes() const { return traced_passes_; }
  /// Of a sharded job: bytes of the state that ranks sent to those that own it now.
  [[nodiscard]] int64_t bytes_moved() const { return bytes_moved_; }
  /// Injected kills that were not carried out.
  [[nodiscard]] std::vector<InjectedKill> unstruck() const;

 private:
  /// An idle worker answers in milliseconds; one that takes so long is given no rank.
  static constexpr double kAnswerSeconds = 2;
  /// A process that is stopped so long is done without, where the others can go on.
  static constexpr double kStoppedSeconds = 3;

  /// kStarting: no generation stands. kSaving: all ranks wait, one of them writes the snapshot that the job ends with.
  enum class Phase { kStarting, kForming, kRunning, kSaving, kEnding };
  /// How far a rank has come in its generation. Whoever is furthest behind holds the others up.
  enum class Stage {
    kIdle,      ///< no rank
    kTold,      ///< Form was sent
    kJoining,   ///< waits for the others to join
    kCopying,   ///< joined; copies the state, or waits for it
    kFormed,    ///< computes
    kReducing,  ///< waits for the others' gradients
    kVoted,
  };
  struct Member {
    bool hello = false;
    Ready brings;         ///< once it is ready
    int64_t device = -1;  ///< that it computes on; -1: the CPU, or not known
    std::string device_name{};
    int64_t gave_up_at = -1;  ///< the step after which it gave up what it wrote
    bool ready = false;
    bool finished = false;
    bool told_to_stop = false;
    int64_t rank = -1;
    int64_t holds = 0;      ///< committed steps in its state; -1: a part of a copy
    bool may_hold = false;  ///< was to copy a state, and has not said whether it has
    bool is_void = false;   ///< its state turned out wrong; until it has copied another
    /// What others can begin from: while it copies a state over its own nobody knows.
    [[nodiscard]] int64_t surely_holds() const { return may_hold || is_void ? -1 : holds; }
    /// Whose state it holds: its own, or that of the worker that it copied until the copy is compared. A copy says
    /// nothing more than what it is of.
    WorkerId origin = -1;
    std::optional<uint64_t> last_state;  ///< digest of its state after the last step
    Stage stage = Stage::kIdle;
    std::optional<Vote> vote;
    double since = 0;                    ///< when it was started
    double answered_at = 0;              ///< when it last showed that it answers while idle
    std::optional<double> asked_at;      ///< of a Tell that it has not answered
    std::optional<double> stopped_at;    ///< since when its process was seen stopped
    bool left_out = false;               ///< was a rank and was left out for being stopped
    bool woken = false;                  ///< was continued once instead of killed
    int64_t strikes = 0;                 ///< generations that broke, it seems, for it
    double barred_until = 0;             ///< no rank before, if it goes without it
    std::optional<std::string> cut_off;  ///< lost its peers in this generation, in its words
    bool cannot_save = false;
    std::optional<Verdict> retires;  ///< is replaced once it has saved its state; the end of the job if it cannot
    bool leaves = false;  ///< was announced to leave: gets no rank, and is told to stop when it is not needed
    bool stays = false;   ///< was named for not ending
    std::optional<Refused> refused;  ///< what it has said of an error that may end it, since its last vote
    std::string fenced;              ///< why it was killed
  };

  void on(WorkerId worker, Member& member, const Ready& message);
  void on(WorkerId worker, Member& member, const DataWritten& message);
  void on(WorkerId worker, Member& member, const Refused& message);
  void on(WorkerId worker, Member& member, const CommIdMade& message);
  void on(WorkerId worker, Member& member, const Joining& message);
  void on(WorkerId worker, Member& member, const Copying& message);
  void on(WorkerId worker, Member& member, const Formed& message);
  void on(WorkerId worker, Member& member, const Holds& message);
  void on(WorkerId worker, Member& member, const Reducing& message);
  void on(WorkerId worker, Member& member, const Vote& message);
  void on(WorkerId worker, Member& member, const Broken& message);
  void on(WorkerId worker, Member& member, const SnapshotWritten& message);
  void on(WorkerId worker, Member& member, const PartWritten& message);
  void on(WorkerId worker, Member& member, const Injected& message);
  void on(WorkerId worker, Member& member, const Finished& message);
  void on(WorkerId worker, Member& member, const Hello& message);

  // How a job begins: its first workers agree, one of them writes the data set, and the agent makes its plan of that.

  /// Goes on with that, from wherever it stands. `usable` is not empty.
  void begin_job(const std::vector<WorkerId>& usable);
  /// Settles what all workers must agree with: what more than half of those bring that are ready. The others are ended.
  /// False where there is no such half, which ends the job.
  bool agree_on_job();
  /// What more than half of `workers` bring; where the job resumes a run and there is no such half, what those bring
  /// that have the run's data. nullptr: nothing.
  [[nodiscard]] const Ready* what_most_bring(const std::vector<WorkerId>& workers) const;
  /// Ends the job where all its steps are committed and saved.
  bool end_if_done();

  /// Says once that workers share a device.
  /// Once for each device, of the ranks of the first generation that has two on it.
  void tell_of_shared_devices();
  /// Looks at the clock. Every event begins so, and takes no time itself: an agent that is stopped in the middle of
  /// one has waited for nobody.
  void look();
  /// Seconds in which events came.
  [[nodiscard]] double time() const { return looked_at_ - unwatched_; }
  [[nodiscard]] int64_t largest_world(int64_t at_most) const;
  [[nodiscard]] std::string why_not(int64_t world_size) const;
  /// Its process is stopped, or it did not answer when it had nothing to do.
  [[nodiscard]] bool is_away(WorkerId worker, const Member& member) const;
  /// Ready, present and not fenced, those that hold most first. `barred`: also those that broke generations.
  [[nodiscard]] std::vector<WorkerId> usable_members(bool barred) const;
  [[nodiscard]] bool hold_state(const std::vector<WorkerId>& usable) const;
  // Where the state is cut over the ranks: all who own a chunk of it are needed, and no others.

  /// All that the committed state needs are among `usable`.
  [[nodiscard]] bool shards_are_there(const std::vector<WorkerId>& usable) const;
  /// All of them live, and none was caught in the middle of a move.
  [[nodiscard]] bool owners_live() const;
  /// Lives and has what it owns after the last commit.
  [[nodiscard]] bool has_share(WorkerId worker) const;
  /// A part of the state would be lost with it. Where the state has no chunks, each owner: one of them is needed.
  [[nodiscard]] bool is_needed(WorkerId worker) const;
  /// Its rank in the map of owners_; -1: it owns nothing by it, or has not what it owned.
  [[nodiscard]] int64_t place_of(WorkerId worker) const;
  /// Owners that live and can write: all that a snapshot needs, or nobody.
  [[nodiscard]] std::vector<WorkerId> writers() const;
  /// Parts of the state may be on their way to other owners, whether a rank has said so or not.
  [[nodiscard]] bool may_move() const;
  /// The job is to end once they have come there.
  [[nodiscard]] bool waits_for_move() const { return may_move() && (stop_code_ != 0 || pending_); }
  /// A part of the state is gone: nobody holds it, and the job goes back to its newest snapshot.
  void lose_shards();
  /// `writers` write their parts of `file`.
  void begin_parts(const std::string& file, const std::vector<WorkerId>& writers);
  /// Neither all parts nor the whole are on disk.
  [[nodiscard]] bool is_writing_parts() const { return parts_.has_value(); }

  /// A snapshot holds all that is committed: whoever reads it holds the state.
  [[nodiscard]] bool is_restorable() const;
  /// The others hold the state and are enough for a group.
  [[nodiscard]] bool others_hold(WorkerId worker) const;
  /// The same, or they can read it from a snapshot.
  [[nodiscard]] bool can_form_without(WorkerId worker) const;
  [[nodiscard]] bool somebody_else_may_hold();
  [[nodiscard]] bool starters_are_due() const;
  [[nodiscard]] std::string label(WorkerId worker) const;
  /// Those that were not announced to leave.
  [[nodiscard]] std::vector<WorkerId> that_stay(std::vector<WorkerId> workers) const;
  /// All ranks stand: they own what they came to own.
  void take_over(const std::string& owners, int64_t bytes_moved);
  /// Marks who leaves after `step`; who that is, or empty.
  std::string announce_leavers(int64_t step);
  /// Where those who stay do not hold the state: those who would leave and do.
  void keep_leavers();
  /// Tells those to stop that leave and own nothing any more.
  void dismiss_leavers();
  /// Sends Tell once.
  void ask(WorkerId worker, Member& member);
  void abort_generation();
  void regroup(const std::string& reason);
  /// Where the writer of a snapshot that was due died with it, `holder` of the last commit writes one.
  void ask_for_due_snapshot(WorkerId holder);
  /// Takes the rank from `member`; says so where it gets no other because its process is stopped.
  void leave(WorkerId worker, Member& member, bool usable);
  void wait_for_rendezvous(const Error& error);
  void form(const std::vector<WorkerId>& usable, int64_t world_size, const std::string& reason);
  void try_commit();
  /// False where ranks of a sharded job visit other modules than others, which ends the job. `all_done`: those that
  /// have come less far do so, too.
  bool visits_agree(bool all_done);
  /// False where ranks began the step with different states, and that has been dealt with.
  bool states_agree();
  using States = std::map<WorkerId, uint64_t>;  ///< digests of ranks' states
  struct Unconfirmed {
    SnapshotRecord record;
    WorkerId writer = -1;
  };
  /// The state that more than half hold; nullopt: there is none. Where all are copies of one state, or its owner, the
  /// ranks are counted. Else those that hold the same and come from one origin, a rank and the copies of its state that
  /// were never compared, are one voice: they win nothing by being many. What has parted from its origin is another
  /// voice, for either of the two may have gone wrong, and takes nothing from that of its origin.
  [[nodiscard]] std::optional<uint64_t> state_of_most(const States& states) const;
  /// "rank 0 (worker 0): 53c1..., rank 1 (worker 4): ..."
  [[nodiscard]] std::string listed(const States& states) const;
  [[nodiscard]] std::string what_a_dispute_means() const;
  /// Ends the ranks whose state is not `right`; a copy of such a state is taken from whoever holds it. `when`: "began
  /// step 7", "ended the job". True where somebody was ended.
  bool part_with_others(const States& states, uint64_t right, const std::string& when);
  /// Forgets the snapshots that were written since states were last compared: the one before them counts again.
  void drop_unconfirmed();
  /// Forgets those snapshots that were written since states were last compared and `are_meant`; `why` goes to the
  /// events.
  void drop_snapshots(const std::string& why, const std::function<bool(const Unconfirmed&)>& are_meant);
  /// Of the snapshots that were written since states were last compared: what those hold is right whose writers are
  /// among `ranks`, which hold the same. The others are forgotten.
  void confirm_snapshots_of(const std::vector<WorkerId>& ranks);
  /// What they hold is right.
  void confirm_snapshots();
  /// Asks those that hold the committed state what they hold, before one of them writes the last snapshot. False where
  /// states are not compared, or nobody holds it but one.
  bool compare_before_saving();
  /// At the end: once all ranks have said what they hold, one that holds what most do saves it.
  void compare_last_states();
  /// What is not finite in the step that all have voted for; empty: nothing.
  [[nodiscard]] std::string what_is_not_finite() const;
  /// Ends the job before that step.
  void stop_at(const std::string& not_finite);
  /// The assignment of the step in hand; nullptr when the balancer failed, which ends the job.
  const Assignment* assignment();
  /// What the ranks' times of the step say of the costs.
  void learn_costs();
  void finish_step(const CommitRecord& record);
  /// Whether workers that wait may join now; says once why not.
  [[nodiscard]] bool may_grow();
  [[nodiscard]] std::vector<Injection> injections_for(int64_t rank) const;

  // Who is late, stopped or cut off.
  void fence(WorkerId worker, const std::string& why);
  void fence_those_not_started();
  void note_stopped();
  void probe_idle();
  void leave_out_stopped();
  /// Gives up a move that a stop or the end of the job waits for and that cannot have begun: somebody does not join.
  void give_up_move();
  void resolve_cut_off();
  /// Lets those wait a while that were to join those who hold the state; false when there are none. `line`: why; when
  /// it `costs` them, one that was let wait too often is killed.
  bool bar_joiners(const std::string& line, bool costs);
  void fence_hung(double waited);
  /// Replaces a worker that cannot go on with the state that nobody else holds, after a snapshot of it. False where
  /// that cannot be. `over`: the end of the job if no snapshot comes about.
  bool retire(WorkerId worker, Member& member, const Verdict& over);
  /// Ends `worker` if that is what it has written a snapshot for.
  void let_retire(WorkerId worker, const Member& member);
  void forget_breaks_of(WorkerId worker);
  void name_those_that_stay(double waited);
  [[nodiscard]] std::vector<WorkerId> stopped_members() const;
  [[nodiscard]] std::vector<WorkerId> who_holds_up() const;
  [[nodiscard]] std::vector<WorkerId> furthest_behind() const;
  /// Continues it instead, and all others that are stopped, where the state would die with it; true when that was done.
  bool wake_last_holder(WorkerId worker, Member& member, const std::vector<WorkerId>& late);

  // The end of the job.
  /// `code`: of the job, if no worker is left.
  void lost(const Member& member, const std::string& how, int code);
  void refuse(const ExitStatus& status, const std::string& how);
  /// True where it refuses what a worker before it has refused, in another incarnation or generation, and the job has
  /// come no further in between: no worker can do it. What it refuses is what it said in fields (Refused), or its exit
  /// code alone where it said nothing.
  bool refuses_again(WorkerId worker, const Member& member, const ExitStatus& status);
  /// Starts a fresh worker for one that was lost, while restarts are left; not at once where workers die one after the
  /// other before they are ready (`too_early`), for what they meet may pass.
  void replace(bool too_early);
  void start_those_due();
  /// Workers that were asked for and do not run yet.
  [[nodiscard]] int64_t owed() const;
  [[nodiscard]] bool is_unsaved() const;
  /// Has a worker that holds the last commit write the final snapshot; false when there is none.
  [[nodiscard]] bool save();
  /// The same by all owners of a sharded state.
  [[nodiscard]] bool save_shards(const std::string& file);
  void stop_now();
  [[nodiscard]] Verdict verdict_when_saved() const;
  /// Ends the job, after a snapshot where there is something to save and somebody to write it. `kill`: the workers are
  /// killed then, not told to stop. Where parts of a state may be on their way, it goes on when the generation stands
  /// or breaks.
  void end(Verdict verdict, bool kill);
  void save_and_close();
  void close();

  GroupOptions options_;
  GroupActions& actions_;
  Phase phase_ = Phase::kStarting;
  std::map<WorkerId, Member> members_;
  std::vector<WorkerId> ranks_;   ///< of the present generation
  bool sharded_ = false;          ///< the state is cut over the ranks
  std::vector<WorkerId> owners_;  ///< sharded: who holds the parts of the committed state, by rank; empty: nobody does
  std::set<WorkerId> needed_;     ///< those of them that own a chunk
  /// The snapshot of which the owners write their parts.
  struct Parts {
    int64_t step = 0;
    std::string file;
    std::vector<WorkerId> writers;
    int64_t generation = 0;               ///< in whose draft they are
    std::map<WorkerId, uint64_t> cuts;    ///< digests of what each of them owns (digest_of_cut)
    std::map<WorkerId, uint64_t> beside;  ///< of those who have: PartWritten::beside
    std::vector<uint64_t> digests{};      ///< sums of PartWritten::digests of those who have; empty: one told none
    bool assembling = false;              ///< all have; the first of them finishes it
  };
  std::optional<Parts> parts_;
  std::string shares_;           ///< sharded: what each of owners_ owns (Ownership::save)
  int64_t stay_ = 0;             ///< ranks of this generation that own the state once it stands; 0: all
  int64_t bytes_moved_ = 0;      ///< from owner to owner since the job began
  int64_t bytes_of_formed_ = 0;  ///< in this generation
  std::string shares_of_formed_;
  bool id_shared_ = false;  ///< its ranks have the id of its communicator
  bool aborted_ = false;    ///< it was given up
  int64_t generation_ = 0;
  std::string reason_ = "start";
  int64_t generations_ = 0;
  int64_t restarts_ = 0;
  int64_t digests_ = 0;
  double digest_seconds_ = 0;
  ShardedMemory memory_;
  sharded::TracedPasses traced_passes_;
  std::optional<uint64_t> last_state_;  ///< digest of the state after the last step, once it is compared
  bool asked_for_states_ = false;       ///< by compare_before_saving, since the last commit
  bool disputed_ = false;               ///< ranks hold different states and nobody can tell whose is right
  struct Break {
    WorkerId worker;
    bool shortage;
  };
  std::vector<Break> broken_;            ///< collectives that failed since the last commit
  std::optional<double> cut_off_at_;     ///< when a rank of this generation first lost its peers
  std::optional<double> stalled_since_;  ///< since when ranks lose one another without a commit
  std::optional<double> refused_by_rendezvous_since_;
  std::optional<Verdict> refused_;  ///< by a worker before any was ready: ends the job if all refuse
  int64_t unreplaced_ = 0;          ///< workers that refused
  /// The last exit with code 2 or 3 of a worker that was ready, until the job has come further than it was then.
  struct Refusal {
    int code = 0;
    std::optional<Refused> what;
    WorkerId newest = -1;  ///< worker at that time
    int64_t generation = 0;
    int64_t committed = 0;
  };
  std::optional<Refusal> refusal_;
  WorkerId newest_ = -1;            ///< worker that was started
  int64_t early_deaths_ = 0;        ///< workers that died before they were ready, since one last was
  std::vector<double> starts_due_;  ///< when workers are to be started that wait because of them
  double slowest_start_ = 0;        ///< seconds from start to Ready
  int64_t committed_ = 0;
  bool was_ready_ = false;     ///< some worker was
  std::optional<Ready> job_;   ///< what all workers must agree with, once it is settled
  WorkerId data_writer_ = -1;  ///< was asked to write the data set
  bool is_planned_ = false;    ///< the data set is there, and so is the agent's plan
  CostFit fit_;
  CostRates rates_;
  std::optional<Assignment> assignment_;  ///< of the step in hand, once it was needed
  std::optional<SnapshotRecord> snapshot_;
  std::optional<SnapshotRecord> confirmed_;  ///< the newest one whose state was compared
  std::vector<Unconfirmed> unconfirmed_;     ///< recorded since
  int64_t fenced_for_breaking_ = 0;          ///< workers whose collectives failed, since the last commit
  int64_t lost_while_saving_ = 0;            ///< workers that died after the last commit and were not replaced
  bool save_soon_ = false;                   ///< the next commit is snapshotted: its holder nearly was lost
  std::optional<double> nobody_since_;       ///< since when no worker lives, and some are owed
  bool told_of_wait_ = false;
  std::set<int64_t> told_shared_;   ///< devices
  std::optional<double> grown_at_;  ///< the last resize that nothing forced
  /// The newest snapshot that [run] snapshot_every asked for, until it is recorded.
  struct Due {
    int64_t step = 0;
    WorkerId writer = -1;
  };
  std::optional<Due> due_;
  WorkerId saver_ = -1;  ///< writes the final snapshot; -1 while the ranks' last states are compared
  int stop_code_ = 0;    ///< 0: no stop was asked for
  bool uses_api_ = false;
  double progress_at_ = 0;  ///< last sign of progress
  double unwatched_ = 0;    ///< seconds in which no events came, ticks among them
  double looked_at_ = 0;
  bool kill_at_end_ = false;
  std::optional<Verdict> pending_;  ///< the verdict once all workers are gone
  std::optional<Verdict> over_;
};

}  // namespace pliant::elastic
