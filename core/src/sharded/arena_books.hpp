// ArenaBooks: what would lie in the arena of a rank while a program is answered so, as Runtime would put it there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sharded/arena_needs.hpp"
#include "sharded/rehearsal.hpp"

namespace pliant::sharded {

/// Of a program that takes the gradients of a module when that is entered backward, on the rank, of a new group, where
/// they come to most: within a budget, which has the same room on all ranks, one that owns as much of each parameter as
/// any. Where the CPU computes and there is no budget, it is up to other ranks when what was sent has arrived; here
/// that is when the next module has been entered, and what that uses is gathered. What is fetched by hand is not
/// counted, and neither are gaps. O(1) for each action and each parameter of a visit, O(ranks) for one that leaves;
/// O(parameters) a pass.
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
  [[nodiscard]] uint64_t taken() const { return taken_; }
  /// The most of it since this was last asked, or began.
  [[nodiscard]] uint64_t take_most();

 private:
  struct Gradient {
    bool is_there = false;
    bool is_reduced = false;  ///< in this pass
  };
  void carry_out(std::span<const pliant_action> actions);
  /// `lingers`: PLIANT_ACTION_LINGER.
  void reduce(std::span<const uint32_t> parameters, bool lingers = false);
  void take_gradient(uint32_t parameter);
  /// The gradients of the micro-batches of a pass, and what arrives for them.
  [[nodiscard]] GradientRoom room_of(uint32_t parameter) const;
  /// Bytes that arrive where that are most, while these leave together, without a budget.
  [[nodiscard]] uint64_t most_received(std::span<const uint32_t> parameters);
  /// What was sent, and does not linger, is added up.
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
  std::vector<uint64_t> of_ranks_;             ///< zeros between two calls
  const Types types_;
  const uint64_t budget_;
  const size_t micro_batches_;
  const std::vector<bool> side_by_side_;
  std::vector<Gradient> gradients_;
  std::vector<uint32_t> group_;
  bool is_backward_ = false;  ///< some module of the pass was entered backward
  uint64_t on_way_ = 0;       ///< gradients that were sent, and what arrives for them
  uint64_t lingering_ = 0;    ///< likewise
  uint64_t adds_ = 0;         ///< what adding up takes beside `on_way_`, for a moment, where the CPU does it then
  uint64_t adds_later_ = 0;   ///< likewise beside `lingering_`
  uint64_t let_go_ = 0;       ///< on a device without a budget: gradients, until the next one needs room
  uint64_t taken_ = 0;
  uint64_t most_ = 0;
};

}  // namespace pliant::sharded
