// Simulation: what one coordinator does over a model, step by step, and how long the steps would take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/costs.hpp"
#include "pliant/config.hpp"
#include "sharded/shards/model_tables.hpp"
#include "sharded/step_clock.hpp"
#include "sharded/trace/traced_program.hpp"

namespace pliant::cli {

/// One call, with words for its actions.
struct HeardCall {
  int step = 0;
  std::string call;  ///< "enter layer.0, backward"
  std::vector<std::string> actions;
};

/// What is counted is so of all that was played, an evaluation included; `time` is that of the step.
struct SimulatedStep {
  int64_t collectives = 0;               ///< gathers
  int64_t gathered = 0;                  ///< parameters
  int64_t ahead = 0;                     ///< of these, for a later visit
  uint64_t bytes = 0;                    ///< of these parameters, whole
  uint64_t most = 0;                     ///< bytes whole at once, with gradients and what is on its way
  int64_t reduces = 0;                   ///< collectives
  std::optional<uint64_t> lost_to_gaps;  ///< of its passes the most; nothing: the coordinator gives no places
  sharded::StepTime time;
};

struct Simulation {
  std::string coordinator;
  std::vector<SimulatedStep> steps;
  std::vector<HeardCall> calls;  ///< that were answered with actions, where they were asked for
};

struct SimulationQuestion {
  const sharded::ModelTables& model;
  /// Of a trace, whose visits are those of each step; nullptr: modules are visited in the order of the model.
  const sharded::TracedStep* recorded = nullptr;
  bool computes_as_recorded = false;
  SimulationCosts costs;
  int32_t workers = 1;
  int steps = 3;
  int64_t passes = 1;  ///< of a step, each over one micro-batch; those of `recorded` are as recorded
  bool lists = false;
};

/// `config` was opened with the need "coordinator". Throws what sharded::simulate() throws.
Simulation simulate(const Config& config, const SimulationQuestion& question);

}  // namespace pliant::cli
