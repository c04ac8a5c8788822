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
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "elastic/agent/cost_fit.hpp"
#include "elastic/agent/group_actions.hpp"
#include "elastic/agent/group_member.hpp"
#include "elastic/agent/group_notes.hpp"
#include "elastic/agent/group_options.hpp"
#include "elastic/ledger.hpp"
#include "elastic/message.hpp"
#include "elastic/metric_table.hpp"
#include "pliant/balancer.hpp"
#include "pliant/batches.hpp"
#include "pliant/job.hpp"

namespace pliant::elastic {

class Group {
 public:
  /// `committed`: steps on the lineage; `snapshot`: the newest one, when the job resumes.
  Group(GroupOptions options, GroupActions& actions, int64_t committed, std::optional<SnapshotRecord> snapshot);

  void started(WorkerId worker);
  void received(WorkerId worker, const FromWorker& message);
  void ended(WorkerId worker, const ExitStatus& status);
  /// Commit what is under way, snapshot, end. `signal`: for which.
  void request_stop(int signal);
  /// Nothing more can be committed: gives up the step under way, snapshots where snapshot_path says by now, ends.
  void fail(JobEnd failure);
  /// Looks for workers that are late. Call at least every second: more time between two calls counts for nobody.
  void tick();
  /// Ends the job where ranks of a sharded one visit other modules than others. Call at least ten times a second, and
  /// before the page of a worker goes: then `at_once`.
  void compare_visits(bool at_once);

  /// Set when every worker is gone and the job is over.
  [[nodiscard]] const std::optional<JobEnd>& job_end() const { return over_; }
  [[nodiscard]] bool uses_api() const { return uses_api_; }
  [[nodiscard]] int64_t committed() const { return committed_; }
  [[nodiscard]] int64_t generations() const { return generations_; }
  [[nodiscard]] int64_t restarts() const { return restarts_; }
  /// Of the newest generation that stood; 0: none did.
  [[nodiscard]] int64_t world_size() const { return stood_; }
  /// The loss that last made it smaller, while it is fewer than were asked for; empty: it is not.
  [[nodiscard]] const std::string& shrunk_by() const { return shrunk_by_; }
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
  [[nodiscard]] std::vector<InjectedKill> pending_kills() const;

 private:
  /// An idle worker answers in milliseconds; one that takes so long is given no rank.
  static constexpr double kAnswerSeconds = 2;
  /// A process that is stopped so long is done without, where the others can go on.
  static constexpr double kStoppedSeconds = 3;

  /// kStarting: no generation stands. kSaving: all ranks wait, one of them writes the snapshot that the job ends with.
  enum class Phase { kStarting, kForming, kRunning, kSaving, kEnding };
  using Member = GroupMember;
  using Stage = GroupMember::Stage;
  using Unconfirmed = UnconfirmedSnapshot;
  using Parts = SnapshotInParts;
  using Due = DueSnapshot;
  using Break = BrokenCollective;
  using Refusal = LastRefusal;
  struct EvaluationParts {
    MetricTable metrics;
    std::set<WorkerId> gave;
  };
  struct PendingEvaluation {
    EvaluationParts outside;  ///< of attempts
    EvaluationParts within;   ///< an attempt of generation `attempt`
    int64_t attempt = -1;
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
  void on(WorkerId worker, Member& member, const Evaluated& message);
  void on(WorkerId worker, Member& member, const Broken& message);
  void on(WorkerId worker, Member& member, const SnapshotWritten& message);
  void on(WorkerId worker, Member& member, const PartWritten& message);
  void on(WorkerId worker, Member& member, const BusyWith& message);
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
  /// In what a worker that brings `other` is none of the job that `right` is of, in words; empty: in nothing.
  [[nodiscard]] std::string how_differs(const Ready& right, const Ready& other) const;
  [[nodiscard]] const Ready* what_most_bring(const std::vector<WorkerId>& workers) const;
  /// Ends the job where all its steps are committed and saved.
  bool end_if_done();

  /// Says that workers share a device: once for each device, of the ranks of the first generation that has two on it.
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
  [[nodiscard]] bool waits_for_move() const { return may_move() && (stop_signal_ != 0 || pending_); }
  /// A part of the state is gone: nobody holds it, and the job goes back to its newest snapshot.
  void lose_shards();
  /// Has them write `file`, those that are stopped as well.
  void ask_for_parts(const std::string& file, const std::vector<WorkerId>& writers);
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
  void regroup(const GroupReason& reason);
  /// Where the writer of a snapshot that was due died with it, `holder` of the last commit writes one.
  void ask_for_due_snapshot(WorkerId holder);
  /// Takes the rank from `member`; says so where it gets no other because its process is stopped.
  void leave(WorkerId worker, Member& member, bool usable);
  void wait_for_rendezvous(const Error& error);
  void form(const std::vector<WorkerId>& usable, int64_t world_size, const GroupReason& reason);
  void try_commit();

  // Whether plugins decide the same on all ranks. A file that was replaced may answer otherwise in later steps only.

  /// Once a rank has decided the step in hand as the agent has, those that have not are replaced. Where none has, the
  /// job ends.
  void part_with_odd();
  /// False where learning-rate rules answered the ranks differently, and that has been dealt with.
  bool rates_agree();
  /// Says so, once for each difference: other files may give the same answers.
  void tell_of_other_plugins(WorkerId worker, const Ready& message);

  /// Ranks of a sharded job have parted: the job ends, at once or when that has lasted a moment, in which those that
  /// are behind show with whom they go.
  bool have_parted(bool at_once);
  /// The ranks of the last step write the snapshot that the job ends with, and nothing has happened to them since.
  [[nodiscard]] bool is_after_last_step() const;
  /// Those that have voted: that ends the job, too, whether their pages can be read or not.
  bool voters_have_parted();
  void end_parted(const std::string& differ);
  /// False where ranks began the step with different states, and that has been dealt with.
  bool states_agree();
  using States = std::map<WorkerId, uint64_t>;  ///< digests of ranks' states
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
  /// `reason_to_end`: of the job after this step; empty: it goes on.
  void finish_step(const CommitRecord& record, const std::string& reason_to_end);
  /// The ranks' metrics as one; a name that ranks combine by different rules is left out, and named.
  [[nodiscard]] std::map<std::string, double> metrics_of_votes();
  /// The job has a step `step`, and no rank has asked for its end before.
  [[nodiscard]] bool has_step(int64_t step) const;
  /// Whether a rank asks in its vote for the end of the job, and has that recorded: the step is committed.
  void end_if_asked(const std::string& reason);
  /// Why ranks ask for the end of the job in their votes; empty: none does.
  [[nodiscard]] std::string reason_to_end() const;
  /// Records what ranks found out about states, once all of them have gone on from there.
  void record_evaluations();
  /// All workers are gone: the job is over.
  void finish_job();
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
  /// Its program does what is no step, and has said so. A rank that waits in a commit, or to join, does not.
  [[nodiscard]] static bool is_busy(const Member& member);
  /// The same, within the time that it gave.
  [[nodiscard]] bool is_excused(const Member& member) const;
  /// Somebody who counts is excused: ranks where there are some, else any worker.
  [[nodiscard]] bool waits_for_busy() const;
  /// Of those who count: who is busy for longer than it said. One that has finished may take its time.
  [[nodiscard]] std::vector<WorkerId> overdue() const;
  [[nodiscard]] std::vector<WorkerId> those_who_count() const;
  void show_busy();
  /// Replaces a worker that cannot go on with a state, or a part of one, that nobody else holds: after a snapshot of
  /// it, or of a sharded job in any case. False where that cannot be. `over`: the end of a job, whose state is whole,
  /// if no snapshot comes about.
  bool retire(WorkerId worker, Member& member, const JobEnd& over);
  /// Ends those for which `writer` has written a snapshot.
  void let_retire(WorkerId writer);
  /// Of a sharded job: no snapshot comes about. What those hold that wait for one is lost, as if they had died.
  void give_up_parts();
  void forget_breaks_of(WorkerId worker);
  void name_those_that_stay(double waited);
  [[nodiscard]] std::vector<WorkerId> stopped_members() const;
  [[nodiscard]] std::vector<WorkerId> who_holds_up() const;
  [[nodiscard]] std::vector<WorkerId> furthest_behind() const;
  /// Continues it instead, and all others that are stopped, where the state would die with it; true when that was done.
  bool wake_last_holder(WorkerId worker, Member& member, const std::vector<WorkerId>& late);

  // The end of the job.
  /// `worker`: how it ended, unless it was killed by the agent. `refuses`: what it refused, if it did.
  void lost(const Member& member, const std::string& how, std::optional<WorkerEnd> worker,
            std::optional<Origin> refuses);
  /// A worker ended by itself before any was ready. Once all have, the job ends where they ended alike, or one of them
  /// `refuses` its config or a plugin; else they are replaced.
  void ended_at_start(const ExitStatus& status, const std::string& how, std::optional<Origin> refuses);
  /// Says how those ended of which nothing was said, since all before had ended alike.
  void say_how_they_ended();
  void replace_those_that_ended();
  /// Where the others take long to end as those did, or to become ready.
  void give_those_up_that_ended();
  /// True where no worker can do what it refuses: it names options of the config, and no step was committed yet; or a
  /// worker before it has refused the same, in another incarnation or generation, and the job has come no further in
  /// between. What it refuses is what it said in fields (Refused), or `origin`, by its exit code, alone where it said
  /// nothing.
  bool refuses_for_good(WorkerId worker, const Member& member, Origin origin);
  /// Ranks that fail by themselves before the first commit are replaced once another rank goes on, or takes long to
  /// fail as they did. Where all fail, the job ends.
  [[nodiscard]] bool may_hold_back(const Member& member) const;
  void replace_those_held_back();
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
  [[nodiscard]] JobEnd end_when_saved() const;
  /// Ends the job, after a snapshot where there is something to save and somebody to write it. `kill`: the workers are
  /// killed then, not told to stop. Where parts of a state may be on their way, it goes on when the generation stands
  /// or breaks.
  void end(JobEnd how, bool kill);
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
  std::optional<Parts> parts_;
  std::string shares_;           ///< sharded: what each of owners_ owns (Ownership::save)
  int64_t stay_ = 0;             ///< ranks of this generation that own the state once it stands; 0: all
  int64_t bytes_moved_ = 0;      ///< from owner to owner since the job began
  int64_t bytes_of_formed_ = 0;  ///< in this generation
  std::string shares_of_formed_;
  bool id_shared_ = false;  ///< its ranks have the id of its communicator
  bool aborted_ = false;    ///< it was given up
  int64_t generation_ = 0;
  GroupReason reason_;
  int64_t generations_ = 0;
  int64_t stood_ = 0;  ///< world size
  std::string shrunk_by_;
  int64_t restarts_ = 0;
  int64_t digests_ = 0;
  double digest_seconds_ = 0;
  ShardedMemory memory_;
  sharded::TracedPasses traced_passes_;
  std::optional<uint64_t> last_state_;  ///< digest of the state after the last step, once it is compared
  bool asked_for_states_ = false;       ///< by compare_before_saving, since the last commit
  bool disputed_ = false;               ///< ranks hold different states and nobody can tell whose is right
  std::optional<double> parted_at_;     ///< since when ranks are seen to visit other modules than others
  std::vector<std::pair<WorkerId, Broken>> put_off_;  ///< since then: for what they did, it seems
  std::vector<Break> broken_;                         ///< collectives that failed since the last commit
  std::optional<double> cut_off_at_;                  ///< when a rank of this generation first lost its peers
  std::optional<double> stalled_since_;               ///< since when ranks lose one another without a commit
  std::optional<double> refused_by_rendezvous_since_;
  std::optional<JobEnd> refused_;    ///< by a worker before any was ready: ends the job if all refuse
  int64_t unreplaced_ = 0;           ///< workers that refused, or ended by themselves before any was ready
  std::vector<std::string> unsaid_;  ///< how these ended, while all of them ended alike
  std::optional<ExitStatus> alike_;  ///< how the first of them did
  double alike_since_ = 0;           ///< when
  int64_t held_back_ = 0;            ///< ranks that failed in the first step and are not replaced yet
  double held_back_since_ = 0;       ///< when the first of them did
  bool has_replaced_ = false;        ///< such ranks
  std::optional<Refusal> refusal_;
  WorkerId newest_ = -1;            ///< worker that was started
  int64_t early_deaths_ = 0;        ///< workers that died before they were ready, since one last was
  std::vector<double> starts_due_;  ///< when workers are to be started that wait because of them
  double slowest_start_ = 0;        ///< seconds from start to Ready
  int64_t committed_ = 0;
  bool has_committed_ = false;  ///< since this agent began
  bool was_ready_ = false;      ///< some worker was
  std::optional<Ready> job_;    ///< what all workers must agree with, once it is settled
  WorkerId data_writer_ = -1;   ///< was asked to write the data set
  bool is_planned_ = false;     ///< the data set is there, and so is the agent's plan
  CostFit fit_;
  CostRates rates_;
  std::optional<Assignment> assignment_;              ///< of the step in hand, once it was needed
  std::map<int64_t, PendingEvaluation> evaluations_;  ///< by step: not all ranks have gone on from there
  std::vector<WorkerId> committers_;                  ///< ranks of the last commit
  std::set<WorkerId> lost_since_;                     ///< workers that ended since, and had not finished
  std::optional<Evaluation> found_;                   ///< the newest of them, until ranks are told
  std::optional<EndRecord> ended_;                    ///< as a rank has asked
  std::set<std::string> told_disputed_;               ///< metrics that ranks combine by different rules
  std::optional<SnapshotRecord> snapshot_;
  std::optional<SnapshotRecord> confirmed_;  ///< the newest one whose state was compared
  std::vector<Unconfirmed> unconfirmed_;     ///< recorded since
  int64_t fenced_for_breaking_ = 0;          ///< workers whose collectives failed, since the last commit
  int64_t lost_while_saving_ = 0;            ///< workers that died after the last commit and were not replaced
  bool save_soon_ = false;                   ///< the next commit is snapshotted: its holder nearly was lost
  bool shows_busy_ = false;                  ///< the agent was told of somebody who is busy
  std::optional<double> nobody_since_;       ///< since when no worker lives, and some are owed
  bool told_of_wait_ = false;
  std::set<int64_t> told_shared_;  ///< devices
  std::set<std::string> told_plugins_;
  std::optional<double> grown_at_;  ///< the last resize that nothing forced
  std::optional<Due> due_;
  WorkerId saver_ = -1;  ///< writes the final snapshot; -1 while the ranks' last states are compared
  int stop_signal_ = 0;  ///< 0: no stop was asked for
  bool uses_api_ = false;
  double progress_at_ = 0;  ///< last sign of progress
  double unwatched_ = 0;    ///< seconds in which no events came, ticks among them
  double looked_at_ = 0;
  bool kill_at_end_ = false;
  std::optional<JobEnd> pending_;  ///< of the job, once all workers are gone
  std::optional<JobEnd> over_;
};

}  // namespace pliant::elastic
