// make_plan: a planner asked with what the environment says, after the scheduler's block was held against the config.

#include "base/environment.hpp"
#include "base/log.hpp"
#include "plan/scheduler.hpp"
#include "pliant/plan.hpp"

namespace pliant {

void check_scheduler(const Config& config) {
  or_throw(agree_with_scheduler(config));
}

Plan make_plan(const Config& config, int64_t world_size) {
  check_scheduler(config);
  const Planner planner(config);
  std::optional<std::string> world_size_text;
  if (const char* text = environment_variable("WORLD_SIZE"); text != nullptr) world_size_text = text;
  Plan plan = planner.plan(world_size, world_size_text);
  const Log log("pliant.plugin." + planner.policy());
  for (const std::string& warning : plan.warnings) log.write(LogLevel::kWarning, warning);
  return plan;
}

}  // namespace pliant
