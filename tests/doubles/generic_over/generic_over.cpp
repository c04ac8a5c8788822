// A TEST DOUBLE: an accelerator with the collectives that core makes for those without any, so that the conformance kit
// checks them. PLIANT_TEST_GENERIC_OVER names the plugin file of the accelerator, PLIANT_TEST_CARRIER_DIR the folder of
// the carrier.
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "collectives/collectives_of.hpp"
#include "pliant/abi/plugin.h"
#include "pliant/error.hpp"
#include "pliant/sdk/plugin.hpp"
#include "plugin/option_values.hpp"
#include "plugin/plugin.hpp"

namespace {

using namespace pliant;

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw sdk::Failure(PLIANT_INVALID_ARGUMENT, std::string(name) + " is not set");
  return value;
}

plugin::Instance open_device() {
  auto opened = or_throw(plugin::Plugin::open(setting("PLIANT_TEST_GENERIC_OVER"), *plugin::kind_of("accelerator")));
  plugin::OptionValues defaults;
  defaults.state().reset(opened->options());
  for (size_t i = 0; i < opened->options().size(); ++i) defaults.state().set_default(i, opened->options()[i]);
  return or_throw(plugin::Instance::create(std::move(opened), defaults));
}

struct GenericOver {
  plugin::Instance device = open_device();
  pliant::collectives::CollectivesOf collectives{device,
                                                 {{setting("PLIANT_TEST_CARRIER_DIR"), "PLIANT_TEST_CARRIER_DIR"}}};
};

GenericOver& of(void* self) {
  return *static_cast<GenericOver*>(self);
}

/// The slot of the device.
template <auto slot>
struct OfDevice;
template <class Result, class... Arguments, Result (*pliant_accelerator::*slot)(void*, Arguments...)>
struct OfDevice<slot> {
  static Result call(void* self, Arguments... arguments) {
    const plugin::Instance& device = of(self).device;
    return (device.table<pliant_accelerator>().*slot)(device.self(), arguments...);
  }
};

/// The slot of the collectives.
template <auto slot>
struct OfCollectives;
template <class Result, class... Arguments, Result (*pliant_collectives::*slot)(void*, Arguments...)>
struct OfCollectives<slot> {
  static Result call(void* self, Arguments... arguments) {
    const sdk::Calls<pliant_collectives> calls = of(self).collectives.calls();
    return (calls.table().*slot)(calls.self(), arguments...);
  }
};

/// Generic collectives add in rank order.
int32_t device_properties(void* self, int32_t device, pliant_device_properties* properties, pliant_error* error) {
  const int32_t status = OfDevice<&pliant_accelerator::device_properties>::call(self, device, properties, error);
  if (status == PLIANT_OK) properties->capabilities |= PLIANT_CAP_FIXED_ORDER;
  return status;
}

void stream_destroy(void* self, pliant_stream* stream) {
  OfDevice<&pliant_accelerator::stream_destroy>::call(self, stream);
  of(self).collectives.forget(stream);
}

/// As Stream::synchronize of the embedding API: what enqueued collectives met is told, too.
int32_t stream_synchronize(void* self, pliant_stream* stream, pliant_error* error) {
  const int32_t status = OfDevice<&pliant_accelerator::stream_synchronize>::call(self, stream, error);
  const int32_t told = sdk::detail::guarded(error, [&] { of(self).collectives.throw_failure(stream, status); });
  return told != PLIANT_OK ? told : status;
}

const pliant_accelerator& accelerator_slots() {
#define PLIANT_OF_DEVICE(slot) made.slot = &OfDevice<&pliant_accelerator::slot>::call
  static const pliant_accelerator kSlots = [] {
    pliant_accelerator made{};
    made.struct_size = sizeof(made);
    PLIANT_OF_DEVICE(device_count);
    PLIANT_OF_DEVICE(alloc);
    PLIANT_OF_DEVICE(free);
    PLIANT_OF_DEVICE(memory_info);
    PLIANT_OF_DEVICE(stream_create);
    PLIANT_OF_DEVICE(stream_query);
    PLIANT_OF_DEVICE(event_create);
    PLIANT_OF_DEVICE(event_destroy);
    PLIANT_OF_DEVICE(event_record);
    PLIANT_OF_DEVICE(event_query);
    PLIANT_OF_DEVICE(event_synchronize);
    PLIANT_OF_DEVICE(event_elapsed);
    PLIANT_OF_DEVICE(stream_wait_event);
    PLIANT_OF_DEVICE(copy_async);
    PLIANT_OF_DEVICE(fill_async);
    PLIANT_OF_DEVICE(copy_batch_async);
    PLIANT_OF_DEVICE(reduce_async);
    PLIANT_OF_DEVICE(cast_async);
    PLIANT_OF_DEVICE(host_function);
    made.device_properties = &device_properties;
    made.stream_destroy = &stream_destroy;
    made.stream_synchronize = &stream_synchronize;
    return made;
  }();
#undef PLIANT_OF_DEVICE
  return kSlots;
}

const pliant_collectives& collectives_slots() {
#define PLIANT_OF_COLLECTIVES(slot) made.slot = &OfCollectives<&pliant_collectives::slot>::call
  static const pliant_collectives kSlots = [] {
    pliant_collectives made{};
    made.struct_size = sizeof(made);
    PLIANT_OF_COLLECTIVES(comm_id);
    PLIANT_OF_COLLECTIVES(comm_create);
    PLIANT_OF_COLLECTIVES(comm_status);
    PLIANT_OF_COLLECTIVES(comm_abort);
    PLIANT_OF_COLLECTIVES(comm_destroy);
    PLIANT_OF_COLLECTIVES(all_reduce);
    PLIANT_OF_COLLECTIVES(all_gather);
    PLIANT_OF_COLLECTIVES(reduce_scatter);
    PLIANT_OF_COLLECTIVES(broadcast);
    PLIANT_OF_COLLECTIVES(barrier);
    PLIANT_OF_COLLECTIVES(all_gather_v);
    PLIANT_OF_COLLECTIVES(send);
    PLIANT_OF_COLLECTIVES(recv);
    PLIANT_OF_COLLECTIVES(group_begin);
    PLIANT_OF_COLLECTIVES(group_end);
    PLIANT_OF_COLLECTIVES(gather_pieces);
    PLIANT_OF_COLLECTIVES(scatter_pieces);
    return made;
  }();
#undef PLIANT_OF_COLLECTIVES
  return kSlots;
}

int32_t create(const pliant_host*, const pliant_option_values*, void** self, pliant_error* error) {
  return sdk::detail::guarded(error, [&] {
    try {
      *self = new GenericOver;
    } catch (const Error& other) {
      throw sdk::Failure(PLIANT_FAILED_PRECONDITION, other.what());
    }
  });
}

void destroy(void* self) {
  delete &of(self);
}

const void* extension(void*, const char* id) {
  return std::strcmp(id, PLIANT_COLLECTIVES) == 0 ? &collectives_slots() : nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const pliant_plugin* pliant_plugin_entry_v1() {
  static const pliant_plugin kRecord = [] {
    pliant_plugin made{};
    made.struct_size = sizeof(made);
    made.option_stride = sizeof(pliant_option);
    made.kind = PLIANT_KIND_ACCELERATOR;
    made.name = "generic_over";
    made.version = "0.1.0";
    made.summary = "Test double: an accelerator with the collectives that core makes";
    made.create = &create;
    made.destroy = &destroy;
    made.vtable = &accelerator_slots();
    made.extension = &extension;
    return made;
  }();
  return &kRecord;
}
