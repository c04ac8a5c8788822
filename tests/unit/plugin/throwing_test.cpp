// What a plugin throws straight across the border, where no SDK has made a status of it: an error that names plugin and
// slot, for whoever asked.
#include <doctest/doctest.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "elastic/agent/job_plan.hpp"
#include "pliant/balancer.hpp"
#include "pliant/config.hpp"
#include "pliant/error.hpp"
#include "rendezvous/rendezvous.hpp"
#include "sharded/coordinator.hpp"

using namespace pliant;

namespace {

Config config_with(const std::string& section, const ConfigNeeds& needs) {
  ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR, PLUGIN_TEST_DIR};
  overrides.read_environment = false;
  return Config::parse("config_version = 1\n[" + section + "]\nuse = \"throwing\"\n", needs, overrides);
}

void check_is_named(const Error& error, const std::string& section, const std::string& said) {
  CHECK(error.status() == Status::kInternal);
  CHECK(error.origin() == Origin::kPlugin);
  CHECK(error.message() == section + " 'throwing': " + said);
}

template <class Call>
void check_throws(Call&& call, const std::string& section, const std::string& said) {
  try {
    call();
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    check_is_named(error, section, said);
  } catch (...) {
    FAIL("what the plugin threw came to the program as it was");
  }
}

}  // namespace

TEST_CASE("a balancer that throws across the border is named, to a program and to the agent alike") {
  const std::string said = "balance threw across the border: the scales are broken";
  const Config config = config_with("balancer", {"balancer", "sampler"});
  const Balancer balancer(config);
  const std::vector<int64_t> costs(4, 1);
  check_throws([&] { static_cast<void>(balancer.assign(costs, {.world_size = 2})); }, "balancer", said);
  Plan plan;
  plan.global_batch = 4;
  plan.granule = 1;
  elastic::JobPlan job(config, plan, {{1, 2, 3, 4, 5, 6, 7, 8}, {}, {}, 0});
  const Result<Assignment> assigned = job.assignment_of(0, {.world_size = 2}, {1, 0});
  REQUIRE_FALSE(assigned.has_value());
  check_is_named(assigned.error(), "balancer", said);
}

TEST_CASE("a rendezvous that throws across the border is named, and may throw as it is left") {
  Rendezvous rendezvous = or_throw(Rendezvous::open(config_with("rendezvous", {"rendezvous"})));
  const Result<Generation> joined = rendezvous.join("job", 2);
  REQUIRE_FALSE(joined.has_value());
  check_is_named(joined.error(), "rendezvous", "join threw across the border: nobody came");
  const Result<bool> watched = rendezvous.watch(0);
  REQUIRE_FALSE(watched.has_value());
  check_is_named(watched.error(), "rendezvous",
                 "watch threw across the border: an exception other than std::exception");
  rendezvous.leave();
}

TEST_CASE("a coordinator that throws across the border is named, and may throw as a pass is given up") {
  sharded::ModelTables model;
  ParameterSpec weights;
  weights.name = "weights";
  weights.shape = {8};
  weights.initialise = [](std::span<float>) {};
  ModuleSpec root;
  root.name = "model";
  root.own = {ParameterId{model.add(std::move(weights))}};
  const uint32_t module = model.add(std::move(root));
  model.close();
  sharded::Coordinator coordinator(config_with("coordinator", {"coordinator"}));
  coordinator.set_model(model, 0, DType::kF32, 1);
  check_throws([&] { static_cast<void>(coordinator.begin_pass(true)); }, "coordinator",
               "begin_pass threw across the border: no plan today");
  check_throws([&] { static_cast<void>(coordinator.enter(module, Direction::kForward)); }, "coordinator",
               "enter threw across the border: an exception other than std::exception");
  coordinator.give_up();
}
