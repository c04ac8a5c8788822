// share_state(): copies the whole training state from one rank to those that lack it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "elastic/state_arrays.hpp"
#include "pliant/communicator.hpp"

namespace pliant::elastic {

struct SharedState {
  int64_t step = 0;      ///< committed steps that it holds
  std::string lr_state;  ///< LearningRate::save
  std::string program;   ///< what the program saved beside its arrays
};

/// Collective over `group`: afterwards `state` is the donor's on every rank, and so are the arrays of the ranks that
/// take them. Arrays are written while they come: where this throws, a rank that takes them holds a part. Memory: what
/// is no array, and one chunk on `device`. Throws what the communicator throws, and kFailedPrecondition where the
/// donor's arrays are others. `midway` is called once, when a part of the arrays has come (fault injection).
void share_state(Communicator& group, Stream& stream, const Accelerator& accelerator, int32_t device, int32_t donor,
                 SharedState& state, const StateArrays& arrays, bool takes, const std::function<void()>& midway = {});

}  // namespace pliant::elastic
