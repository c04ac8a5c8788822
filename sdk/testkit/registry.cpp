// Which kind is held to which checks.
#include "pliant/abi/coordinator.h"
#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/checks/plugin_checks.hpp"
#include "testkit/coordinator/checks.hpp"
#include "testkit/ranks.hpp"

namespace pliant::testkit {

std::string kind_with_most_checks() {
  return PLIANT_KIND_ACCELERATOR;
}

std::vector<Check> checks_of(const std::string& kind) {
  std::vector<Check> all = plugin_checks();
  if (kind == PLIANT_KIND_COORDINATOR) {
    for (const auto& part : {action_checks, model_checks, refusal_checks}) {
      for (const Check& check : part()) all.push_back(check);
    }
  }
  if (kind != PLIANT_KIND_ACCELERATOR) return all;
  for (const auto& part : {device_checks,     memory_checks,  pointer_checks, work_checks,      order_checks,
                           event_checks,      async_checks,   thread_checks,  lifetime_checks,  limit_checks,
                           collective_checks, failure_checks, loss_checks,    renewal_checks,   window_checks,
                           fork_checks,       leak_checks,    ipc_checks,     ipc_event_checks, stream_memory_checks}) {
    for (const Check& check : part()) all.push_back(check);
  }
  return all;
}

}  // namespace pliant::testkit
