// Jobs on plugins that were built against older headers, and against newer ones: of every kind one, all at once.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <utility>

#include "integration/sharded_jobs.hpp"

using namespace pliant::test;

TEST_CASE("a job runs, loses a worker and finishes on plugins that were built against older or newer headers") {
  // `host` has collectives of its own, the other the generic ones.
  for (const auto& run :
       {std::pair("earlier", "my-accelerator"), std::pair("earlier", "host"), std::pair("later", "host")}) {
    const std::string when = run.first;
    const std::string accelerator = run.second;
    CAPTURE(when);
    CAPTURE(accelerator);
    // Templates have had their names from the section since.
    const std::string policy = when == "earlier" ? "my-policy" : "my-elasticity";
    const std::string rule = when == "earlier" ? "my-rule" : "my-lr";
    JobRunner job;
    job.config(fmt::format(R"(config_version = 1
[plugins]
dirs = ["{}/{}-plugins"]
[elasticity]
use = "{}"
[elasticity.{}]
global_batch = 8
[sampler]
use = "streaming"
[sampler.streaming]
max_tokens = 32
[balancer]
use = "my-balancer"
[lr]
use = "{}"
base_lr = 0.01
[accelerator]
use = "{}"
[rendezvous]
use = "my-rendezvous"
[run]
name = "toy"
command = ["{}/toy_worker"]
workers = 4
attach = "required"
[app]
)",
                           PLIANT_PLUGINS_OF_OTHER_TIMES, when, policy, policy, rule, accelerator,
                           PLIANT_TEST_BIN_DIR));
    const Ended ended = job.run_json({"--inject", "kill:rank=1,step=3"});
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(ended.summary["restarts"] == 1);
    CHECK(ended.summary["samples_used_once"] == ended.summary["samples_expected"]);
    CHECK(ended.summary["samples_repeated"] == 0);
  }
}

TEST_CASE(
    "a sharded job goes back to its snapshot and finishes on plugins that were built against older or newer headers, "
    "to the bits of today's") {
  for (const std::string when : {"earlier", "later"}) {
    CAPTURE(when);
    JobRunner job;
    std::vector<std::string> command =
        disturbed(sharded_job(3, {"coordinator.use=\"counting\""}), {"kill:rank=1,step=6"});
    command.insert(command.end(), {"--plugin-dir", fmt::format("{}/{}-plugins", PLIANT_PLUGINS_OF_OTHER_TIMES, when)});
    const Ended ended = job.run(command);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(last_state(job) == undisturbed());
    CHECK(ended.summary["passes_of_a_rank"]["all"] > 0);
    CHECK(ended.summary["passes_of_a_rank"]["followed"] == ended.summary["passes_of_a_rank"]["all"]);
  }
}
