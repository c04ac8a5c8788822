// What sharded training of a model takes on a rank, found on paper.
#pragma once

#include <cstdint>

#include "pliant/config.hpp"
#include "pliant/sharded.hpp"
#include "sharded/shards/model_tables.hpp"
#include "sharded/trace/traced_program.hpp"

namespace pliant::sharded {

struct MemoryOfWhat {
  int32_t world_size = 1;
  int64_t rows = 1;             ///< of a step
  int64_t granule = 1;          ///< of the plan
  int64_t micro_batch = 1;      ///< rows of a pass
  int64_t states = 2;           ///< arrays that the optimizer keeps for each weight
  bool in_layer_order = false;  ///< a step is one pass over all of its micro-batches
};

/// What ShardedModel::memory() has after a few steps, the largest of all ranks: shards by ownership, sums of gradients
/// by the tree that adds them up, and the arena by asking the coordinator of `config`, which was opened with that need.
/// A program is assumed that visits the modules in the order of the tree, each once forward and once backward, and
/// takes all their gradients. What the program computes with (activations) is not in it. In layer order without a
/// budget, where the CPU computes, it is up to other ranks how many micro-batches' gradients are on their way at once:
/// here that is one. Throws what simulate() throws, so kResourceExhausted where a budget does not suffice. O(parameters
/// * passes * log) for a few passes.
ShardedMemory predicted_memory(const Config& config, const ModelTables& model, const MemoryOfWhat& what);
/// The same for a program that makes the calls of `step`, a whole step that was recorded, at any world size: the passes
/// of a step, of which there may be more or fewer then, are those recorded, in turn. Each is over as many micro-batches
/// as one was then, at most, or over all of the step's where one was. O(calls + parameters * passes *
/// log) for as many passes as were recorded.
ShardedMemory predicted_memory(const Config& config, const ModelTables& model, const TracedStep& step,
                               const MemoryOfWhat& what);

/// What DeepSpeed's estimate for ZeRO-3 without offload says of a rank: 18 bytes for each parameter and rank, and 4 for
/// each of the largest module's own (estimate_zero3_model_states_mem_needs in deepspeed/runtime/zero/stage3.py).
uint64_t deepspeed_estimate(const ModelTables& model, int32_t world_size);

}  // namespace pliant::sharded
