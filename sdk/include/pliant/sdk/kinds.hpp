// The table of kinds, and what every plugin of a kind has: the host and the conformance kit hold plugins to it. Another
// kind is another row here, its two headers, its template, and its checks in the testkit. cmake/Kinds.cmake and
// scripts/lint read the rows from this file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "pliant/abi/accelerator.h"
#include "pliant/abi/balancer.h"
#include "pliant/abi/batch_sampler.h"
#include "pliant/abi/collectives.h"
#include "pliant/abi/coordinator.h"
#include "pliant/abi/elasticity_policy.h"
#include "pliant/abi/ipc.h"
#include "pliant/abi/lr_rule.h"
#include "pliant/abi/optimizer.h"
#include "pliant/abi/packing.h"
#include "pliant/abi/rendezvous.h"
#include "pliant/abi/row_stream.h"
#include "pliant/abi/stream_memory.h"

namespace pliant::sdk {

/// A function pointer of a table.
struct Slot {
  std::string_view name;
  size_t offset;  ///< bytes
};

/// An optional power of the plugins of a kind.
struct Extension {
  std::string_view id;          ///< "pliant.collectives/0", ...
  size_t table_size;            ///< bytes of the table that this side knows
  std::span<const Slot> slots;  ///< that it began with: whoever offers it has them; its others may be NULL
};

/// A variation point. Its section is also the first part of a file name `<section>-<name>.pliant.so`, the word after
/// KIND in CMake's pliant_add_plugin(), and the folder of its template, whose plugin is called `my-<section>`.
struct Kind {
  std::string_view section;               ///< the TOML table: a-z and _
  std::string_view id;                    ///< "pliant.elasticity_policy/0", ...
  std::string_view default_use;           ///< the plugin of a config that names none; "": it must name one
  std::string_view help;                  ///< what its plugins have a say in; no full stop
  size_t table_size;                      ///< bytes of the table that this side knows
  std::span<const Slot> slots;            ///< that every plugin has, in order; the table's others may be NULL
  std::span<const Extension> extensions;  ///< that its plugins may have
};

namespace detail {

#define PLIANT_SLOT(Table, name) \
  Slot {                         \
#name, offsetof(Table, name) \
  }
inline constexpr Slot kElasticitySlots[] = {PLIANT_SLOT(pliant_elasticity_policy, plan)};
inline constexpr Slot kSamplerSlots[] = {
    PLIANT_SLOT(pliant_batch_sampler, begin_epoch), PLIANT_SLOT(pliant_batch_sampler, rows),
    PLIANT_SLOT(pliant_batch_sampler, dropped), PLIANT_SLOT(pliant_batch_sampler, drop_reason),
    PLIANT_SLOT(pliant_batch_sampler, pieces)};
inline constexpr Slot kBalancerSlots[] = {PLIANT_SLOT(pliant_balancer, balance)};
inline constexpr Slot kLrSlots[] = {PLIANT_SLOT(pliant_lr_rule, describe), PLIANT_SLOT(pliant_lr_rule, scale),
                                    PLIANT_SLOT(pliant_lr_rule, commit)};
inline constexpr Slot kAcceleratorSlots[] = {PLIANT_SLOT(pliant_accelerator, device_count),
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
inline constexpr Slot kCoordinatorSlots[] = {
    PLIANT_SLOT(pliant_coordinator, set_model),  PLIANT_SLOT(pliant_coordinator, set_module_parameters),
    PLIANT_SLOT(pliant_coordinator, begin_pass), PLIANT_SLOT(pliant_coordinator, enter),
    PLIANT_SLOT(pliant_coordinator, leave),      PLIANT_SLOT(pliant_coordinator, end_pass),
    PLIANT_SLOT(pliant_coordinator, end_step)};
inline constexpr Slot kRendezvousSlots[] = {PLIANT_SLOT(pliant_rendezvous, join), PLIANT_SLOT(pliant_rendezvous, watch),
                                            PLIANT_SLOT(pliant_rendezvous, leave)};
inline constexpr Slot kCollectivesSlots[] = {
    PLIANT_SLOT(pliant_collectives, comm_id),      PLIANT_SLOT(pliant_collectives, comm_create),
    PLIANT_SLOT(pliant_collectives, comm_status),  PLIANT_SLOT(pliant_collectives, comm_abort),
    PLIANT_SLOT(pliant_collectives, comm_destroy), PLIANT_SLOT(pliant_collectives, all_reduce),
    PLIANT_SLOT(pliant_collectives, all_gather),   PLIANT_SLOT(pliant_collectives, reduce_scatter),
    PLIANT_SLOT(pliant_collectives, broadcast),    PLIANT_SLOT(pliant_collectives, barrier),
    PLIANT_SLOT(pliant_collectives, all_gather_v), PLIANT_SLOT(pliant_collectives, send),
    PLIANT_SLOT(pliant_collectives, recv),         PLIANT_SLOT(pliant_collectives, group_begin),
    PLIANT_SLOT(pliant_collectives, group_end)};
inline constexpr Slot kIpcSlots[] = {PLIANT_SLOT(pliant_ipc, export_memory), PLIANT_SLOT(pliant_ipc, import_memory),
                                     PLIANT_SLOT(pliant_ipc, release_memory)};
inline constexpr Slot kStreamMemorySlots[] = {PLIANT_SLOT(pliant_stream_memory, alloc_async),
                                              PLIANT_SLOT(pliant_stream_memory, free_async),
                                              PLIANT_SLOT(pliant_stream_memory, trim)};
inline constexpr Slot kOptimizerSlots[] = {PLIANT_SLOT(pliant_optimizer, adamw_async),
                                           PLIANT_SLOT(pliant_optimizer, squared_norms_async)};
inline constexpr Slot kRowStreamSlots[] = {PLIANT_SLOT(pliant_row_stream, open), PLIANT_SLOT(pliant_row_stream, next)};
inline constexpr Slot kPackingSlots[] = {PLIANT_SLOT(pliant_packing, report)};
inline constexpr Slot kCountersSlots[] = {PLIANT_SLOT(pliant_coordinator_counters, read)};
#undef PLIANT_SLOT

/// The slots by the table's type, those alone that it began with.
template <class Table>
inline constexpr std::span<const Slot> kSlotsOf{};
template <>
inline constexpr std::span<const Slot> kSlotsOf<pliant_accelerator>{kAcceleratorSlots};
template <>
inline constexpr std::span<const Slot> kSlotsOf<pliant_collectives>{kCollectivesSlots};
template <>
inline constexpr std::span<const Slot> kSlotsOf<pliant_ipc>{kIpcSlots};
template <>
inline constexpr std::span<const Slot> kSlotsOf<pliant_stream_memory>{kStreamMemorySlots};
template <>
inline constexpr std::span<const Slot> kSlotsOf<pliant_optimizer>{kOptimizerSlots};

inline constexpr std::span<const Extension> kNoExtensions;
inline constexpr Extension kAcceleratorExtensions[] = {
    {PLIANT_COLLECTIVES, sizeof(pliant_collectives), kCollectivesSlots},
    {PLIANT_IPC, sizeof(pliant_ipc), kIpcSlots},
    {PLIANT_STREAM_MEMORY, sizeof(pliant_stream_memory), kStreamMemorySlots},
    {PLIANT_OPTIMIZER, sizeof(pliant_optimizer), kOptimizerSlots}};
inline constexpr Extension kSamplerExtensions[] = {{PLIANT_ROW_STREAM, sizeof(pliant_row_stream), kRowStreamSlots},
                                                   {PLIANT_PACKING, sizeof(pliant_packing), kPackingSlots}};
inline constexpr Extension kCoordinatorExtensions[] = {
    {PLIANT_COORDINATOR_COUNTERS, sizeof(pliant_coordinator_counters), kCountersSlots}};

inline constexpr Kind kKinds[] = {
    {"elasticity", PLIANT_KIND_ELASTICITY_POLICY, "",
     "which global batch a job uses and which world sizes may share it out", sizeof(pliant_elasticity_policy),
     kElasticitySlots, kNoExtensions},
    {"sampler", PLIANT_KIND_BATCH_SAMPLER, "fixed", "which sequences form which row, in which order",
     sizeof(pliant_batch_sampler), kSamplerSlots, kSamplerExtensions},
    {"balancer", PLIANT_KIND_BALANCER, "contiguous", "which rank computes which rows of a batch",
     sizeof(pliant_balancer), kBalancerSlots, kNoExtensions},
    {"lr", PLIANT_KIND_LR_RULE, "none", "how the learning rate follows the batch", sizeof(pliant_lr_rule), kLrSlots,
     kNoExtensions},
    {"accelerator", PLIANT_KIND_ACCELERATOR, "host",
     "memory, streams, events and work of a device; collectives come from Pliant", sizeof(pliant_accelerator),
     kAcceleratorSlots, kAcceleratorExtensions},
    {"coordinator", PLIANT_KIND_COORDINATOR, "planned", "when sharded parameters are gathered, released and reduced",
     sizeof(pliant_coordinator), kCoordinatorSlots, kCoordinatorExtensions},
    {"rendezvous", PLIANT_KIND_RENDEZVOUS, "local", "how the nodes of a job find each other and agree on generations",
     sizeof(pliant_rendezvous), kRendezvousSlots, kNoExtensions},
};

}  // namespace detail

/// All kinds, in the order of the data's way.
[[nodiscard]] inline std::span<const Kind> kinds() {
  return detail::kKinds;
}

/// nullptr for an unknown section.
[[nodiscard]] inline const Kind* kind_of(std::string_view section) {
  for (const Kind& kind : kinds()) {
    if (kind.section == section) return &kind;
  }
  return nullptr;
}

/// nullptr for one that plugins of this kind never have.
[[nodiscard]] inline const Extension* extension_of(const Kind& kind, std::string_view id) {
  for (const Extension& extension : kind.extensions) {
    if (extension.id == id) return &extension;
  }
  return nullptr;
}

/// What `table`, which begins with its struct_size, lacks of `slots`; "" when all are there. `called`: the table in
/// words, as "vtable"; `id`: of the kind or extension that asks for it. Reads nothing past the struct_size.
[[nodiscard]] inline std::string missing_slots(const void* table, std::string_view called, std::string_view id,
                                               std::span<const Slot> slots) {
  const std::string its(called);
  if (table == nullptr) return "its " + its + " is NULL";
  uint32_t size = 0;
  std::memcpy(&size, table, sizeof(size));
  const size_t needed = slots.back().offset + sizeof(void*);
  if (size < needed) {
    return "its " + its + " is too short: " + std::to_string(size) + " bytes, " + std::string(id) + " needs " +
           std::to_string(needed);
  }
  for (const Slot& slot : slots) {
    const void* function = nullptr;
    std::memcpy(&function, static_cast<const std::byte*>(table) + slot.offset, sizeof(function));
    if (function == nullptr) return "slot '" + std::string(slot.name) + "' of its " + its + " is NULL";
  }
  return {};
}

}  // namespace pliant::sdk
