// What a Session holds, shared by its three parts: attaching, joining generations, running steps.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/reserved_descriptor.hpp"
#include "data/array_digests.hpp"
#include "elastic/busy_list.hpp"
#include "elastic/channel.hpp"
#include "elastic/metric_table.hpp"
#include "elastic/reduction.hpp"
#include "elastic/run_directory.hpp"
#include "elastic/share_clock.hpp"
#include "elastic/snapshot.hpp"
#include "elastic/spool.hpp"
#include "elastic/staging.hpp"
#include "elastic/state_arrays.hpp"
#include "elastic/state_digest.hpp"
#include "elastic/state_transfer.hpp"
#include "pliant/balancer.hpp"
#include "pliant/session.hpp"
#include "sharded/runtime.hpp"
#include "sharded/shards/parameter_index.hpp"
#include "sharded/trace/trace_recorder.hpp"

namespace pliant {

namespace elastic {

/// Of what a program says in words: what it is busy with, why it ends.
inline constexpr size_t kMostBytesOfWords = 200;

/// The communicator of the present generation, shared with the thread that hears of aborts.
class CommunicatorSlot {
 public:
  // Any thread. Ends every wait of generation `generation` and of older ones, also of those that begin later.
  void abort(int64_t generation) {
    const std::lock_guard lock(mutex_);
    aborted_ = std::max(aborted_, generation);
    if (communicator_ && generation_ <= aborted_) communicator_->abort();
  }
  Communicator& put(std::unique_ptr<Communicator> communicator, int64_t generation) {
    const std::lock_guard lock(mutex_);
    communicator_ = std::move(communicator);
    generation_ = generation;
    if (generation_ <= aborted_) communicator_->abort();
    return *communicator_;
  }
  void clear() {
    std::unique_ptr<Communicator> old;
    const std::lock_guard lock(mutex_);
    old = std::move(communicator_);
  }
  Communicator& get() { return *communicator_; }
  // Any thread. True when the agent has ended generation `generation`.
  [[nodiscard]] bool is_over(int64_t generation) {
    const std::lock_guard lock(mutex_);
    return generation <= aborted_;
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<Communicator> communicator_;
  int64_t generation_ = 0;
  int64_t aborted_ = 0;
};

/// What `error` of a collective says to the agent.
Broken broken(int64_t generation, const Error& error);

}  // namespace elastic

struct Session::State {
  /// What a worker knows of the job that it has joined.
  struct Joined {
    FileDescriptor agent;
    elastic::RunDirectory directory;
    std::string program;                ///< kProgramVariable
    std::string incarnation;            ///< Warden::kVariable
    std::optional<std::string> digest;  ///< of the elasticity policy
  };
  State(Joined joined, Config read, elastic::JobFacts pinned)
      : directory(std::move(joined.directory)),
        config(std::move(read)),
        facts(std::move(pinned)),
        word_of_agent(joined.incarnation.substr(joined.incarnation.rfind('/') + 1)),
        channel(
            std::move(joined.agent), [this](int64_t generation) { communicator.abort(generation); },
            elastic::resume_with(directory, joined.program)) {}
  /// Reads what the run keeps for its workers.
  static std::unique_ptr<State> open(Joined joined);

  ~State() { busy->close(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  ReservedDescriptor reserved;  // for snapshots; taken first, before others take all
  elastic::RunDirectory directory;
  Config config;
  elastic::JobFacts facts;
  std::string word_of_agent;               // that no other agent has told its workers
  elastic::CommunicatorSlot communicator;  // before channel: its thread uses it
  elastic::Channel channel;
  std::shared_ptr<elastic::BusyList> busy =
      std::make_shared<elastic::BusyList>([this](const elastic::BusyWith& what) { channel.send(what); });
  std::optional<Accelerator> accelerator;
  int32_t device = 0;
  DeviceProperties device_properties;
  std::optional<elastic::Staging> staging;  // before the streams, whose work uses it
  std::optional<Stream> stream;             // of collectives
  std::optional<Stream> program_stream;
  std::optional<data::ArrayDigests> array_digests;
  TrainingState* program = nullptr;
  std::optional<elastic::StateArrays> arrays;  // of program
  std::optional<Batches> batches;
  BatchSize mean_batch;                 // of epoch 0
  std::optional<JobLength> job_length;  // where a rule asks for it
  int64_t epoch_told = 0;               // the last one that is known to be in the run directory's list of epochs
  std::optional<LearningRate> learning_rate;
  std::optional<Balancer> balancer;
  std::optional<elastic::GradientReduction> reduction;  // sharded: of what is added up beside the gradient
  sharded::Runtime* sharded = nullptr;                  // the program's, where it shards its model
  bool has_sharded_model = false;                       // it has made one
  std::optional<elastic::Spool> first_rest;             // of it: what the program saved before the first step
  std::optional<sharded::TraceRecorder> recorder;       // where the agent wants a trace
  std::string first_lr_state;
  std::vector<uint64_t> shard_digests;  // of the arrays of this rank's shards, where the step's digest is due
  struct Parts {                        // the snapshot of which this rank last wrote a part
    std::string file;
    int64_t generation = 0;
    elastic::SnapshotHeader header;
    elastic::Spool rest;
  };
  std::optional<Parts> parts_of;
  struct KeptCoordinator {  // sharded: what the coordinator had learnt after `step` steps
    int64_t step = -1;
    std::string coordinator;
  };
  KeptCoordinator kept;

  bool over = false;
  bool in_generation = false;
  bool gave_up_itself = false;    ///< and not because another rank was lost or gave up
  bool is_spoiled = false;        ///< what was given up may have changed what ranks own
  bool refuses_snapshot = false;  ///< that load_snapshot read last: it fits neither program nor config
  std::optional<Error> given_up;  ///< what ended the passes of the step in hand: the others are told by Session::next
  int64_t applied = 0;            // steps that this worker's state holds; -1: a part of a copy
  elastic::Form form;             // of the present generation
  std::optional<elastic::ToWorker> put_back;  // read too early
  std::optional<elastic::Commit> verdict;     // of a step that the program is applying

  std::shared_ptr<const Batch> batch = std::make_shared<const Batch>();  // never null
  std::map<int64_t, ComingStep> foretold;                                // by step
  int64_t at_hand = -1;  // the step that the program has in hand, or had; -1: none so far
  int64_t shares = 0;    // rises where rows are shared out anew
  Assignment assignment;
  CostRates rates;  // of the step in hand; the same on all ranks
  std::vector<RowRange> micros;
  std::optional<elastic::StateDigest> digest;       // of the state that the step begins with, where it is due
  std::optional<elastic::StateDigest> last_digest;  // of the state after the last step
  int64_t snapshot_at = -1;  // steps in the state that a rank was last to write a snapshot of: it is compared, too
  std::chrono::microseconds digest_time{0};
  elastic::ShareClock clock;
  size_t added = 0;
  bool voted = false;            // on the step in hand, or it was given up
  bool is_in_attempt = false;    // at the step in hand: it is not committed
  elastic::MetricTable metrics;  // of the step in hand
  SnapshotHooks snapshot_hooks;
  bool is_in_next = false;  // which calls the program: hooks, and methods of its state
  std::optional<Evaluation> last_evaluation;
  std::string reason_to_end;     // of the job after the next commit; empty: it goes on
  int64_t asked_at = 0;          // steps in the state when the program said so
  elastic::MetricTable results;  // of an evaluation, that the agent has not heard of
  Scaling scaling;
  std::optional<GradientNorms> norms;    // of the step in hand, where a rule asks for them
  std::span<const float> mean_gradient;  // on the device
  std::vector<float> host_gradient;      // a copy of it, once it was asked for
  bool host_gradient_is_there = false;
  std::unique_ptr<Step> step;

  /// Of the batches, as it is written in snapshots and told to the agent.
  [[nodiscard]] std::string fingerprint() const;
  /// Of the resolved config, hex.
  [[nodiscard]] std::string digest_of_options() const;
  /// Of the names, types and shapes of the program's arrays in their order, hex; empty: it has none.
  /// The digest of `list`, which is left in the run directory under it: the agent says where lists differ.
  [[nodiscard]] std::string noted(std::string_view list) const;
  [[nodiscard]] std::string digest_of_arrays() const;
  [[nodiscard]] std::string facts_of_gradient() const;
  /// Of what balancer and learning-rate rule answer to a question that is the same on all workers of the job, hex: that
  /// of a plugin whose file was replaced is another one, as far as it answers otherwise.
  [[nodiscard]] std::string digest_of_policies() const;
  /// Opens the accelerator and chooses the device, once.
  void open_device();
  /// What arrays in memory that the CPU does not see go through; NULL where it sees the device's.
  [[nodiscard]] elastic::Staging* staging_of_arrays() { return device_properties.host_visible ? nullptr : &*staging; }
  /// The gradient of the step, from the sum over the global batch.
  void take_mean(std::span<float> sum, double scale);
  /// Its squared norm.
  double norm_of_mean();
  /// The gradient where the CPU can read it.
  std::span<const float> gradient_on_host();
  elastic::ToWorker receive();
  /// Dies or stops here when an injection says so.
  void strike(elastic::InjectionPoint at);

  /// Writes the data set for all, or compares it with what is there, and tells the agent.
  void write_data();
  /// Waits for the id that rank 0 made; nullopt when the generation ended first.
  std::optional<CommId> wait_for_id();
  /// Fills what this rank holds from form.restore.
  void load_snapshot();
  /// The same of a state that is whole. False where it does not fit, which the agent is told.
  bool load_whole_snapshot();
  /// Fills the program's state from a snapshot's.
  void load_state(std::istream& in, const elastic::SnapshotHeader& header);
  /// Copies the donor's state to the ranks that want it; all take part. What goes beside it is returned, and is to be
  /// taken when the group stands.
  elastic::SharedState copy_state(Communicator& group);
  void take_state(const elastic::SharedState& state);
  /// Says how many steps its state holds and, where that is asked, what.
  void answer(const elastic::Tell& tell);
  /// Throws kFailedPrecondition where the device is lost to this process: it ends, and as with a death the job goes
  /// back or begins anew. Were the group joined, it would break off until the job ends.
  void require_device();
  /// Joins the generation of `form`. False when it ended before it stood.
  bool enter_generation();
  /// What this rank does in the generation that stands is recorded, where the agent asks for it and the file can be
  /// written.
  void begin_recording();
  /// Blocks until this worker is a rank of a standing generation; false when the job is over.
  bool join();

  /// Opens the batches: where the run has come to as far as is known, so that no epoch before is planned, or at their
  /// begin. Plans the epoch there, so that others need not wait for it. Throws kFailedPrecondition where the sampler
  /// gives other rows than the job's.
  void open_batches(const Plan& plan, Dataset dataset);
  void open_batches_at_begin(const Plan& plan, Dataset dataset);
  /// Has batches that were opened at their begin stand where the run has come to, be it by another version of the
  /// sampler. False where that is of other data or options.
  [[nodiscard]] bool stand_at(const std::string& position);
  /// Has the batches give that of step `applied`, by way of what other workers have told of its epoch.
  void find_epoch();
  /// Writes down for workers that join later where the epoch of the step in hand begins, which is committed: its rows
  /// are the job's.
  void tell_epoch();

  /// What was found out about the present state goes to the agent. Within an attempt, before the vote.
  void tell_results();

  /// Session::next. False when the job is over for this worker.
  bool has_next();
  void prepare_step();
  void share_out();
  [[nodiscard]] Assignment share_out(const Batch& rows) const;
  /// What its ranks begin that step with is compared ([run] digest_every).
  [[nodiscard]] bool is_compared(int64_t at_step) const;
  void take_digest();
  [[nodiscard]] elastic::StateDigest digest_of_state();
  /// Keeps the digests of the parts of the state after `applied` steps beside the ledger, for whoever looks for a
  /// difference.
  void note(const elastic::StateDigest& digest) const;
  /// After the program applied a committed step.
  void settle();
  void write_snapshot(const std::string& file);
  /// Calls the program's hooks around `write`, which returns why nothing was written; so does this.
  [[nodiscard]] std::string with_hooks(const std::string& file, const std::function<std::string()>& write);

  // Where the model is sharded.

  [[nodiscard]] std::vector<std::string> names_of_shards() const;
  /// Names, types and shapes of the state's arrays.
  [[nodiscard]] std::string state_layout() const;
  /// First values of parameters, and the rest, become those of rank 0: programs may have made others.
  void begin_shards(Communicator& group);
  /// This rank's shards in the group that stands, and what is in them.
  elastic::Formed form_shards();
  /// Of the sharded model, hex: two programs of one digest have the same parameters, modules and optimizer states.
  [[nodiscard]] std::string digest_of_model() const;
  /// What this rank visits in the generation that stands is counted, and shown to the agent where the run directory can
  /// be written.
  void begin_visits();
  /// Of the parameters alone, hex, as snapshots of format 4 have it.
  [[nodiscard]] std::string digest_of_parameters() const;
  /// What has been learnt by now is kept, for the snapshot and the next group: where all ranks come to the same point.
  void keep_coordinator();
  /// That of the state that this rank holds; empty: none was kept.
  [[nodiscard]] std::string kept_coordinator() const;
  /// Where the arrays of the model lie in a snapshot.
  struct Source {
    std::vector<size_t> arrays;            ///< place of each of names_of_shards()
    uint64_t elements = 0;                 ///< of each array there
    std::vector<sharded::PlacedRun> runs;  ///< of the model, ascending
  };
  /// Throw kFailedPrecondition (kInput), naming what differs, for a snapshot of another model.
  [[nodiscard]] Source source_in_order(const elastic::SnapshotHeader& written) const;
  [[nodiscard]] Source source_by_name(const elastic::SnapshotHeader& written) const;
  void read_shards(std::istream& in, const elastic::SnapshotHeader& written);
  /// By way of the staging memory; stops where the stream ends, which its reader sees.
  void read_elements(std::istream& in, float* to, uint64_t count);
  void write_part(const std::string& file);
  void finish_snapshot(const elastic::Assemble& order);
  void take_digest_of_shards();
  /// `of_arrays`: digests over all ranks.
  [[nodiscard]] elastic::StateDigest digest_of_shards(const std::vector<uint64_t>& of_arrays);
  /// Collective: the mean gradient, and whether it is finite.
  void reduce_shards(elastic::ReductionResult& reduced);

  /// Waits for what the program has enqueued, however that ends: the job is over, and memory may go.
  void wait_for_program() noexcept;
  /// Waits for the agent's word on the step that this rank voted for.
  bool committed();
  std::optional<elastic::ReductionResult> reduce();
  /// Has buckets of the gradient that are there travel while others are computed.
  void begin_buckets();
  /// Buckets of a step that the program does not commit are under way: all ranks make the step again.
  void give_up_buckets(const Error& why);
  /// Says that a collective of the present generation failed, unless the agent has ended that generation itself.
  void tell_broken(const Error& error);
  /// Says what `error`, which leaves the session, refuses, where it asks the process to exit for that.
  void tell_refusal(const Error& error);
  /// The passes of a sharded model since the attempt began end with `error`; Session::next tells the others.
  void give_up_passes(Error error);
  /// What `work` returns. What it refuses is told to the agent and thrown on.
  template <class Work>
  auto or_tell(const Work& work) {
    try {
      return work();
    } catch (const Error& error) {
      tell_refusal(error);
      throw;
    }
  }
};

}  // namespace pliant
