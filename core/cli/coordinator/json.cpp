// JSON of a simulation and of a comparison.
#include <cmath>
#include <nlohmann/json.hpp>

#include "coordinator/views.hpp"

namespace pliant::cli {

namespace {

using SimulationJson = nlohmann::ordered_json;

double seconds_of(uint64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-9;
}

/// null: without end.
SimulationJson rate_json(double bytes_per_s) {
  return std::isfinite(bytes_per_s) ? SimulationJson(bytes_per_s) : SimulationJson(nullptr);
}

SimulationJson collective_json(const CollectiveCost& cost) {
  return {{"start_s", seconds_of(cost.start_ns)}, {"bytes_per_s", rate_json(cost.bytes_per_s)}};
}

SimulationJson costs_json(const SimulationQuestion& question) {
  const SimulationCosts& costs = question.costs;
  return {{"compute", question.computes_as_recorded ? "recorded" : "flops"},
          {"from", costs.from},
          {"gather", collective_json(costs.gather)},
          {"reduce", collective_json(costs.reduce)},
          {"launch_s", seconds_of(costs.launch_ns)},
          {"memory_bytes_per_s", rate_json(costs.memory_bytes_per_s)},
          {"flops", costs.flops},
          {"tokens", costs.tokens}};
}

void add_model(SimulationJson& json, const sharded::ModelTables& model) {
  json["parameters"] = model.parameters().size();
  json["elements"] = model.elements();
  json["modules"] = model.modules().size();
}

SimulationJson step_json(const SimulatedStep& one) {
  return {{"collectives", one.collectives},
          {"gathered", one.gathered},
          {"ahead", one.ahead},
          {"bytes", one.bytes},
          {"whole_at_once", one.most},
          {"reduces", one.reduces},
          {"lost_to_gaps", one.lost_to_gaps ? SimulationJson(*one.lost_to_gaps) : SimulationJson(nullptr)},
          {"step_s", seconds_of(one.time.all_ns)},
          {"compute_s", seconds_of(one.time.compute_ns)},
          {"gather_s", seconds_of(one.time.gather_ns)},
          {"reduce_s", seconds_of(one.time.reduce_ns)}};
}

std::string line_of(const SimulationJson& json) {
  return json.dump(-1, ' ', true, SimulationJson::error_handler_t::replace) + "\n";
}

}  // namespace

std::string simulation_json(const Simulation& simulation, const SimulationQuestion& question) {
  SimulationJson json;
  json["schema"] = "pliant.coordinator_simulate/1";
  json["coordinator"] = simulation.coordinator;
  add_model(json, question.model);
  json["steps"] = SimulationJson::array();
  for (const SimulatedStep& one : simulation.steps) json["steps"].push_back(step_json(one));
  if (question.lists) json["calls"] = SimulationJson::array();
  for (const HeardCall& one : simulation.calls)
    json["calls"].push_back({{"step", one.step + 1}, {"call", one.call}, {"actions", one.actions}});
  json["workers"] = question.workers;
  json["costs"] = costs_json(question);
  return line_of(json);
}

std::string comparison_json(const std::vector<ComparedRun>& runs, const SimulationQuestion& question) {
  SimulationJson json;
  json["schema"] = "pliant.coordinator_compare/1";
  add_model(json, question.model);
  json["workers"] = question.workers;
  json["costs"] = costs_json(question);
  json["runs"] = SimulationJson::array();
  for (const ComparedRun& run : runs) {
    SimulationJson row;
    row["coordinator"] = run.coordinator;
    row["budget"] = run.budget ? SimulationJson(*run.budget) : SimulationJson(nullptr);
    row["keeps_budget"] = run.keeps_budget;
    row["fits"] = run.fits();
    if (!run.fits()) row["error"] = run.refusal;
    row["step"] = run.step ? step_json(*run.step) : SimulationJson(nullptr);
    json["runs"].push_back(std::move(row));
  }
  return line_of(json);
}

}  // namespace pliant::cli
