// StepClock: how long a step would take on a device, worked out on paper from a program's calls and what was answered.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "sharded/memory/step_arena.hpp"
#include "sharded/rehearsal.hpp"
#include "sharded/shards/layout.hpp"
#include "sharded/shards/model_tables.hpp"
#include "sharded/shards/ownership.hpp"
#include "sharded/shards/sum_rounds.hpp"

namespace pliant::sharded {

/// 1 GB/s moves a byte in a nanosecond. A piece of work takes whole nanoseconds, rounded up, as on the clock of `sim`.
struct WorkCost {
  uint64_t start_ns = 0;  ///< whatever its size
  double gbps = std::numeric_limits<double>::infinity();
  [[nodiscard]] uint64_t of(uint64_t bytes) const;
};

struct StepCosts {
  /// Which bytes of a group of parameters, or gradients, count.
  enum class By {
    kBusiest,  ///< that the rank gets which gets most: those of the group that it does not own, to gather; for what it
               ///< owns those of all others, to reduce
    kWhole     ///< all, one parameter after the other, each with a `start_ns` of its own: as on the clock of `sim`
  };
  By by = By::kBusiest;
  WorkCost gather;  ///< a collective
  WorkCost reduce;
  WorkCost local;  ///< all other work of the exchange, by bytes read and written: casts, zeros, sums
};

/// Of the passes with gradients, and what lies between them: an evaluation before the first of them, or behind the last
/// one, is none of the step's.
struct StepTime {
  uint64_t all_ns = 0;           ///< from the begin of the first pass to the end of the work of the last one
  uint64_t compute_ns = 0;       ///< of it, what the program computes
  uint64_t gather_ns = 0;        ///< collectives that gather
  uint64_t reduce_ns = 0;        ///< collectives that reduce
  uint64_t first_gather_ns = 0;  ///< the first of them
  uint64_t last_reduce_ns = 0;   ///< the last of them
  [[nodiscard]] uint64_t transfer_ns() const { return gather_ns + reduce_ns; }
  /// No order of the same work on two streams takes less.
  [[nodiscard]] uint64_t bound_ns() const { return compute_ns > transfer_ns() ? compute_ns : transfer_ns(); }
};

/// Follows Runtime on a device whose memory the CPU does not reach, call by call: the program's stream, the stream on
/// which ranks exchange, and the host, which waits where Runtime waits. All ranks have rows in every pass and come at
/// once, in a group that is new; what the host does takes no time. Of a program that takes the gradients of a module
/// when that is entered backward and computes right after; in a pass over several micro-batches it does so for one
/// after the other, each in as much time. Each rank adds up what it owns, and a collective begins when
/// the last one comes. The update, the norm and allocations are not counted, and neither is what is fetched by hand.
/// O((actions and parameters of the module) * ranks + pieces of what is moved) a call; O(parameters) a pass.
class StepClock {
 public:
  struct Job {
    int32_t world_size = 1;
    DType whole = DType::kF32;
    DType reduce = DType::kF32;
    bool looks_at_gradients = true;  ///< [run] on_nonfinite is not "ignore"
    bool deterministic = false;
    uint64_t budget = 0;       ///< 0: none
    int64_t rounds = 1;        ///< micro-batches of a step, at most
    size_t micro_batches = 1;  ///< that a pass is over, at most
  };
  /// The model outlives this.
  StepClock(const ModelTables& model, const Job& job, const StepCosts& costs);

  /// What is heard from now on is of another step. A program may give up what is whole within one: kEndStep ends none.
  void begin_step();
  /// The calls of simulate(), in turn. `compute_ns`: what the program computes between this call and its next.
  void hear(const RehearsedCall& call, uint64_t compute_ns);
  /// Of the step, up to its last pass with gradients that has ended.
  [[nodiscard]] const StepTime& step() const { return step_; }
  /// As GatherCosts measures them in the step, and ranks agree on them: nanoseconds by parameter.
  [[nodiscard]] const std::vector<uint64_t>& gather_costs() const { return measuring_; }

 private:
  /// Nanoseconds by parameter.
  struct Cost {
    uint64_t gather = 0;
    uint64_t reduce = 0;
    uint64_t zero = 0;  ///< its gradient
  };
  /// What a pass does with its addends: of each call the arrays that are read.
  using Round = std::vector<uint64_t>;
  /// Micro-batches count from the first one on.
  struct Gradient {
    size_t zeroed = 0;  ///< those whose gradient is zero, or was added to
    size_t sent = 0;
    bool is_reduced = false;
  };
  /// Elements of a parameter.
  struct Piece {
    uint32_t rank;
    uint64_t count;
  };
  /// When a rank is done with what was enqueued.
  struct Rank {
    uint64_t host = 0;  ///< what it enqueues begins no sooner
    uint64_t program = 0;
    uint64_t exchange = 0;
    uint64_t cast_weights_ns = 0;  ///< that takes
  };
  void add_pieces(const FlatLayout& layout, const Ownership& ownership);
  [[nodiscard]] std::span<const Piece> pieces(uint32_t parameter) const {
    return std::span(pieces_).subspan(first_piece_[parameter], first_piece_[parameter + 1] - first_piece_[parameter]);
  }
  void add_casts_of_weights(const FlatLayout& layout, const Ownership& ownership);
  /// What their owner does to add them up, in so many elements at once. Nanoseconds.
  [[nodiscard]] uint64_t sums_of(const Round& round, uint64_t elements, uint64_t block) const;
  [[nodiscard]] Cost cost_of(uint32_t parameter);
  /// Looks through gradients of micro-batch `of` of the step that leave together, as DeviceLook does.
  void look_at(std::span<const uint32_t> parameters, size_t of);
  /// At so many elements.
  void look(uint64_t count);
  void settle();
  /// So many numbers become one. False where it lies where they lay.
  bool fold(uint64_t numbers);
  [[nodiscard]] uint64_t block_of(uint64_t elements) const;
  void plan_rounds();

  void begin_pass(const RehearsedCall& call);
  /// The program computes with a module.
  void enter_backward(const ModuleRow& module, uint64_t compute_ns);
  void end_pass(bool with_gradient);
  void end_step();
  void carry_out(std::span<const pliant_action> actions);
  void gather(std::span<const pliant_action> group);
  void reduce(std::span<const uint32_t> parameters, bool lingers = false);
  /// The gradients of one micro-batch.
  void send(std::span<const uint32_t> parameters, size_t micro_batch, bool lingers);
  /// Of a micro-batch, while its module is still entered.
  void send_early(std::span<const uint32_t> used, size_t micro_batch);
  void zero_gradient(uint32_t parameter, size_t micro_batch);
  /// Gradients that linger are free.
  void retire();
  /// The gather in hand.
  void measure(uint64_t takes);
  /// Memory that gradients now lie in was used by the exchange.
  void wait_for_room();
  /// Bytes of those of the pass, without an arena.
  [[nodiscard]] uint64_t room_of_gradient(uint32_t parameter) const;
  /// Likewise: one lies there from now on.
  void take_room(uint32_t parameter);
  /// What a rank exchanges from now on comes after what its program has enqueued.
  void follow_program();
  /// By every rank.
  void exchange(uint64_t takes);
  void compute(uint64_t takes, uint64_t after = 0);
  /// When it is over, on all ranks.
  uint64_t collective(uint64_t takes);
  /// The hosts do.
  void wait_for_all();
  /// When the last rank is done with all.
  [[nodiscard]] uint64_t end() const;
  [[nodiscard]] uint64_t elements(uint32_t parameter) const { return model_.parameter(parameter).elements; }
  /// Of all parameters of a group, elements, and of them what the rank with the most, and with the least, owns.
  struct Together {
    uint64_t all = 0;
    uint64_t most = 0;
    uint64_t least = 0;
  };
  Together together(std::span<const uint32_t> parameters);
  /// Of a collective; `sum`: what its parameters take one after the other.
  uint64_t gather_takes(std::span<const uint32_t> parameters, uint64_t sum);
  uint64_t reduce_takes(std::span<const uint32_t> parameters, uint64_t sum);

  const ModelTables& model_;
  const Job job_;
  const StepCosts costs_;
  std::vector<Piece> pieces_;
  std::vector<size_t> first_piece_;  ///< by parameter, and the end
  std::vector<uint64_t> of_ranks_;   ///< zeros between two calls
  std::vector<Cost> cost_;
  const std::vector<bool> side_by_side_;  ///< by parameter: a gradient for each micro-batch
  std::vector<Round> rounds_;

  std::vector<Rank> ranks_;
  std::optional<StepArena> arena_;  ///< where there is a budget
  /// Names the present moment of the exchange.
  StepArena::Moment now();
  std::vector<uint64_t> moments_;               ///< that have names, each of all ranks
  std::optional<StepArena::Moment> lingering_;  ///< without an arena: gradients that linger are free
  std::vector<StepArena::Moment> let_go_;       ///< likewise: those that the program has not waited for
  std::vector<StepArena::Moment> waits_;        ///< in wait_for_room()
  /// Without an arena, bytes of gradients: all that are there, of them those that linger, and those that the program
  /// has not waited for.
  struct Taken {
    uint64_t all = 0;
    uint64_t lingering = 0;
    uint64_t let_go = 0;
  } taken_;
  uint64_t whole_gradient_ = 0;  ///< of the pass, whole_gradient_bytes()
  uint64_t look_capacity_ = 0;   ///< DeviceLook
  struct Look {
    uint64_t first = 0;
    uint64_t closed = 0;
    uint64_t used = 0;
    size_t block = 0;
  } look_;                           ///< as its members
  bool is_looking_ = false;          ///< it has looked in this step
  std::vector<uint64_t> arrives_;    ///< by parameter: it is whole
  std::vector<Gradient> gradients_;  ///< by parameter, in this pass
  std::vector<uint32_t> group_;      ///< in gather()
  std::vector<uint32_t> reduced_;    ///< for reduce()
  std::vector<uint32_t> sent_;       ///< for send()
  bool is_cast_ = false;
  bool is_begun_ = false;     ///< the first pass with gradients of the step
  size_t micro_batches_ = 1;  ///< of the pass
  size_t round_ = 0;          ///< of the step: those of its passes that have ended
  uint64_t begin_ns_ = 0;
  std::vector<uint64_t> measuring_;  ///< by parameter, in this step
  StepTime so_far_;
  StepTime step_;
};

}  // namespace pliant::sharded
