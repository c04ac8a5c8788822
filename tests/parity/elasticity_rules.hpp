// Which inputs of compute_elastic_config lie outside what Pliant takes by design.
#pragma once

#include <string>
#include <vector>

#include "parity/parity.hpp"

namespace pliant::parity {

/// All rules, in the order in which they are tried.
std::vector<Rule> elasticity_rules();

/// The first rule that `row`'s input falls under, or "". `options` is the table of the policy that the row selects.
/// Looks at nothing but config, target_version, world_size and env.
std::string rule_for(const Json& row, const std::vector<pliant_option>& options);

/// True when DeepSpeed refuses the row for its target_version alone.
bool has_old_target(const Json& row);

}  // namespace pliant::parity
