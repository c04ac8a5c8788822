// share_state(): copies the whole training state from one rank to those that lack it.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <iosfwd>
#include <span>
#include <string>

#include "elastic/state_arrays.hpp"
#include "pliant/communicator.hpp"

namespace pliant::elastic {

struct SharedState {
  int64_t step = 0;              ///< committed steps that it holds
  std::string lr_state;          ///< LearningRate::save
  std::string coordinator{};     ///< sharded: what its coordinator had learnt
  std::exception_ptr refusal{};  ///< what the program of a rank that takes it threw as it loaded what is no array
};

/// Has the program load what is no array: all of it, or what was saved and what is loaded are two things, which throws
/// kDataLoss.
void load_whole(TrainingState& program, std::istream& in);

/// Collective over `group`: afterwards `state` is the donor's on every rank, and so are the arrays of the ranks that
/// take them and what their programs loaded. All is written while it comes: where this throws, a rank that takes it
/// holds a part. What is no array goes from the donor's save to the others' load a MiB at a time; a load that seeks
/// further than that has the bytes from there on kept for it. Memory: that MiB, and one chunk on `device`. Throws what
/// the communicator and the donor's save throw, and kFailedPrecondition where the donor's arrays are others; a load
/// that is under way then is given a stream that is bad, never one that has ended. `midway` is called once, when a part
/// of the arrays has come (fault injection).
void share_state(Communicator& group, Stream& stream, const Accelerator& accelerator, int32_t device, int32_t donor,
                 SharedState& state, const StateArrays& arrays, TrainingState& program, bool takes,
                 const std::function<void()>& midway = {});

/// What makes values, of any size, those of the donor's on every rank of `group`; collective, and kept no longer than
/// the four. Memory: a chunk on `device`. Throws what the communicator throws.
std::function<void(std::span<float> values)> sharing_of(Communicator& group, Stream& stream,
                                                        const Accelerator& accelerator, int32_t device, int32_t donor);

}  // namespace pliant::elastic
