// share_state(): copies the whole training state from one rank to those that lack it.
#pragma once

#include <cstdint>
#include <string>

#include "pliant/communicator.hpp"
#include "pliant/session.hpp"

namespace pliant::elastic {

/// What travels beside the program's own state.
struct SharedState {
  int64_t step = 0;      ///< committed steps that it holds
  std::string lr_state;  ///< LearningRate::save
};

/// Collective over `group`. `donor` sends `own` and the program's state; ranks with `wanted` load it, the others only
/// take part. Returns the donor's SharedState on every rank. Memory: one serialised state and one chunk. Throws what
/// the communicator throws, and what load throws.
SharedState share_state(Communicator& group, Stream& stream, const Accelerator& accelerator, int32_t donor, bool wanted,
                        const SharedState& own, TrainingState& program);

}  // namespace pliant::elastic
