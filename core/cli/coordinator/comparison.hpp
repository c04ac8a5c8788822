// Comparison: several coordinators, or budgets, over one model and one program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/simulation.hpp"

namespace pliant::cli {

struct ComparedRun {
  std::string coordinator;
  std::optional<uint64_t> budget;     ///< nothing: no limit
  bool keeps_budget = true;           ///< false: `step` is of a run without one
  std::string refusal;                ///< why it cannot run within the budget; empty: it can
  std::optional<SimulatedStep> step;  ///< the last one; nothing where it is refused and keeps budgets
  [[nodiscard]] bool fits() const { return refusal.empty(); }
};

/// All coordinators at the first budget, then at the next. `budgets` empty: that of the config. A coordinator takes its
/// own section of the config, [coordinator.NAME], or its defaults. One that refuses every budget below the whole model
/// is run without one, and fits where what is whole at once does. Throws what no budget mends, such as exit 3 for a
/// plugin that is missing, and what the first one said where none can run at all (exit 2).
std::vector<ComparedRun> compare_runs(const Config& config, const SimulationQuestion& question,
                                      const std::vector<std::string>& coordinators,
                                      const std::vector<uint64_t>& budgets);

/// Of the budgets that a coordinator fits into, the least with which its step takes at most `times` the time of its
/// fastest; nothing where that is the only one, or none.
struct LeastBudget {
  std::string coordinator;
  uint64_t budget = 0;
};
std::vector<LeastBudget> least_budgets(const std::vector<ComparedRun>& runs, double times);

}  // namespace pliant::cli
