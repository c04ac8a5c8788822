// StepArena: where pieces lie in the arena of a rank while a program is answered so, as Runtime would put them there.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "accelerator/arena_gaps.hpp"
#include "pliant/abi/coordinator.h"
#include "sharded/model_tables.hpp"
#include "sharded/whole_memory.hpp"

namespace pliant::sharded {

/// For StepClock, which asks how much room is left for what it casts to f32. Of passes over one micro-batch each. What
/// finds no room lies nowhere. O(gaps) for a piece.
class StepArena {
 public:
  /// `whole` and `reduce`: bytes of an element. The model outlives this.
  StepArena(const ModelTables& model, int32_t world_size, uint64_t whole, uint64_t reduce, uint64_t budget);

  void begin_pass();
  /// Where the action says.
  void gather(const pliant_action& action);
  void release(uint32_t parameter);
  /// A module is entered backward.
  void take_gradients(std::span<const uint32_t> used);
  /// Gradients leave, and others' arrive.
  void send(std::span<const uint32_t> parameters);
  /// All of that was added up.
  void added();
  /// How many of `most` elements are cast at once where `rooms` pieces have to have them as f32.
  [[nodiscard]] uint64_t float_block(uint64_t most, size_t rooms);

 private:
  struct Piece {
    uint64_t begin = 0;
    uint64_t size = 0;  ///< 0: it lies nowhere
  };
  struct Held {
    Piece value;
    Piece gradient;
    bool is_reduced = false;  ///< in this pass
  };
  [[nodiscard]] Piece take(uint64_t bytes, const WholePlace& place = {});
  void give_back(Piece& piece);
  void take_gradient(uint32_t parameter);

  const ModelTables& model_;
  const int32_t world_size_;
  const uint64_t whole_;
  const uint64_t reduce_;
  const uint64_t budget_;
  const std::vector<uint64_t> most_owned_;
  std::vector<Held> held_;     ///< by parameter
  std::vector<Piece> on_way_;  ///< of what was sent
  bool is_backward_ = false;   ///< some module of the pass was entered backward
  uint64_t taken_ = 0;
  detail::ArenaGaps gaps_;
};

}  // namespace pliant::sharded
