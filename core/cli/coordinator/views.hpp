// Simulations and comparisons as text, as JSON and as a figure.
#pragma once

#include <string>
#include <vector>

#include "coordinator/comparison.hpp"
#include "coordinator/simulation.hpp"

namespace pliant::cli {

std::string simulation_text(const Simulation& simulation, const SimulationQuestion& question);
/// One line, schema pliant.coordinator_simulate/1.
std::string simulation_json(const Simulation& simulation, const SimulationQuestion& question);

std::string comparison_text(const std::vector<ComparedRun>& runs, const SimulationQuestion& question);
/// One line, schema pliant.coordinator_compare/1.
std::string comparison_json(const std::vector<ComparedRun>& runs, const SimulationQuestion& question);
/// SVG: the time of a step by budget, a line for each coordinator, over the time that all of them compute.
std::string comparison_figure(const std::vector<ComparedRun>& runs);

}  // namespace pliant::cli
