// The table of kinds: TOML section, id, and the slots that this host needs of each.
#include <array>

#include "pliant/abi/accelerator.h"
#include "pliant/abi/balancer.h"
#include "pliant/abi/batch_sampler.h"
#include "pliant/abi/elasticity_policy.h"
#include "pliant/abi/lr_rule.h"
#include "pliant/abi/rendezvous.h"
#include "plugin/plugin.hpp"

namespace pliant::plugin {

namespace {

using Names = std::string_view;
constexpr std::array<Names, 1> kElasticitySlots{"plan"};
constexpr std::array<Names, 5> kSamplerSlots{"begin_epoch", "rows", "dropped", "drop_reason", "pieces"};
constexpr std::array<Names, 1> kBalancerSlots{"balance"};
constexpr std::array<Names, 3> kLrSlots{"describe", "scale", "commit"};
constexpr std::array<Names, 22> kAcceleratorSlots{"device_count",
                                                  "device_properties",
                                                  "alloc",
                                                  "free",
                                                  "memory_info",
                                                  "stream_create",
                                                  "stream_destroy",
                                                  "stream_query",
                                                  "stream_synchronize",
                                                  "event_create",
                                                  "event_destroy",
                                                  "event_record",
                                                  "event_query",
                                                  "event_synchronize",
                                                  "event_elapsed",
                                                  "stream_wait_event",
                                                  "copy_async",
                                                  "fill_async",
                                                  "copy_batch_async",
                                                  "reduce_async",
                                                  "cast_async",
                                                  "host_function"};
constexpr std::array<Names, 3> kRendezvousSlots{"join", "watch", "leave"};

template <class Table, size_t kCount>
constexpr bool names_every_slot(const std::array<Names, kCount>&) {
  return sizeof(Table) == 2 * sizeof(uint32_t) + kCount * sizeof(void*);
}
static_assert(names_every_slot<pliant_elasticity_policy>(kElasticitySlots));
static_assert(names_every_slot<pliant_batch_sampler>(kSamplerSlots));
static_assert(names_every_slot<pliant_balancer>(kBalancerSlots));
static_assert(names_every_slot<pliant_lr_rule>(kLrSlots));
static_assert(names_every_slot<pliant_accelerator>(kAcceleratorSlots));
static_assert(names_every_slot<pliant_rendezvous>(kRendezvousSlots));

}  // namespace

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kKinds{
      {"elasticity", PLIANT_KIND_ELASTICITY_POLICY, sizeof(pliant_elasticity_policy), kElasticitySlots},
      {"sampler", PLIANT_KIND_BATCH_SAMPLER, sizeof(pliant_batch_sampler), kSamplerSlots},
      {"balancer", PLIANT_KIND_BALANCER, sizeof(pliant_balancer), kBalancerSlots},
      {"lr", PLIANT_KIND_LR_RULE, sizeof(pliant_lr_rule), kLrSlots},
      {"accelerator", PLIANT_KIND_ACCELERATOR, sizeof(pliant_accelerator), kAcceleratorSlots},
      {"rendezvous", PLIANT_KIND_RENDEZVOUS, sizeof(pliant_rendezvous), kRendezvousSlots},
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
