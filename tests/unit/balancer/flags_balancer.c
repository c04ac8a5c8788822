/* A balancer in C that sets a flag which no host knows. */
#include "pliant/abi/balancer.h"
#include "pliant/abi/plugin.h"

static int32_t create(const pliant_host* host, const pliant_option_values* values, void** self, pliant_error* error) {
  static int one;
  (void)host, (void)values, (void)error;
  *self = &one;
  return PLIANT_OK;
}
static void destroy(void* self) {
  (void)self;
}
static int32_t balance(void* self, const pliant_balance_request* request, pliant_balance* answer, pliant_error* error) {
  (void)self, (void)error;
  for (uint64_t i = 0; i < request->block_count; ++i) answer->ranks[i] = 0;
  answer->flags = 6;
  return PLIANT_OK;
}

static const pliant_balancer kSlots = {sizeof(pliant_balancer), 0, &balance};
static const pliant_plugin kRecord = {.struct_size = sizeof(pliant_plugin),
                                      .kind = PLIANT_KIND_BALANCER,
                                      .name = "flags",
                                      .version = "1.0.0",
                                      .summary = "Sets a flag that is unknown",
                                      .create = &create,
                                      .destroy = &destroy,
                                      .vtable = &kSlots};

__attribute__((visibility("default"))) const pliant_plugin* pliant_plugin_entry_v1(void);
const pliant_plugin* pliant_plugin_entry_v1(void) {
  return &kRecord;
}
