// The kind `coordinator` among the kinds, and [coordinator] of a config.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "pliant/abi/coordinator.h"
#include "pliant/config.hpp"
#include "pliant/error.hpp"
#include "pliant/job.hpp"
#include "pliant/sdk/coordinator.hpp"
#include "plugin/plugin.hpp"

using namespace pliant;

namespace {

ConfigOverrides own_plugins() {
  ConfigOverrides made;
  made.plugin_dirs = {PLIANT_PLUGIN_DIR};
  made.read_environment = false;
  return made;
}

Config opened(const std::string& text, const ConfigNeeds& needs = {}) {
  return Config::parse("config_version = 1\n" + text, needs, own_plugins());
}

std::string refusal(const std::string& text, const ConfigNeeds& needs = {}) {
  try {
    static_cast<void>(opened(text, needs));
  } catch (const Error& error) {
    return error.message();
  }
  return {};
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The least that a coordinator has.
struct Plain {
  void set_model(const sdk::Model&) {}
  void begin_pass(bool, sdk::Actions&) {}
  void enter(const sdk::Visit&, sdk::Actions&) {}
  void leave(const sdk::Visit&, sdk::Actions&) {}
  void end_pass(sdk::Actions&) {}
  void end_step(sdk::Actions&) {}
};

struct Rich : Plain {
  void set_costs(std::span<const uint64_t>) {}
  void drop_trace(sdk::Actions&) {}
};

template <class Slot>
bool has_slot(Slot slot) {
  return slot != nullptr;
}

template <class Class>
const pliant_coordinator& table_of() {
  return *static_cast<const pliant_coordinator*>(sdk::detail::CoordinatorAdapter<Class>::vtable());
}

}  // namespace

TEST_CASE("a budget below 0 is refused with its place") {
  CHECK(has(refusal("[coordinator]\nuse = 'eager'\nbudget = -1\n"), "coordinator.budget must be at least 0 bytes"));
  CHECK(has(refusal("[coordinator]\nuse = 'eager'\nbudget = '1G'\n"), ":4:10: error: coordinator.budget must be"));
  CHECK(has(refusal("[coordinator]\nuse = 'eager'\nbugdet = 1\n"), "did you mean 'budget'?"));
}

TEST_CASE("a section that names no coordinator has the one that plans") {
  CHECK(opened("[coordinator]\nbudget = 4096\n", {"coordinator"}).use("coordinator") == "planned");
  CHECK(has(refusal("[coordinator]\nbudget = 4096\n[coordinator.zero3]\nstrict = true\n", {"coordinator"}),
            "[coordinator] does not name the plugin to use"));
  CHECK(has(refusal("[coordinator]\nuse = 'eagre'\n", {"coordinator"}), "eager"));
}

TEST_CASE("without the section there is no coordinator, and its options have their defaults") {
  const Config config = opened("");
  CHECK_FALSE(config.has("coordinator"));
  CHECK_FALSE(config.coordinator().budget.has_value());
  CHECK_FALSE(job_needs(config).contains("coordinator"));
}

TEST_CASE("[coordinator] names a plugin and holds what core itself reads") {
  const Config config = opened("[coordinator]\nuse = 'eager'\nbudget = 8589934592\n", {"coordinator"});
  CHECK(config.has("coordinator"));
  CHECK(config.use("coordinator") == "eager");
  CHECK(config.coordinator().budget == 8589934592);
  CHECK(job_needs(config).contains("coordinator"));
  const Config again = Config::parse(config.resolved_toml(), {"coordinator"}, own_plugins());
  CHECK(again.coordinator().budget == 8589934592);
}

TEST_CASE("every slot of a coordinator but set_costs and drop_trace is required") {
  const plugin::Kind* kind = plugin::kind_of("coordinator");
  REQUIRE(kind != nullptr);
  CHECK(kind->id == PLIANT_KIND_COORDINATOR);
  CHECK(kind->default_use == "planned");
  CHECK(kind->table_size == sizeof(pliant_coordinator));
  size_t next = offsetof(pliant_coordinator, set_model);
  for (const sdk::Slot& slot : kind->slots) {
    CHECK(slot.offset == next);
    next += sizeof(void*);
  }
  CHECK(next == offsetof(pliant_coordinator, set_costs));
}

TEST_CASE("a class without set_costs or drop_trace leaves these slots out, so that nothing is measured for it") {
  CHECK_FALSE(has_slot(table_of<Plain>().set_costs));
  CHECK_FALSE(has_slot(table_of<Plain>().drop_trace));
  CHECK(has_slot(table_of<Plain>().set_module_parameters));
  CHECK(has_slot(table_of<Rich>().set_costs));
  CHECK(has_slot(table_of<Rich>().drop_trace));
}
