// share_state(): copies the whole training state from one rank to those that lack it.
#pragma once

#include <cstdint>
#include <string>

#include "pliant/communicator.hpp"

namespace pliant::elastic {

struct SharedState {
  int64_t step = 0;      ///< committed steps that it holds
  std::string lr_state;  ///< LearningRate::save
  std::string program;   ///< what the program saved
};

/// Collective over `group`: afterwards `state` is the donor's on every rank. Memory: the state, and one chunk on
/// `device`. Throws what the communicator throws.
void share_state(Communicator& group, Stream& stream, const Accelerator& accelerator, int32_t device, int32_t donor,
                 SharedState& state);

}  // namespace pliant::elastic
