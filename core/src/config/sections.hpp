// The sections that core itself reads, as option tables.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pliant/abi/options.h"
#include "pliant/config.hpp"

namespace pliant::config {

/// [plugins]
struct PluginsOptions {
  std::vector<std::string> dirs;  ///< as written
};

/// Everything that core's own tables fill.
struct CoreOptions {
  RunOptions run;
  DataOptions data;
  LrOptions lr;
  BalancerOptions balancer;
  AcceleratorOptions accelerator;
  CoordinatorOptions coordinator;
  PluginsOptions plugins;
};

/// "plugins", "balancer", "lr", "accelerator", "coordinator", "data", "run": the sections with an option table of
/// core's own.
const std::vector<std::string>& core_sections();
/// Every section that a file may have.
const std::vector<std::string>& all_sections();

/// The rows of `section`; empty for one that core has no options in.
const std::vector<pliant_option>& core_options(std::string_view section);

/// Stores checked values of `section`.
void apply_core_options(std::string_view section, const pliant_option_values& values, CoreOptions& to);

}  // namespace pliant::config
