// Session: a worker's side of an elastic job. It hands out the batches, reduces the gradients, runs the commit and
// carries the program through every change of the worker group.
//
//   pliant::leave_stop_signals_to_agent();                 // run_worker() does this, and what belongs to it
//   pliant::Session session = pliant::Session::attach();
//   Model model(session.config());
//   session.start(dataset, model);                         // model is a pliant::TrainingState
//   while (pliant::Step* step = session.next()) {
//     for (const pliant::RowRange rows : step->micro_batches()) {
//       ...                                                // forward, backward of the summed loss over rows
//       step->add(rows, loss_sum, gradient);               // gradient: span<const float>
//     }
//     if (const auto committed = step->commit()) model.apply(committed->gradient(), step->learning_rate());
//   }
//
// A program that computes on a device asks Session::device() which, hands in its gradients where they lie, in pieces
// (Step::add_piece), and takes Committed::device_gradient(). Nothing of the gradient goes through the host then.
//
// All calls come from one thread. A control thread inside ends every wait when the group changes. When the agent is
// gone every wait ends, too, and next() and commit() throw kPeerLost: the job is over for this program, which has one
// second to end before it is killed. Nothing here prints (pliant/log.hpp), ends the process or touches signals, but for
// leave_stop_signals_to_agent().
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pliant/batches.hpp"
#include "pliant/communicator.hpp"
#include "pliant/config.hpp"
#include "pliant/error.hpp"
#include "pliant/gradient_piece.hpp"
#include "pliant/learning_rate.hpp"
#include "pliant/metric.hpp"
#include "pliant/plan.hpp"
#include "pliant/training_state.hpp"

namespace pliant {

class Session;
class ShardedModel;
class Step;
namespace elastic {
class BusyList;
}  // namespace elastic

/// What a committed step leaves behind. Valid until the next Session::next.
class Committed {
 public:
  double loss = 0;  ///< mean loss per loss token over the global batch

  /// Mean gradient over the global batch's loss tokens, gradient_size() floats in memory of the rank's device. No work
  /// that is enqueued by Pliant still writes it. Empty where the model is sharded: ShardedModel::update has it then.
  [[nodiscard]] std::span<const float> device_gradient() const;
  /// The same in host memory; copied by the first call where the CPU cannot read the device's.
  [[nodiscard]] std::span<const float> gradient() const;

 private:
  friend class Step;
  Committed(Step& step, double mean_loss) : loss(mean_loss), step_(&step) {}
  Step* step_;  ///< which stays where it is when its session moves
};

/// A step that is to come, as far as is known: for loaders that read ahead (Session::coming).
struct ComingStep {
  int64_t index = 0;                   ///< Step::index
  std::shared_ptr<const Batch> batch;  ///< what the step will have, whatever becomes of the group; never null
  /// This rank's rows as of now: those of the step where its Step::shares is this `shares`, and maybe others where it
  /// is not. Where the model is sharded, those that have no rows are left out.
  std::vector<RowRange> micro_batches;
  int64_t shares = 0;
};

/// One attempt at one step. Valid until the next Session::next.
class Step {
 public:
  /// Committed steps before this one; the step's number, from 0.
  [[nodiscard]] int64_t index() const;
  [[nodiscard]] const Batch& batch() const;
  /// The same for as long as it is kept: batch() goes with the step. Never null.
  [[nodiscard]] std::shared_ptr<const Batch> shared_batch() const;
  /// This rank's rows, as positions in batch(): a range for each micro-batch, which is computed at once. Empty when the
  /// batch is short and this rank owns none; commit() must be called all the same. Where the model is sharded all ranks
  /// have as many, and the last ones may have no rows (ShardedModel::begin_pass).
  [[nodiscard]] const std::vector<RowRange>& micro_batches() const;
  [[nodiscard]] int64_t rank() const;
  [[nodiscard]] int64_t world_size() const;
  /// A number that rises whenever rows may be shared out anew: with each generation, and where [balancer] fit changes
  /// the costs. What Session::coming said under another one need not hold.
  [[nodiscard]] int64_t shares() const;
  [[nodiscard]] double learning_rate() const;
  /// The rate and what goes with it: factors of betas, epsilon, weight decay and the rest.
  [[nodiscard]] const Scaling& scaling() const;
  /// The same for a group of parameters whose base rate is `base_lr` in place of [lr] base_lr. Throws kInvalidArgument
  /// for one that is not finite and above 0.
  [[nodiscard]] Scaling scaling(double base_lr) const;
  /// The same for a group that [lr.groups] has by name. Throws kNotFound (kInput) for another one, with those that
  /// there are.
  [[nodiscard]] Scaling scaling(std::string_view group) const;

  /// Adds the gradient of the SUMMED loss over `rows`. Each micro-batch exactly once, in order. `gradient` has
  /// gradient_size() elements and has been read when the call returns. Throws kInvalidArgument for other rows than
  /// those of the next micro-batch and for a gradient of another size; nothing was added then.
  void add(RowRange rows, double loss_sum, std::span<const float> gradient);
  /// The same in pieces, in any order and as they become ready, from the host or the rank's device. What a device still
  /// has to write into a piece must be enqueued on Session::stream() before, or be done.
  /// A piece in plain, pinned or shared memory, or of a device that is host_visible, has been read when the call
  /// returns. Of one in other memory of the device the read is only enqueued: work that is enqueued on
  /// Session::stream() afterwards may overwrite it; before anything else does, and before it is freed, wait for that
  /// stream or for commit(). What such a read meets is thrown by the next wait for the stream: the program's own, and
  /// the step is lost then, or that of commit(), which hands out no gradient then.
  /// Pieces of this rank's last micro-batch begin to be reduced over the ranks at once, where [run] deterministic is
  /// false and the CPU sees the device's memory: in buckets of [run] reduce_bucket, from the end of the gradient to its
  /// beginning, as backward passes come to them. commit() waits for the rest. Where such a step is not committed, as
  /// next() was called instead, all ranks make it again.
  /// Throws kInvalidArgument, and has added nothing, for a piece that overlaps another, leaves the gradient or is of an
  /// unknown type; and, as far as the accelerator and the kernel can tell, for one in memory of another device, past
  /// the end of its allocation or in memory that is not there, which most freed memory is.
  void add_piece(RowRange rows, const GradientPiece& piece);
  /// Ends a micro-batch whose gradient was added in pieces. Throws kInvalidArgument where one is missing, which may
  /// still be added.
  void add(RowRange rows, double loss_sum);
  /// The same with a gradient that is one piece.
  void add(RowRange rows, double loss_sum, const GradientPiece& gradient) {
    add_piece(rows, gradient);
    add(rows, loss_sum);
  }

  /// Gives a metric of this step: `pliant run` shows it, the ledger keeps it with the commit. All values that ranks
  /// give for `name` before their commit() become one: their mean by weight (rows, say, or tokens), or as `rule` says.
  /// Ranks may give different names, or none; rank 0 alone may. What belongs to a step that is not committed is
  /// dropped. Throws kInvalidArgument for a name that is not 1 to 64 letters, digits and any of ".-_/:", for one that
  /// was given with another rule, for the 65th name and a weight that is negative or not finite; kFailedPrecondition
  /// after commit(): see Session::evaluated.
  void metric(std::string_view name, double value, double weight = 1) {
    metric(name, value, weight, MetricRule::kMean);
  }
  void metric(std::string_view name, double value, MetricRule rule) { metric(name, value, 1, rule); }

  /// Runs `work`, the passes of the step over a sharded model. False where the group changed meanwhile; call
  /// Session::next then, also where a commit came before and its update did not: the step is made again. What `work`
  /// throws for other reasons gives up the passes and is thrown on; a program that catches it calls Session::next,
  /// which has all ranks make the step again.
  [[nodiscard]] bool attempt(const std::function<void()>& work);
  /// The end of an attempt whose work lies in no function, as that of a `with` block of Python: what attempt does with
  /// the `error` that its work threw. An attempt over nothing begins it. True where the group changed, which kAborted
  /// and kPeerLost say; of anything else the program is to hear. Both ways call Session::next then.
  bool give_up(const Error& error);

  /// Reduces, votes and waits for the verdict. nullopt: the group changed first, or [run] on_nonfinite = "skip" leaves
  /// the update of this step out; call Session::next, which hands the step out again, or the one after it. Otherwise
  /// the caller MUST apply the gradient before it calls Session::next. Throws kPeerLost when the agent is gone.
  [[nodiscard]] std::optional<Committed> commit();

 private:
  friend class Committed;
  friend class Session;
  explicit Step(Session& session) : session_(&session) {}
  void metric(std::string_view name, double value, double weight, MetricRule rule);
  std::optional<Committed> reduce_and_vote();
  Session* session_;
};

/// What a program does that is no step (Session::busy), until this ends. It may end on another thread, and after its
/// session.
class Busy {
 public:
  Busy(Busy&& other) noexcept;
  Busy& operator=(Busy&& other) noexcept;
  ~Busy();
  /// The destructor does it, too.
  void end() noexcept;

 private:
  friend class Session;
  Busy(std::shared_ptr<elastic::BusyList> list, int64_t number);
  std::shared_ptr<elastic::BusyList> list_;
  int64_t number_ = 0;
};

/// From here on SIGINT, SIGTERM and SIGHUP do not end this process, if it is a worker of a job: the agent gets them,
/// too, and stops the job after the step under way and a snapshot. Call it first thing in main, or behind
/// Session::attach_at, from where on they are passed on to the agent. Without it a worker
/// that is signalled together with its agent, as by systemd, Slurm or a terminal, dies, and its steps since the last
/// snapshot may die with it. It sets handlers that do nothing; what the process executes later has the default ones.
void leave_stop_signals_to_agent();

/// [any-thread] Async-signal-safe. What a handler of these signals does in a process whose session was attached by
/// Session::attach_at: its agent gets the signal. In others nothing.
void pass_stop_signal(int number) noexcept;

/// What the main function of most workers is: log lines go to stderr (log_to_stderr), stop signals are left to the
/// agent, and `train` gets a session that has joined the job. What it throws, or the session did, is said on stderr,
/// after the name of the program. Returns the exit code: 0, that of the Error (exit_code_of), or 1.
int run_worker(const char* program, const std::function<void(Session& session)>& train);

class Session {
 public:
  /// Joins the job whose agent started this process. Throws kFailedPrecondition when there is none (start it with
  /// `pliant run`), when this process joined before, and in what a worker has started. From here on the kernel does not
  /// kill this process with its agent (PR_SET_PDEATHSIG).
  static Session attach();
  /// Joins the job of an agent that did not start this process and waits for calls at `address`, the name of an
  /// abstract Unix socket (JobOptions::calling). Waits until all ranks have called. Throws kInvalidArgument for a rank
  /// that there is not, kFailedPrecondition (kInput) where nobody of this user listens there, kPeerLost where the agent
  /// ends before it has answered, and why the agent has no job for this process.
  static Session attach_at(const std::string& address, int64_t rank, int64_t world_size);
  ~Session();
  Session(Session&&) noexcept;

  [[nodiscard]] const Config& config() const;
  /// The seed of the job, for weights.
  [[nodiscard]] uint64_t seed() const;

  /// Says that this worker does `what` from now on: evaluation, compilation, an upload, which are no step. As long as
  /// the Busy lives, and for `at_most` at most, nobody is taken to hang: neither this worker nor those that wait for it
  /// ([run] hang_timeout_s; before start() start_timeout_s). A worker that takes longer is killed once the group has
  /// waited for hang_timeout_s, and `what` is named; what it did by then is lost as with any death. The wait for the
  /// next step does not count as `what`. Where several live, the last one that began counts. `pliant run` shows it. May
  /// be called from attach() on. Throws kInvalidArgument for an empty `what`, for one of more than 200 bytes and for a
  /// time that is not above 0.
  [[nodiscard]] Busy busy(std::string_view what, std::chrono::duration<double> at_most);

  /// Gives a result of an evaluation of the present state. After a commit() that returned a value, this state has the
  /// update of the step in hand, which the program has made by then; else those of the steps before. Combined over
  /// ranks as Step::metric is, once all ranks have gone on to the next step or the job has ended; the ledger keeps it
  /// with the number of committed steps. What is given between next() and a commit() that comes to nothing is dropped:
  /// the step is made again, and with it the evaluation. Throws what Step::metric throws for its arguments, and
  /// kFailedPrecondition before the first next(), when a worker that joins does not hold the job's state.
  void evaluated(std::string_view name, double value, double weight = 1) {
    evaluated(name, value, weight, MetricRule::kMean);
  }
  void evaluated(std::string_view name, double value, MetricRule rule) { evaluated(name, value, 1, rule); }

  /// The last evaluation that a commit has told of; the same on all ranks that have made that commit. An evaluation
  /// after n steps is told with the commit of the step after it. Empty before the first. A worker that
  /// joins or resumes has it as the others do.
  [[nodiscard]] const std::optional<Evaluation>& last_evaluation() const;

  /// Asks for the end of the job after the step whose commit() comes next, because training is good enough, say. One
  /// rank is enough. That step is the last one for all: a snapshot follows, the job ends with exit code 0, outcome
  /// "ended early" and `reason`, which the ledger keeps; Session::next is nullptr. Where that step is lost, the rank
  /// asks with the next one, unless the job goes back to before the call. Throws kInvalidArgument for an empty reason
  /// and one of more than 200 bytes.
  void end_after_step(std::string_view reason);

  /// What this rank computes on, and its number among the devices of the accelerator: [accelerator] device, or the
  /// number of this worker on its machine modulo the devices. Throws kNotFound where the machine has none, and
  /// kInvalidArgument where it has not that one.
  [[nodiscard]] const Accelerator& accelerator();
  [[nodiscard]] int32_t device();
  /// A stream of that device, for the program's own work. Pliant reads a gradient's pieces on it, in order with that.
  [[nodiscard]] Stream& stream();

  /// What the program does around a snapshot that this rank writes: of a state that is whole one rank does, as of a
  /// sharded one each its part. On the thread that uses the session, within its calls; each may be empty, and a second
  /// call replaces both.
  struct SnapshotHooks {
    /// Before anything is written. `step`: committed steps in the state. What it throws keeps this snapshot from being
    /// written: the agent says so and goes on, or at the end of the job asks another rank.
    std::function<void(int64_t step)> before;
    /// Afterwards. `file`: absolute; of a sharded job it is there once all parts are. `error`: why it, or this part,
    /// was not written; empty: it was. What it throws goes to the log.
    std::function<void(int64_t step, const std::string& file, const std::string& error)> after;
  };
  void on_snapshot(SnapshotHooks hooks);

  /// Declares data and state. `dataset` must be the same on all workers: the agent compares them before any of it
  /// counts, by lengths, loss tokens and Dataset::content, and ends those that have another one than the most; where
  /// `content` is 0, as of load_dataset, other text of the same lengths is not seen. Initial weights come from one
  /// worker and are copied to the others; after a restart they come from the snapshot. `state` outlives the session.
  /// Throws kInvalidArgument for arrays that are none: two of one name, an unknown type, no memory or, as for
  /// Step::add_piece, memory that is none for this rank, or may be read only. All of it is looked at here, where an
  /// array has moved, and whenever the arrays are copied or kept. A start that throws keeps nothing of `state` and may
  /// be tried again; after one that does not, kFailedPrecondition.
  void start(Dataset dataset, TrainingState& state);
  /// The same with the data set that [data] of the config names; throws what load_dataset throws.
  void start(TrainingState& state) { start(load_dataset(config()), state); }

  /// The same with a model that is cut over the ranks, all of whose parameters and modules were added. `rest` is what
  /// the program keeps beside it: it has no arrays and its gradient_size is 0. Both outlive the session. The first
  /// weights come from ParameterSpec::initialise. Throws kInvalidArgument for a rest with arrays.
  void start(Dataset dataset, ShardedModel& model, TrainingState& rest);

  /// The step `ahead` steps, at least 1, after the one that next() gave last, for a loader that reads ahead. nullptr
  /// past the end of the job and past the epoch after that of the step in hand, before the first next() and after the
  /// last. Valid until the next next(); its batch is built once, its rows are shared out again where that changed.
  /// O(entries) the first time. The first look into the next epoch plans it, O(sequences), as its begin does, which
  /// then takes that plan: until then the rank holds the rows of two epochs. Throws kInvalidArgument for less than 1,
  /// and what the sampler refuses of the next epoch.
  [[nodiscard]] const ComingStep* coming(int64_t ahead);

  /// The next step for this worker; nullptr when the job is done or was told to stop, and all that was enqueued on
  /// stream() has run. Blocks while this worker is a spare. A pass over a sharded model that was not ended is given up,
  /// and all ranks make the step again. Throws kPeerLost when the agent is gone.
  Step* next();

 private:
  friend class Committed;
  friend class ShardedModel;
  friend class Step;
  struct State;
  void evaluated(std::string_view name, double value, double weight, MetricRule rule);
  void require_not_started() const;
  void begin(Dataset dataset, TrainingState& program);
  void begin_with(Dataset dataset, TrainingState& program);
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pliant
