// Asks an elasticity policy across the ABI, and holds its answer against the contract.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "pliant/plan.hpp"
#include "plugin/plugin.hpp"

namespace pliant {

struct PlanQuestion {
  int64_t world_size = 0;                      ///< 0: none in particular
  bool want_micro_batch = false;               ///< the policy fails rather than leave micro_batch 0
  std::optional<std::string> world_size_text;  ///< WORLD_SIZE of the environment as found there
};

/// The policy's own words: ranges as they came, nothing checked. Errors are the policy's refusals.
Result<Plan> ask_policy(const plugin::Instance& policy, const PlanQuestion& question);

/// Joins adjoining ranges of a plan that keeps the contract. Errors have Origin::kPlugin and begin with `who`, for
/// example "elasticity 'v0.1'". A requested world size that is not among the plan's is not checked here.
Result<Plan> checked_plan(Plan plan, const PlanQuestion& question, const std::string& who);

/// "elasticity 'v0.1'".
std::string name_of(const plugin::Plugin& plugin);

}  // namespace pliant
