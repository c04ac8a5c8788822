// Runtime: carries out what a coordinator decides for a sharded model: gathers, releases, gradients to their owners.
//
// Weights, optimizer state and sums of gradients are shards: f32 arrays of the chunks that the rank owns. One stream
// has all that ranks exchange, in the order of the visits, which is the same on every rank. The program computes on its
// own stream, or on the CPU where that reaches the device's memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/device_look.hpp"
#include "pliant/accelerator.hpp"
#include "pliant/balancer.hpp"
#include "pliant/communicator.hpp"
#include "pliant/config.hpp"
#include "pliant/sharded.hpp"
#include "sharded/coordinator.hpp"
#include "sharded/memory/arena_needs.hpp"
#include "sharded/memory/shard_memory.hpp"
#include "sharded/memory/whole_memory.hpp"
#include "sharded/shards/exchange.hpp"
#include "sharded/shards/gather_costs.hpp"
#include "sharded/shards/layout.hpp"
#include "sharded/shards/model_tables.hpp"
#include "sharded/shards/moves.hpp"
#include "sharded/shards/ownership.hpp"
#include "sharded/shards/shard_sums.hpp"
#include "sharded/trace/recorded_call.hpp"
#include "sharded/trace/trace_recorder.hpp"
#include "sharded/trace/traced_passes.hpp"
#include "sharded/visit_page.hpp"

namespace pliant::sharded {

/// A run of a shard: elements first..first+count of the flat space, and where they lie.
struct ShardRun {
  uint64_t first = 0;
  uint64_t count = 0;
  float* at = nullptr;
};

/// What the gradient of a step came to.
struct GradientFacts {
  double squared_norm = 0;  ///< of the mean
  bool finite = true;       ///< of all ranks; the same on all
};

/// Any thread, one call at a time.
class Runtime {
 public:
  /// `config` was opened with the need "coordinator". The streams are of the device and outlive this; `program` is the
  /// program's own.
  Runtime(const Config& config, const Accelerator& accelerator, int32_t device, Stream& program, Stream& exchange,
          std::vector<std::string> state_names);
  ~Runtime();

  ModelTables model;

  /// The model is complete.
  void close_model();
  [[nodiscard]] const std::vector<std::string>& state_names() const { return state_names_; }

  // The group.

  /// The ranks of a new generation: whatever the old one left is given up, and shards have no values yet. The map of
  /// who owns what is of `epoch`, which is above that of every map before in this process.
  void enter_group(Communicator& communicator, int64_t epoch = 0);
  /// The ranks of a new generation that go on with what some of them own after `step` steps: `from` says what, `was` at
  /// which place there each of them was, or -1. From now on the first `stay` ranks own it. Collective; no more of it
  /// moves than must, and `begins` is called before any does. Returns the bytes that this rank sent. A rank from `stay`
  /// on owns nothing afterwards, and a group that has one makes no steps. Throws kDataLoss, on the rank that sees it
  /// and after `begins`, for what is of another step, and for a chunk that arrived with other bytes than its owner's
  /// stamp says: the message names ranks and chunk.
  uint64_t enter_group(Communicator& communicator, const Ownership& from, std::span<const int32_t> was, int32_t stay,
                       int64_t step, const std::function<void()>& begins);
  /// The communicator is going. Waits for what it still moves.
  void leave_group() noexcept;
  /// First values, which are of step 0: calls what the program gave, and then `share` with each parameter's, which
  /// makes them those of one rank.
  void initialise(const std::function<void(std::span<float> values)>& share = {});
  /// Array 0 is the weights, the others are the states, in ascending order. The caller may write them while they are of
  /// no step, and calls stamp() then.
  [[nodiscard]] std::vector<ShardRun> runs(size_t array);

  // What the coordinator learns from one step to another.

  /// Between two steps; empty: its plugin keeps nothing, or not now.
  [[nodiscard]] std::string save_coordinator() const;
  /// Collective, once a group stands and before its first pass: the coordinator goes on with what save_coordinator()
  /// gave in a process with the same model, where it has that and takes it on every rank. Else all begin anew, as they
  /// do where it is empty on all; where there was something, the log says why.
  void restore_coordinator(const std::string& saved);

  // Stamps: what this rank owns is of one step, and its chunks have digests.

  /// Values that were written by way of runs() are complete: those after `step` steps.
  void stamp(int64_t step);
  /// The steps that what this rank owns holds; kNoStep while an update changes it and before it has values.
  [[nodiscard]] int64_t step() const { return shards_.step(); }
  /// Throws kDataLoss, naming both, unless that is `step`.
  void require_step(int64_t step) const;
  /// A step has ended, which all ranks do alike, and the state holds `step` steps: what its update left alone is of
  /// that step, too. Throws kDataLoss where an update did not come to its end.
  void end_step(int64_t step);
  /// Of this rank's chunks, a sum modulo 2^64 for each array, as the state's digest has them; taken once for each step.
  /// require_step() comes before it.
  [[nodiscard]] std::vector<uint64_t> digests() { return shards_.digests(); }
  /// Throws kDataLoss where what this rank owns is not what those digests are of, where they were taken since it last
  /// changed. O(bytes).
  void require_unchanged() { shards_.require_unchanged(); }
  /// Parameters were read or written by hand since this was last asked.
  [[nodiscard]] bool take_touched() { return std::exchange(was_touched_, false); }
  /// A step was committed and its update, of what has something to update, was not made.
  [[nodiscard]] bool owes_update() const { return may_update_ && has_trained(); }
  /// That updates took since this was last asked to look whether shards are those whose digests were taken, and to take
  /// those of what they made.
  [[nodiscard]] std::chrono::microseconds take_check_time() { return std::exchange(check_time_, {}); }
  [[nodiscard]] ShardMemory& shards() { return shards_; }
  [[nodiscard]] const Ownership& ownership() const { return ownership_; }
  /// What this rank owns by it, ascending.
  [[nodiscard]] std::vector<OwnedRun> owned() const { return ownership_.runs_of(rank_); }

  /// Between two groups: others may see from then on what this rank visits.
  void show_visits(VisitPage page) { page_ = std::move(page); }
  [[nodiscard]] bool shows_visits() const { return page_.is_shown(); }
  /// The ranks of a generation stand, and count what they visit.
  void begin_visits(int64_t generation) {
    page_.begin_group(generation);
    is_model_noted_ = false;
  }
  /// The same on all ranks once they have reduced a step, unless they differ in what they did.
  [[nodiscard]] VisitCount visits() const { return page_.so_far(); }

  /// Has `recorder` hear what this rank does; it outlives this, or nullptr follows.
  void record(TraceRecorder* recorder) { recorder_ = recorder; }
  /// In a group, before its first call: `recorder` hears of this rank of it.
  void begin_recording(int64_t generation);

  // A step.

  /// What other ranks wait for, too.
  enum class Begun { kGather, kScatter };
  /// Calls `begun` whenever this rank has begun one and has not waited for it.
  void watch(std::function<void(Begun)> begun) { begun_ = std::move(begun); }
  void begin_step(int64_t rows, int64_t granule, const Assignment& assignment, bool look_for_not_finite);
  /// Gets the gradient of each of this rank's micro-batches with rows, in pieces of any order: elements from `offset`
  /// of the flat space on, in host memory. Every element comes once for each, and those of the micro-batches of a pass
  /// come in turn. `micro_batch`: of this rank's in the step, from 0.
  using Measure = std::function<void(size_t micro_batch, uint64_t offset, std::span<const float> values)>;
  void measure_gradients(Measure measure) { measure_ = std::move(measure); }
  /// Micro-batches that a step has on every rank.
  [[nodiscard]] size_t rounds() const { return sums_.rounds(); }
  /// Those whose pass was made.
  [[nodiscard]] size_t micro_batches_done() const { return done_; }
  /// Other parameters of a module, between two passes.
  void set_parameters(uint32_t module, const std::vector<ParameterId>& own, const std::vector<ParameterId>& external);
  /// Over the next micro-batches of the step, at least one; those past this rank's last have no rows.
  /// A pass was begun and not ended.
  [[nodiscard]] bool is_in_pass() const { return in_pass_; }
  void begin_pass(std::span<const RowRange> micro_batches);
  void begin_pass(RowRange rows) { begin_pass(std::span(&rows, 1)); }
  void begin_evaluation();
  /// A whole pass over micro-batches without rows, of the same visits as the last pass with gradients over as many.
  void repeat_pass(std::span<const RowRange> micro_batches);
  [[nodiscard]] bool can_repeat_pass(size_t micro_batches) const {
    return !last_pass_.empty() && last_pass_micro_batches_ == micro_batches;
  }
  void enter(uint32_t module, Direction direction);
  void leave(uint32_t module, Direction direction);
  /// From now on gradients are those of this micro-batch of the pass.
  void begin_micro_batch(size_t number);
  [[nodiscard]] DType compute_dtype() const { return compute_; }
  [[nodiscard]] DType reduce_dtype() const { return reduce_; }
  /// Of compute_dtype, and of reduce_dtype.
  void* value(uint32_t parameter);
  void* gradient(uint32_t parameter);
  void end_pass();
  /// Begins to gather it, by hand.
  void prefetch(uint32_t parameter);
  void fetch(uint32_t parameter);
  void release(uint32_t parameter);
  /// Collective: the owners take what is theirs of it.
  void write(uint32_t parameter, std::span<const float> values);
  /// Collective: what the owners keep of it, in f32.
  void read(uint32_t parameter, std::span<float> values);
  /// All passes of the step are done.
  [[nodiscard]] bool is_complete() const;
  /// Whether this rank's gradient of a micro-batch of the step, whose pass was made, is finite. Waits for it. nullopt
  /// where nobody knows: the device had begun to look and then refused to. One that cannot look at all refuses the
  /// first part, and the CPU looks at all of them.
  [[nodiscard]] std::optional<bool> is_finite(size_t micro_batch);
  /// This rank has made all passes of the step, and reduces next.
  void note_commit() { note(Visited::Kind::kCommit); }
  /// Collective: the mean gradient and its norm.
  GradientFacts finish_gradient(double scale);
  /// Of the step that was committed; throws kFailedPrecondition before it is, and from the next one on.
  [[nodiscard]] double squared_gradient_norm() const;
  /// What this rank owns is of no step while it runs, and where it throws. Once after allow_update; throws
  /// kFailedPrecondition otherwise.
  void update(const std::function<void(const ShardRange&)>& each);
  /// What this rank owns, to read it.
  void visit_owned(const std::function<void(const ShardRange&)>& each);
  /// The step is committed and not skipped: its gradient may be applied. `takes_digests`: the update ends with those of
  /// digests(), which are wanted before the next one: what changes in between is seen then.
  void allow_update(bool takes_digests = false) {
    may_update_ = has_norm_ = true;
    digests_after_update_ = takes_digests;
  }
  /// Collective: sums modulo 2^64, or the largest, of the values of all ranks.
  void combine_over_ranks(std::span<uint64_t> values, ReduceOp how);
  /// Gives up what is under way in this process; for an exception of the program.
  void abandon() noexcept;

  [[nodiscard]] ShardedMemory memory() const;
  /// Bytes of whole gradients that this rank had at once, at most, from when it adds to them until their owners have
  /// them; without what arrives from others.
  [[nodiscard]] uint64_t most_gradients() const { return memory_ ? memory_->most_gradients() : 0; }
  [[nodiscard]] TracedPasses traced_passes() const { return traced_passes_; }

 private:
  enum class Presence { kAway, kOnItsWay, kWhole };
  struct Held {
    Presence presence = Presence::kAway;
    WholePiece value;
    WholePiece gradient;  ///< room for it, as GradientRoom says
    size_t gather = 0;    ///< number of the collective that brings it
    uint32_t uses = 0;    ///< forward visits of the pass without their backward
    bool by_hand = false;
    bool was_let_go = false;      ///< it was by hand, until an update or another group
    bool is_reduced = false;      ///< in this pass
    size_t sent = 0;              ///< micro-batches of the pass whose gradient has left
    std::vector<bool> is_zeroed;  ///< by micro-batch of the pass: the gradient has values
  };
  struct Gathering {
    size_t number = 0;
    Event done;
    bool is_waited_for = false;  ///< by the program's stream
  };
  /// Gradients on their way to their owners.
  struct Scattering {
    std::vector<uint32_t> parameters;
    std::vector<ScatterItem> items;
    std::vector<float*> least_room;     ///< by item: for kLeastFloats of each rank; nullptr: the arena has it
    std::vector<WholePiece> gradients;  ///< that are free once it has been added up
    std::vector<WholePiece> received;   ///< likewise
    const SumRound* round = nullptr;
    std::optional<Event> done{};
    bool lingers = false;    ///< what is free lies there until the next send of the pass
    uint64_t bytes = 0;      ///< of the gradients
    size_t next_gather = 0;  ///< number of the first gather that was begun afterwards
    bool is_passed = false;  ///< the host has waited for what came afterwards
  };
  /// Of what was sent and is added up, and of which work is enqueued that ends with the event.
  struct Room {
    std::vector<WholePiece> gradients;
    std::vector<WholePiece> received;
    std::optional<Event> done{};  ///< where there is no budget, whose arena has its own
  };
  struct Visit {
    uint32_t module;
    Direction direction;
    size_t begun = 0;                 ///< micro-batches that were begun in it, in their order
    std::optional<size_t> in_hand{};  ///< the one that was begun last
  };

  void begin_group(Communicator& communicator);
  /// What this rank owns is what `rank` owns by `map`.
  [[nodiscard]] bool owns_by(const Ownership& map, int32_t rank) const;
  struct Change;
  /// Carries it out; returns the bytes that this rank sent.
  uint64_t move(Communicator& communicator, const Change& change);
  /// By move, of those in which this rank takes part, the others empty: the step, then the digests of the chunks, array
  /// after array.
  using MovedStamps = std::vector<std::vector<uint64_t>>;
  /// Sends the stamps of what goes and gets those of what comes.
  [[nodiscard]] MovedStamps exchange_stamps(Communicator& communicator, const Change& change);
  /// All that comes, and all that this rank owns, is of the step that the group goes on from.
  void require_steps(const Change& change, const MovedStamps& stamps) const;
  /// What has arrived of an array has the digests that were sent.
  void require_digests(size_t array, const ShardArray& arrived, const Change& change, const MovedStamps& stamps);
  /// Of what this rank owns of an array afterwards, by place: what arrived has those that were sent, what it keeps
  /// those that it had, so that a chunk that changed before the move is not taken for what it should be. Empty where
  /// they are not known.
  [[nodiscard]] std::vector<uint64_t> digests_after(size_t array, const Change& change, const MovedStamps& stamps,
                                                    std::span<const Kept> kept) const;
  [[nodiscard]] FlatRange range_of(uint32_t parameter) const;
  [[nodiscard]] float* array(size_t number) const { return shards_.values(number); }
  /// Some parameter is updated.
  [[nodiscard]] bool has_trained() const;
  /// Throws kResourceExhausted where a module does not fit into the budget.
  void require_budget() const;
  /// After another model or group.
  void find_gradient_rooms();
  /// Within a budget: passes may be over that many micro-batches from now on. The coordinator is given the model anew,
  /// with what it has learnt.
  void make_room_for(size_t micro_batches);
  /// Within a budget: room for the gradients of what a module uses that is entered backward, and as the first one is
  /// for those that modules use unannounced; on ranks without rows, too.
  void take_gradients(const std::vector<uint32_t>& used);
  void take_room_of_gradient(uint32_t parameter);
  /// Room for the gradients of a pass and, where gradient_room() has it there, for what arrives for them.
  [[nodiscard]] WholePiece take_gradient_room(uint32_t parameter);
  /// What arrives for a gradient lies behind it.
  [[nodiscard]] bool has_received_behind() const { return memory_->budget() > 0 && most_micro_batches_ > 1; }
  /// From one micro-batch to the next in the room.
  [[nodiscard]] uint64_t gradient_stride(uint32_t parameter) const;
  [[nodiscard]] char* gradient_at(uint32_t parameter, size_t micro_batch) const;
  /// It is zero until the program adds to it.
  void zero_gradient(uint32_t parameter, size_t micro_batch);
  /// What was not reduced when the pass ended: some of it at a time, so that no whole gradient of the model lies here,
  /// and one parameter after the other where there is a budget.
  void reduce_rest(std::span<const uint32_t> rest);
  void require_group() const;
  void require_no_pass() const;
  void begin(bool with_gradient, size_t micro_batches);
  /// Throw unless a pass over several micro-batches can go on: a parameter whose gradients share their room has one
  /// visit in each direction, and a module is left when all micro-batches were begun.
  void require_one_visit(uint32_t module) const;
  void require_all_begun(const Visit& visit) const;
  /// The micro-batch whose gradient the program gets.
  [[nodiscard]] size_t micro_batch_in_hand(uint32_t parameter) const;
  /// In visits_, the one that was entered last.
  [[nodiscard]] std::optional<size_t> last_backward_visit() const;
  [[nodiscard]] bool has_rows(size_t micro_batch) const { return done_ + micro_batch < blocks_.size(); }
  /// For others to see, before anything that waits for them.
  void note(Visited::Kind kind, uint32_t what = 0) { page_.add(kind, what); }
  /// Nothing of the pass failed.
  void require_sound() const;
  void give_model();
  /// First line of what save_coordinator() gives: whose it is, and of which model.
  [[nodiscard]] std::string line_of_coordinator() const;
  /// Why it does not go on with it; empty: it does.
  [[nodiscard]] std::string load_coordinator(std::string_view saved);
  /// Collective, between two steps: tells the coordinator what gathers take, once in each group.
  void agree_on_costs();
  /// Asks the coordinator and carries out what it answers. When either fails, the pass can only be given up.
  template <class Ask>
  void follow(const Ask& ask);
  /// When `work` fails, the pass can only be given up.
  template <class Work>
  void or_give_up(const Work& work);
  /// What it takes counts in take_check_time().
  template <class Work>
  void timed(const Work& work);
  void carry_out(std::span<const pliant_action> actions);
  [[nodiscard]] std::vector<Visit>::iterator visit_to_leave(uint32_t module, Direction direction);
  /// What has no place lies on that side of the arena.
  void gather(std::span<const pliant_action> group, ArenaSide side = ArenaSide::kBegin);
  /// Outside of passes: what passes have left whole goes. True where something was.
  bool release_what_is_left();
  /// Outside of passes: what passes have left whole makes room.
  template <class Work>
  void or_after_release(const Work& work);
  void wait(uint32_t parameter);
  /// The host waits.
  void synchronize(Event& done, TracedTransfer::Kind of, uint32_t parameter);
  void release_whole(uint32_t parameter);
  /// Who reads it from now on reads NaN, until something else lies there.
  void poison(uint32_t parameter);
  /// Blocks until at most so many gathers that the program waits for have not ended.
  void bound_waits(uint64_t unfinished);
  /// Those that have ended are forgotten, the oldest first.
  void forget_ended_gathers();
  void forget_oldest_gather();
  /// What has not left of their gradients, micro-batch after micro-batch. `lingers`: PLIANT_ACTION_LINGER.
  void reduce(std::span<const uint32_t> parameters, bool lingers = false);
  /// Their gradients of one micro-batch, as one collective.
  void send(std::span<const uint32_t> parameters, size_t micro_batch, bool lingers = false);
  /// All that gradients on their way take, and what lingers.
  void make_room();
  /// What is held by hand takes now.
  [[nodiscard]] uint64_t bytes_by_hand() const;
  /// The program's stream does, and their memory is free for what it does then.
  void wait_for_let_go();
  /// What was sent last lingers where the CPU adds it up.
  [[nodiscard]] bool lingers_here() const { return !scatterings_.empty() && scatterings_.back().lingers; }
  /// What lingers of the send before may be used otherwise.
  void retire();
  /// It is free for work that is enqueued from now on, maybe after waiting.
  void let_go(Room room);
  /// Of a module that is entered, so that the next one has their room.
  void send_early(uint32_t module, size_t micro_batch);
  void put(Scattering& into, uint32_t parameter, size_t micro_batch);
  void add_received(const Scattering& arrived);
  /// All, waiting for them, or those that are known to have arrived, whatever the clock says; up to the first that
  /// lingers or that, too.
  void drain_scatterings(bool all, bool lingering = true);
  /// Of scatterings_; waits for it.
  void add_up_oldest();
  /// Has added up what was sent and must have arrived; where there is a budget, all that was sent and does not linger.
  void clear_way();
  /// Without a budget: so many bytes are about to be sent, and what is on its way beside them is as much as on any
  /// rank.
  void bound_on_way(uint64_t bytes);
  /// Without a budget: a gradient is about to take so many bytes, and what is on its way is no reason for the whole
  /// gradient of the model to be there.
  void keep_from_being_whole(uint64_t bytes);
  [[nodiscard]] Event take_event();
  /// What is exchanged from now on comes after what the program has enqueued.
  void follow_program();
  /// Every run that this rank owns, in order; `to_update`: with gradients, without what is frozen.
  void for_each_owned(bool to_update, const std::function<void(const ShardRange&)>& each);
  /// Elements from `offset` of the flat space on. NULL: zeros.
  void measure(size_t micro_batch, uint64_t offset, const float* there, uint64_t count);
  void look_for_not_finite(size_t micro_batch, const float* values, uint64_t count);
  /// Whether a whole gradient of this rank is finite, and its norm, as far as somebody asks. `least_room`: as of a
  /// Scattering.
  void look_at(uint32_t parameter, size_t micro_batch, const void* gradient, float* least_room);
  [[nodiscard]] WholePiece take(uint64_t count, DType type, const WholePurpose& what, const WholePlace& place = {}) {
    return take(count, type, what, place, exchange_stream_);
  }
  [[nodiscard]] WholePiece take(uint64_t count, DType type, const WholePurpose& what, const WholePlace& place,
                                Stream& on);
  /// What is gathered: the weights, or, cast once since they changed, what is computed with.
  const void* weights_to_gather();
  /// As floats: `values`, of reduce_dtype, or a copy at `room`, which has so many.
  const float* as_floats(const void* values, uint64_t count, float* room);
  /// How many elements of a gradient are cast to f32 at once: all, or few enough that a budget does not feel it.
  [[nodiscard]] uint64_t float_block(uint64_t count) const;
  [[nodiscard]] const std::string& name(uint32_t parameter) const { return model.parameter(parameter).name; }

  const Config config_;
  const Accelerator accelerator_;
  const int32_t device_;
  Stream& program_;
  Stream& exchange_stream_;
  const bool here_;  ///< the CPU reaches the device's memory
  const DType compute_;
  const DType reduce_;
  const bool poisons_;
  std::vector<std::string> state_names_;
  Coordinator coordinator_;
  bool is_sound_ = true;  ///< it answered, and all that it answered was carried out
  bool is_new_ = false;   ///< it was given the model, and no pass since
  FlatLayout layout_;
  Ownership ownership_;
  std::optional<Exchange> exchange_;
  std::vector<OwnersOfRange> owners_;  ///< by parameter, in this group
  std::vector<uint64_t> most_owned_;   ///< likewise, elements of one rank
  std::vector<GradientRoom> rooms_;    ///< likewise; empty without a budget
  std::vector<bool> side_by_side_;     ///< by parameter: the gradients of a pass's micro-batches
  size_t most_micro_batches_ = 1;      ///< of a pass of this group so far: what rooms_ are for
  std::vector<Event> spare_events_;    ///< that nothing waits for any more
  Communicator* communicator_ = nullptr;
  int32_t rank_ = 0;
  ShardMemory shards_;          ///< weights, then the states
  int64_t after_update_ = 1;    ///< the step that they are of after an update
  std::optional<Buffer> cast_;  ///< of the weights, where they are computed with as another type
  bool is_cast_ = false;
  ShardSums sums_;
  std::optional<WholeMemory> memory_;

  std::vector<Held> held_;
  std::vector<GatherItem> to_gather_;   ///< in gather()
  std::vector<uint32_t> gathered_now_;  ///< likewise: parameters
  std::deque<Gathering> gatherings_;
  size_t gathered_ = 0;
  GatherCosts costs_;
  int64_t steps_of_group_ = 0;          ///< that were begun
  std::deque<Scattering> scatterings_;  ///< not added up yet
  uint64_t on_way_bytes_ = 0;           ///< of these
  uint64_t whole_gradient_ = 0;         ///< bytes in this pass, whole_gradient_bytes()
  std::optional<Room> lingering_;       ///< where the device adds up: of the send before
  std::deque<Room> let_go_;             ///< gradients that the program's stream has not waited for
  std::vector<Visit> visits_;           ///< entered and not left
  /// What repeat_pass() does again.
  struct PassCall {
    enum class Kind : uint8_t { kEnter, kLeave, kMicroBatch } kind;
    Direction direction;
    uint32_t number;  ///< of the module, or of the micro-batch
  };
  std::vector<PassCall> pass_;       ///< that is under way
  std::vector<PassCall> last_pass_;  ///< with gradients, that came to its end
  size_t last_pass_micro_batches_ = 0;
  std::vector<uint32_t> complete_;
  bool in_pass_ = false;
  bool follows_trace_ = false;
  TracedPasses traced_passes_;
  bool with_gradient_ = false;
  bool is_backward_ = false;         ///< some module of the pass was entered backward
  size_t micro_batches_ = 1;         ///< of the pass
  std::optional<size_t> in_hand_{};  ///< likewise, where no module is entered backward
  std::vector<bool> is_finite_;      ///< by micro-batch of the step, as far as the host knows
  bool look_for_not_finite_ = false;
  std::optional<detail::DeviceLook> look_;  ///< in a group, where the CPU does not look
  bool is_looking_ = false;                 ///< it was given something that the host has not heard of
  bool has_looked_ = true;                  ///< false: at something that it was given it has not
  Measure measure_;
  std::function<void(Begun)> begun_;
  std::vector<float> measured_;          ///< on the host
  std::vector<const SumRound*> rounds_;  ///< of the pass, by micro-batch
  size_t done_ = 0;                      ///< micro-batches of the step whose pass was made
  std::vector<RowRange> blocks_;         ///< of this rank
  bool is_step_ = false;
  bool may_update_ = false;
  bool has_norm_ = false;  ///< facts_ are of the step that was committed last
  bool digests_after_update_ = false;
  bool was_touched_ = false;
  std::chrono::microseconds check_time_{};
  GradientFacts facts_;
  std::unique_ptr<Event> program_point_;
  VisitPage page_;
  bool is_model_noted_ = false;  ///< since the group formed and since set_parameters
  TraceRecorder* recorder_ = nullptr;
};

template <class Work>
void Runtime::timed(const Work& work) {
  const auto began = std::chrono::steady_clock::now();
  work();
  check_time_ += std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - began);
}

template <class Work>
void Runtime::or_give_up(const Work& work) {
  try {
    work();
  } catch (...) {
    is_sound_ = false;
    throw;
  }
}

template <class Ask>
void Runtime::follow(const Ask& ask) {
  require_sound();
  is_sound_ = false;
  carry_out(ask());
  is_sound_ = true;
}

}  // namespace pliant::sharded
