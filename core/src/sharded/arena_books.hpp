// ArenaBooks: what would lie in the arena of a rank while a program is answered so, as Runtime would put it there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "sharded/memory/arena_needs.hpp"
#include "sharded/rehearsal.hpp"

namespace pliant::sharded {

/// Of a program that takes the gradients of a module when that is entered backward, on the rank, of a new group, where
/// they come to most: within a budget, which has the same room on all ranks, one that owns as much of each parameter as
/// any; without one, where each rank has rows in every micro-batch. What is fetched by hand is not counted, and neither
/// are gaps. O(1) for each action and each parameter of a visit, O(ranks) for one that leaves; O(parameters) a pass.
class ArenaBooks {
 public:
  /// As Runtime has them. `looks_at_gradients`: each is looked through as it leaves, for numbers that are not finite.
  /// `on_device`: in memory that the CPU does not reach, where gradients linger also without a budget.
  struct Types {
    DType whole = DType::kF32;
    DType reduce = DType::kF32;
    bool looks_at_gradients = true;
    bool on_device = false;
  };
  /// The model outlives this. `budget` in bytes, 0: none. `micro_batches`: what each pass is over.
  ArenaBooks(const ModelTables& model, int32_t world_size, Types types, uint64_t budget, size_t micro_batches = 1);

  /// The calls of simulate(), in turn.
  void hear(const RehearsedCall& call);

  /// Bytes now.
  [[nodiscard]] uint64_t taken() const { return taken_ + most_received_; }
  /// The most of it since this was last asked, or began.
  [[nodiscard]] uint64_t take_most();

 private:
  struct Gradient {
    bool is_there = false;
    bool is_reduced = false;  ///< in this pass
    size_t sent = 0;          ///< micro-batches, without a budget
  };
  /// Of gradients that leave together, without a budget.
  struct Group {
    uint64_t gradients = 0;                               ///< that are free with it
    uint64_t bytes = 0;                                   ///< of what is sent
    size_t next_gather = 0;                               ///< the first that is begun afterwards
    std::vector<std::pair<uint32_t, uint64_t>> received;  ///< rank, bytes
    uint64_t adds = 0;                                    ///< what adding it up takes beside it, for a moment
  };
  void carry_out(std::span<const pliant_action> actions);
  void gather(const pliant_action& action, bool begins_group);
  void wait(uint32_t parameter);
  void enter_backward(const ModuleRow& module);
  void reduce_rest();
  /// `lingers`: PLIANT_ACTION_LINGER.
  void reduce(std::span<const uint32_t> parameters, bool lingers = false);
  void reduce_within_budget(std::span<const uint32_t> parameters, bool lingers);
  /// The gradients of one micro-batch, without a budget.
  void send(std::span<const uint32_t> parameters, size_t micro_batch, bool lingers);
  /// Of a micro-batch, while its module is still entered.
  void send_early(std::span<const uint32_t> used, size_t micro_batch);
  void take_gradient(uint32_t parameter);
  /// Without a budget: Runtime::keep_from_being_whole.
  void keep_from_being_whole(uint64_t bytes);
  /// The gradients of the micro-batches of a pass, and what arrives for them.
  [[nodiscard]] GradientRoom room_of(uint32_t parameter) const;
  void receive(Group& group, uint32_t parameter);
  void forget_received(const Group& group);
  void add_up_oldest();
  /// What was sent, and does not linger, is added up; without a budget, where something behind it was waited for.
  void clear_way();
  void retire();
  void forget_let_go();
  void take(uint64_t bytes);
  /// For a moment; as much as a budget leaves.
  void visit(uint64_t bytes);
  [[nodiscard]] uint64_t float_block(uint64_t elements) const;

  const ModelTables& model_;
  const int32_t world_size_;
  std::vector<std::vector<OwnedPart>> parts_;  ///< by parameter
  std::vector<uint64_t> owned_;                ///< by parameter, the most of them
  std::vector<uint64_t> largest_piece_;        ///< likewise
  const Types types_;
  const uint64_t budget_;
  const size_t micro_batches_;
  const std::vector<bool> side_by_side_;
  const uint64_t whole_gradient_;  ///< whole_gradient_bytes() of a pass
  std::vector<Gradient> gradients_;
  std::vector<uint32_t> group_;
  std::vector<uint32_t> sent_now_;  ///< for send()
  bool is_backward_ = false;        ///< some module of the pass was entered backward
  std::deque<Group> groups_;        ///< without a budget, where the CPU computes: not added up yet
  uint64_t on_way_bytes_ = 0;       ///< of these
  std::vector<uint64_t> received_;  ///< by rank, without a budget
  uint64_t most_received_ = 0;      ///< of one of them
  uint64_t gradient_bytes_ = 0;     ///< whole gradients, without a budget
  std::vector<size_t> gather_of_;   ///< by parameter: number of the gather that brought it
  size_t gathers_ = 0;              ///< that were begun
  size_t ended_gathers_ = 0;        ///< of these, those that were waited for, or that began before such a one
  uint64_t on_way_ = 0;             ///< within a budget: gradients that were sent, and what arrives for them
  uint64_t lingering_ = 0;          ///< likewise; without one, on a device, gradients alone
  uint64_t adds_ = 0;               ///< what adding up takes beside `on_way_`, for a moment, where the CPU does it then
  uint64_t adds_later_ = 0;         ///< likewise beside `lingering_`
  uint64_t let_go_ = 0;             ///< on a device without a budget: gradients, until the next one needs room
  uint64_t taken_ = 0;              ///< beside received_
  uint64_t most_ = 0;
};

}  // namespace pliant::sharded
