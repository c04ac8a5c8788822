// StepArena: where pieces lie in the arena of a rank while a program is answered so, as Runtime would put them there.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "accelerator/arena_gaps.hpp"
#include "pliant/abi/coordinator.h"
#include "sharded/memory/arena_needs.hpp"
#include "sharded/memory/whole_memory.hpp"
#include "sharded/shards/model_tables.hpp"

namespace pliant::sharded {

/// For StepClock, which asks what the program waits for before a gradient lies somewhere, and how much room is left for
/// what is cast to f32. What finds no room lies nowhere. For a piece it looks at
/// few of those that were given back in the step, and may move all.
class StepArena {
 public:
  /// A moment of the stream on which ranks exchange, which all pieces are given back on.
  using Moment = uint32_t;
  struct Of {
    int32_t world_size = 1;
    DType whole = DType::kF32;
    DType reduce = DType::kF32;
    uint64_t budget = 0;
    size_t micro_batches = 1;  ///< that a pass is over at most
  };
  /// `now` names the present moment. The model outlives this.
  StepArena(const ModelTables& model, const Of& of, std::function<Moment()> now);

  void begin_pass();
  /// All that was enqueued has ended: moments are forgotten.
  void end_step() { uses_.clear(); }
  /// Where the action says.
  void gather(const pliant_action& action);
  void release(uint32_t parameter);
  /// A module is entered backward.
  void take_gradients(std::span<const uint32_t> used);
  /// Gradients are about to leave: those that linger are free.
  void retire();
  /// A gradient leaves, and others' arrive. `is_last`: that of no other micro-batch will lie there in this pass.
  void send(uint32_t parameter, bool is_last);
  /// All of that was added up.
  void added(bool lingers);
  /// What the program waits for, as gradients came to lie there, since this was last asked.
  void take_waits(std::vector<Moment>& to) {
    to.clear();
    to.swap(waits_);
  }
  /// How many of `most` elements are cast at once where `rooms` pieces have to have them as f32.
  [[nodiscard]] uint64_t float_block(uint64_t most, size_t rooms);
  /// What they were cast for is enqueued.
  void were_cast();

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
  /// Of memory that was given back.
  struct Use {
    uint64_t begin;
    uint64_t end;
    Moment until;
  };
  enum class On { kProgram, kExchange };
  [[nodiscard]] Piece take(uint64_t bytes, On stream, const WholePlace& place = {});
  /// The same, where there is room at once.
  [[nodiscard]] Piece take_free(uint64_t bytes, On stream, const WholePlace& place);
  void give_back(Piece& piece, Moment until);
  void take_gradient(uint32_t parameter);
  /// Who had that before has used it until moments that the program waits for, the stream of the exchange need not.
  void wait_for_uses(const Piece& piece, On stream);
  /// Where no use is known.
  void add_use(const Use& use);

  const ModelTables& model_;
  const Of of_;
  const std::function<Moment()> now_;
  const std::vector<GradientRoom> rooms_;
  std::vector<Held> held_;        ///< by parameter
  std::vector<Piece> on_way_;     ///< of what was sent
  std::vector<Piece> lingering_;  ///< likewise
  Moment linger_until_ = 0;       ///< of the stream of the exchange
  std::vector<Piece> cast_;       ///< of what is cast, to be used until it is enqueued
  std::vector<Use> uses_;         ///< ascending; no two overlap
  std::vector<Moment> waits_;
  bool is_backward_ = false;  ///< some module of the pass was entered backward
  uint64_t taken_ = 0;
  detail::ArenaGaps gaps_;
};

}  // namespace pliant::sharded
