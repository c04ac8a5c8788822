// Pins the layout of the ABI as a C++20 compiler sees it, and proves that the pins leave no byte of any struct out.
#include <doctest/doctest.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

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
#include "pliant/abi/plugin.h"
#include "pliant/abi/rendezvous.h"
#include "pliant/abi/row_stream.h"
#include "pliant/abi/stream_memory.h"

#define PLIANT_PIN_STRUCT(type, bytes) static_assert(sizeof(type) == (bytes), "sizeof(" #type ") changed");
#define PLIANT_PIN(type, field, at, bytes)                                     \
  static_assert(offsetof(type, field) == (at), #type "." #field " has moved"); \
  static_assert(sizeof(type::field) == (bytes), #type "." #field " has another size");
#include "abi/layout_pins.h"
#undef PLIANT_PIN_STRUCT
#undef PLIANT_PIN

namespace {

struct Pin {
  std::string field;
  size_t at;
  size_t bytes;
};

struct PinnedStruct {
  size_t bytes = 0;
  std::vector<Pin> fields;
};

std::map<std::string, PinnedStruct> pinned_structs() {
  std::map<std::string, PinnedStruct> pins;
#define PLIANT_PIN_STRUCT(type, size) pins[#type].bytes = (size);
#define PLIANT_PIN(type, field, at, size) pins[#type].fields.push_back({#field, (at), (size)});
#include "abi/layout_pins.h"
#undef PLIANT_PIN_STRUCT
#undef PLIANT_PIN
  return pins;
}

TEST_CASE("the pins cover every byte of every struct: no field is missing, nothing is padding") {
  const auto pins = pinned_structs();
  REQUIRE(pins.size() > 0);
  for (const auto& pin : pins) {
    const auto& pinned = pin.second;
    CAPTURE(pin.first);
    size_t end = 0;
    for (const Pin& field : pinned.fields) {
      CAPTURE(field.field);
      CHECK(field.at == end);
      end = field.at + field.bytes;
    }
    CHECK(end == pinned.bytes);
  }
}

TEST_CASE("every struct that a header defines is pinned") {
  const auto pins = pinned_structs();
  for (const char* name : {PLIANT_ABI_STRUCTS}) {
    CAPTURE(name);
    CHECK(pins.count(name) == 1);
  }
}

TEST_CASE("every struct that may grow begins with struct_size") {
  for (const auto& pin : pinned_structs()) {
    const std::string& name = pin.first;
    const auto& pinned = pin.second;
    // Views, opaque bytes and the elements of a list have a fixed shape by design; rows of a table have its stride.
    if (name == "pliant_str" || name == "pliant_comm_id" || name == "pliant_ipc_handle" ||
        name == "pliant_world_range" || name == "pliant_lr_counts" || name == "pliant_copy" || name == "pliant_piece" ||
        name == "pliant_parameter_row" || name == "pliant_module_row" || name == "pliant_action") {
      continue;
    }
    CAPTURE(name);
    CHECK(pinned.fields.front().field == "struct_size");
    CHECK(pinned.fields.front().bytes == sizeof(uint32_t));
  }
}

}  // namespace
