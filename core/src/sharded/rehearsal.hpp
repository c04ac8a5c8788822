// What a coordinator needs and no host has is found on paper, before anything is computed.
#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "pliant/config.hpp"
#include "sharded/model_tables.hpp"

namespace pliant::sharded {

/// Asks a coordinator of its own for three steps in which every module of `model`, which is closed, is visited in the
/// order of the tree: two in which one may learn, and one that follows what was learnt. Throws what it has against its
/// options, and kUnimplemented, as Coordinator does, where it wants a tier. All else that is wrong with an answer is
/// left to the passes, whose order is the program's. `config` was opened with the need "coordinator"; `budget`, `whole`
/// and `world_size` as for Coordinator::set_model.
void rehearse(const Config& config, const ModelTables& model, uint64_t budget, DType whole, int32_t world_size);

/// The same over three small layers, where there is no program yet to say what its model is. Nothing where `config` has
/// no coordinator or was opened without that need.
void check_coordinator(const Config& config);

}  // namespace pliant::sharded
