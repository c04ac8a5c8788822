// RecordedCall: a call of the program that a recorder hears of, from here to the end of the block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "sharded/memory/whole_memory.hpp"
#include "sharded/trace/trace_recorder.hpp"
#include "sharded/trace/trace_words.hpp"

namespace pliant::sharded {

class RecordedCall {
 public:
  /// `recorder` may be NULL; both outlive this.
  RecordedCall(TraceRecorder* recorder, WholeMemory& memory, TracedCall::Kind kind,
               std::optional<uint32_t> module = std::nullopt, Direction direction = Direction::kForward,
               size_t micro_batches = 1)
      : recorder_(recorder), memory_(memory) {
    if (recorder_ != nullptr) recorder_->begin_call(kind, module, direction, static_cast<uint32_t>(micro_batches));
  }
  /// By hand: `action`, PLIANT_ACTION_..., is done with `parameter`.
  RecordedCall(TraceRecorder* recorder, WholeMemory& memory, uint32_t action, uint32_t parameter)
      : RecordedCall(recorder, memory, TracedCall::Kind::kByHand) {
    const pliant_action done{action, parameter, 0, 0, usual_place_of(action)};
    if (recorder_ != nullptr) recorder_->answered(std::span(&done, 1));
  }
  ~RecordedCall() {
    if (recorder_ != nullptr) recorder_->end_call(memory_.taken(), memory_.take_most());
  }
  RecordedCall(const RecordedCall&) = delete;
  RecordedCall& operator=(const RecordedCall&) = delete;

 private:
  TraceRecorder* const recorder_;
  WholeMemory& memory_;
};

}  // namespace pliant::sharded
