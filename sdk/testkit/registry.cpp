// Which kind is held to which checks.
#include <span>

#include "pliant/abi/coordinator.h"
#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/checks/plugin_checks.hpp"
#include "testkit/coordinator/checks.hpp"
#include "testkit/ranks.hpp"

namespace pliant::testkit {

namespace {

using Part = std::vector<Check> (*)();
constexpr Part kAccelerator[] = {
    device_checks,  memory_checks,   alignment_checks, pointer_checks,       register_checks,
    work_checks,    order_checks,    event_checks,     spend_checks,         async_checks,
    thread_checks,  lifetime_checks, limit_checks,     collective_checks,    piece_checks,
    failure_checks, loss_checks,     renewal_checks,   window_checks,        fork_checks,
    leak_checks,    ipc_checks,      ipc_event_checks, stream_memory_checks, optimizer_checks};
constexpr Part kCoordinator[] = {action_checks, model_checks, refusal_checks};

void append(std::vector<Check>& to, std::span<const Part> parts) {
  for (const Part part : parts) {
    for (const Check& check : part()) to.push_back(check);
  }
}

}  // namespace

std::vector<Check> every_check() {
  std::vector<Check> all = plugin_checks();
  append(all, kAccelerator);
  append(all, kCoordinator);
  return all;
}

std::vector<Check> checks_of(const std::string& kind) {
  std::vector<Check> all = plugin_checks();
  if (kind == PLIANT_KIND_ACCELERATOR) append(all, kAccelerator);
  if (kind == PLIANT_KIND_COORDINATOR) append(all, kCoordinator);
  return all;
}

}  // namespace pliant::testkit
