// What a coordinator decides, and what it needs and no host has, is found on paper, before anything is computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "pliant/abi/coordinator.h"
#include "pliant/config.hpp"
#include "sharded/shards/model_tables.hpp"
#include "sharded/trace/traced_program.hpp"

namespace pliant::sharded {

/// Asks a coordinator of its own for three steps in which every module of `model`, which is closed, is visited in the
/// order of the tree: two in which one may learn, and one that follows what was learnt. Throws what it has against its
/// options, and kUnimplemented, as Coordinator does, where it wants a tier. All else that is wrong with an answer is
/// left to the passes, whose order is the program's. `config` was opened with the need "coordinator"; `budget`, `whole`
/// and `world_size` as for Coordinator::set_model.
void rehearse(const Config& config, const ModelTables& model, uint64_t budget, DType whole, int32_t world_size);

/// A call of a program that computes nothing, and what was answered.
struct RehearsedCall {
  enum class Kind { kBeginPass, kEnter, kLeave, kEndPass, kEndStep } kind;
  std::optional<uint32_t> module;  ///< entered or left
  bool backward = false;
  std::span<const pliant_action> actions;  ///< valid in the call
  bool recompute = false;                  ///< forward once more, from inside backward
  bool with_gradient = true;               ///< of the pass: false in an evaluation
  /// At the end of a pass, of the pass: Coordinator::lost_to_gaps().
  std::optional<uint64_t> lost_to_gaps = std::nullopt;
  size_t micro_batches = 1;  ///< that the pass is over
};

struct RehearsedSteps {
  int steps = 3;
  int64_t passes = 1;        ///< of a step
  size_t micro_batches = 1;  ///< of a pass
};

/// Nanoseconds that gathering each parameter took in a step.
using GatherTimes = std::function<std::vector<uint64_t>()>;

/// Asks a coordinator of its own for such steps, at a budget and as in a group of `world_size` ranks that is new, and
/// tells of each call in turn. `begins` is told the number of each step, from 0. `costs`: asked at the end of the
/// second step for what Runtime measures in it; the coordinator is told. Throws what Coordinator throws, also for an
/// answer that breaks a rule, and what require_budget() throws. The types are those of [coordinator].
void simulate(const Config& config, const ModelTables& model, int32_t world_size, const RehearsedSteps& steps,
              const std::function<void(int)>& begins, const std::function<void(const RehearsedCall&)>& hear,
              const GatherTimes& costs = {});

/// The same for a program that was recorded: `steps` in turn, each call as often as it stands there. `model` has at
/// least the modules that were recorded. What was answered then does not matter, and the world size and the budget may
/// be others; calls by hand are left out. `micro_batches`: that each pass with gradients is over; nothing: as many as
/// were recorded. Throws kDataLoss, too, for calls that no program can make, naming the first. O(calls and actions).
void simulate(const Config& config, const ModelTables& model, int32_t world_size, std::span<const TracedStep> steps,
              const std::function<void(int)>& begins, const std::function<void(const RehearsedCall&)>& hear,
              std::optional<size_t> micro_batches = std::nullopt, const GatherTimes& costs = {});

/// The same as rehearse() over three small layers, where there is no program yet to say what its model is. Nothing
/// where `config` has no coordinator or was opened without that need.
void check_coordinator(const Config& config);

}  // namespace pliant::sharded
