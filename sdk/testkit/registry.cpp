// Which kind is held to which checks.
#include <span>

#include "pliant/abi/balancer.h"
#include "pliant/abi/batch_sampler.h"
#include "pliant/abi/coordinator.h"
#include "pliant/abi/elasticity_policy.h"
#include "pliant/abi/lr_rule.h"
#include "pliant/abi/rendezvous.h"
#include "testkit/balancer/checks.hpp"
#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/checks/plugin_checks.hpp"
#include "testkit/coordinator/checks.hpp"
#include "testkit/elasticity/checks.hpp"
#include "testkit/lr/checks.hpp"
#include "testkit/ranks.hpp"
#include "testkit/rendezvous/checks.hpp"
#include "testkit/sampler/checks.hpp"

namespace pliant::testkit {

namespace {

using Subjects = std::vector<Check> (*)();
constexpr Subjects kElasticity[] = {plan_checks, request_checks};
constexpr Subjects kSampler[] = {row_checks, epoch_checks, row_stream_checks, packing_checks};
constexpr Subjects kBalancer[] = {balance_checks};
constexpr Subjects kLr[] = {rate_checks, state_checks};
constexpr Subjects kAccelerator[] = {
    device_checks,  memory_checks,   alignment_checks, pointer_checks,       register_checks,
    work_checks,    order_checks,    event_checks,     spend_checks,         async_checks,
    thread_checks,  lifetime_checks, limit_checks,     collective_checks,    piece_checks,
    failure_checks, loss_checks,     renewal_checks,   window_checks,        fork_checks,
    leak_checks,    ipc_checks,      ipc_event_checks, stream_memory_checks, optimizer_checks};
constexpr Subjects kCoordinator[] = {action_checks, model_checks, refusal_checks};
constexpr Subjects kRendezvous[] = {join_checks, leave_checks};

struct OfKind {
  const char* kind;
  std::span<const Subjects> subjects;
};
/// In the order of the table of kinds.
constexpr OfKind kKinds[] = {{PLIANT_KIND_ELASTICITY_POLICY, kElasticity},
                             {PLIANT_KIND_BATCH_SAMPLER, kSampler},
                             {PLIANT_KIND_BALANCER, kBalancer},
                             {PLIANT_KIND_LR_RULE, kLr},
                             {PLIANT_KIND_ACCELERATOR, kAccelerator},
                             {PLIANT_KIND_COORDINATOR, kCoordinator},
                             {PLIANT_KIND_RENDEZVOUS, kRendezvous}};

void append(std::vector<Check>& to, std::span<const Subjects> subjects) {
  for (const Subjects checks : subjects) {
    for (const Check& check : checks()) to.push_back(check);
  }
}

}  // namespace

std::vector<Check> every_check() {
  std::vector<Check> all = plugin_checks();
  for (const OfKind& one : kKinds) append(all, one.subjects);
  return all;
}

std::vector<Check> checks_of(const std::string& kind) {
  std::vector<Check> all = plugin_checks();
  for (const OfKind& one : kKinds) {
    if (kind == one.kind) append(all, one.subjects);
  }
  return all;
}

}  // namespace pliant::testkit
