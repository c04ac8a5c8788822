// The table of kinds. Another kind is another row here, its two headers and its template in the SDK, and its checks in
// the testkit. cmake/Kinds.cmake and scripts/lint read the rows from this file.
#include <cstddef>

#include "pliant/abi/accelerator.h"
#include "pliant/abi/balancer.h"
#include "pliant/abi/batch_sampler.h"
#include "pliant/abi/coordinator.h"
#include "pliant/abi/elasticity_policy.h"
#include "pliant/abi/lr_rule.h"
#include "pliant/abi/rendezvous.h"
#include "plugin/plugin.hpp"

namespace pliant::plugin {

namespace {

#define PLIANT_SLOT(Table, name) \
  Slot {                         \
#name, offsetof(Table, name) \
  }
constexpr Slot kElasticitySlots[] = {PLIANT_SLOT(pliant_elasticity_policy, plan)};
constexpr Slot kSamplerSlots[] = {PLIANT_SLOT(pliant_batch_sampler, begin_epoch),
                                  PLIANT_SLOT(pliant_batch_sampler, rows), PLIANT_SLOT(pliant_batch_sampler, dropped),
                                  PLIANT_SLOT(pliant_batch_sampler, drop_reason),
                                  PLIANT_SLOT(pliant_batch_sampler, pieces)};
constexpr Slot kBalancerSlots[] = {PLIANT_SLOT(pliant_balancer, balance)};
constexpr Slot kLrSlots[] = {PLIANT_SLOT(pliant_lr_rule, describe), PLIANT_SLOT(pliant_lr_rule, scale),
                             PLIANT_SLOT(pliant_lr_rule, commit)};
constexpr Slot kAcceleratorSlots[] = {PLIANT_SLOT(pliant_accelerator, device_count),
                                      PLIANT_SLOT(pliant_accelerator, device_properties),
                                      PLIANT_SLOT(pliant_accelerator, alloc),
                                      PLIANT_SLOT(pliant_accelerator, free),
                                      PLIANT_SLOT(pliant_accelerator, memory_info),
                                      PLIANT_SLOT(pliant_accelerator, stream_create),
                                      PLIANT_SLOT(pliant_accelerator, stream_destroy),
                                      PLIANT_SLOT(pliant_accelerator, stream_query),
                                      PLIANT_SLOT(pliant_accelerator, stream_synchronize),
                                      PLIANT_SLOT(pliant_accelerator, event_create),
                                      PLIANT_SLOT(pliant_accelerator, event_destroy),
                                      PLIANT_SLOT(pliant_accelerator, event_record),
                                      PLIANT_SLOT(pliant_accelerator, event_query),
                                      PLIANT_SLOT(pliant_accelerator, event_synchronize),
                                      PLIANT_SLOT(pliant_accelerator, event_elapsed),
                                      PLIANT_SLOT(pliant_accelerator, stream_wait_event),
                                      PLIANT_SLOT(pliant_accelerator, copy_async),
                                      PLIANT_SLOT(pliant_accelerator, fill_async),
                                      PLIANT_SLOT(pliant_accelerator, copy_batch_async),
                                      PLIANT_SLOT(pliant_accelerator, reduce_async),
                                      PLIANT_SLOT(pliant_accelerator, cast_async),
                                      PLIANT_SLOT(pliant_accelerator, host_function)};
constexpr Slot kCoordinatorSlots[] = {
    PLIANT_SLOT(pliant_coordinator, set_model),  PLIANT_SLOT(pliant_coordinator, set_module_parameters),
    PLIANT_SLOT(pliant_coordinator, begin_pass), PLIANT_SLOT(pliant_coordinator, enter),
    PLIANT_SLOT(pliant_coordinator, leave),      PLIANT_SLOT(pliant_coordinator, end_pass),
    PLIANT_SLOT(pliant_coordinator, end_step)};
constexpr Slot kRendezvousSlots[] = {PLIANT_SLOT(pliant_rendezvous, join), PLIANT_SLOT(pliant_rendezvous, watch),
                                     PLIANT_SLOT(pliant_rendezvous, leave)};
#undef PLIANT_SLOT

}  // namespace

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kKinds{
      {"elasticity", PLIANT_KIND_ELASTICITY_POLICY, "", "policy",
       "which global batch a job uses and which world sizes may share it out", sizeof(pliant_elasticity_policy),
       kElasticitySlots},
      {"sampler", PLIANT_KIND_BATCH_SAMPLER, "fixed", "sampler", "which sequences form which row, in which order",
       sizeof(pliant_batch_sampler), kSamplerSlots},
      {"balancer", PLIANT_KIND_BALANCER, "contiguous", "balancer", "which rank computes which rows of a batch",
       sizeof(pliant_balancer), kBalancerSlots},
      {"lr", PLIANT_KIND_LR_RULE, "none", "rule", "how the learning rate follows the batch", sizeof(pliant_lr_rule),
       kLrSlots},
      {"accelerator", PLIANT_KIND_ACCELERATOR, "host", "accelerator",
       "memory, streams, events and work of a device; collectives come from Pliant", sizeof(pliant_accelerator),
       kAcceleratorSlots},
      {"coordinator", PLIANT_KIND_COORDINATOR, "", "coordinator",
       "when sharded parameters are gathered, released and reduced", sizeof(pliant_coordinator), kCoordinatorSlots},
      {"rendezvous", PLIANT_KIND_RENDEZVOUS, "local", "rendezvous",
       "how the nodes of a job find each other and agree on generations", sizeof(pliant_rendezvous), kRendezvousSlots},
  };
  return kKinds;
}

const Kind* kind_of(std::string_view section) {
  for (const Kind& kind : kinds()) {
    if (kind.section == section) return &kind;
  }
  return nullptr;
}

}  // namespace pliant::plugin
