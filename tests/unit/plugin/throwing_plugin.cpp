// Plugins that no SDK stands before, and that let exceptions across the border: one of each kind that TEST_KIND names.
#include <stdexcept>

#include "pliant/abi/balancer.h"
#include "pliant/abi/coordinator.h"
#include "pliant/abi/plugin.h"
#include "pliant/abi/rendezvous.h"

namespace {

int32_t create(const pliant_host* /*host*/, const pliant_option_values* /*values*/, void** self, pliant_error* /*e*/) {
  static int one;
  *self = &one;
  return PLIANT_OK;
}
void destroy(void* /*self*/) {}

pliant_plugin record_of(const char* kind, const void* table) {
  pliant_plugin made{};
  made.struct_size = sizeof(made);
  made.kind = kind;
  made.name = "throwing";
  made.version = "1.0.0";
  made.summary = "Throws";
  made.create = &create;
  made.destroy = &destroy;
  made.vtable = table;
  return made;
}

#if defined(TEST_KIND_balancer)
const char* const kKind = PLIANT_KIND_BALANCER;
pliant_balancer table() {
  pliant_balancer made{};
  made.struct_size = sizeof(made);
  made.balance = [](void*, const pliant_balance_request*, pliant_balance*, pliant_error*) -> int32_t {
    throw std::runtime_error("the scales are broken");
  };
  return made;
}
#elif defined(TEST_KIND_rendezvous)
const char* const kKind = PLIANT_KIND_RENDEZVOUS;
pliant_rendezvous table() {
  pliant_rendezvous made{};
  made.struct_size = sizeof(made);
  made.join = [](void*, const pliant_join_request*, pliant_generation*, pliant_error*) -> int32_t {
    throw std::runtime_error("nobody came");
  };
  made.watch = [](void*, int32_t, int32_t*, pliant_error*) -> int32_t { throw 7; };
  made.leave = [](void*) { throw std::runtime_error("the door is locked"); };
  return made;
}
#elif defined(TEST_KIND_coordinator)
const char* const kKind = PLIANT_KIND_COORDINATOR;
pliant_coordinator table() {
  pliant_coordinator made{};
  made.struct_size = sizeof(made);
  made.set_model = [](void*, const pliant_model*, pliant_error*) { return int32_t{PLIANT_OK}; };
  made.set_module_parameters = [](void*, uint32_t, const uint32_t*, uint32_t, const uint32_t*, uint32_t,
                                  pliant_error*) { return int32_t{PLIANT_OK}; };
  made.begin_pass = [](void*, uint32_t, pliant_action_list*, pliant_error*) -> int32_t {
    throw std::runtime_error("no plan today");
  };
  made.enter = [](void*, const pliant_visit*, pliant_action_list*, pliant_error*) -> int32_t { throw 7; };
  made.leave = made.enter;
  made.end_pass = [](void*, pliant_action_list*, pliant_error*) -> int32_t { throw 7; };
  made.end_step = [](void*, pliant_action_list*, pliant_error*) -> int32_t { throw 7; };
  return made;
}
#endif

}  // namespace

extern "C" __attribute__((visibility("default"))) const pliant_plugin* pliant_plugin_entry_v1(void);
extern "C" const pliant_plugin* pliant_plugin_entry_v1(void) {
  static const auto kTable = table();
  static const pliant_plugin kRecord = record_of(kKind, &kTable);
  return &kRecord;
}
