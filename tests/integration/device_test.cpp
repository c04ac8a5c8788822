// Jobs whose weights and gradients stay on devices: the same weights, to the bit, on every accelerator and at every
// number of workers.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "integration/job_machines.hpp"

using namespace pliant::test;

TEST_CASE(
    "in deterministic mode the weights are bitwise the same on every accelerator and at every number of workers") {
  for (const int workers : {1, 2, 4}) {
    for (const Machine& machine : machines(workers)) {
      const On on(machine);
      INFO(machine.name << ", " << workers << " workers");
      JobRunner job;
      job.config(config_on(machine, fmt::format("workers = {}\ndeterministic = true", workers)));
      const Ended ended = job.run_json();
      check_whole(ended);
      CHECK(job.snapshot() == reference().snapshot);
      CHECK(digests_of(job) == reference().digests);  // which the device takes itself
      const bool shares = machine.devices > 0 && workers > machine.devices;
      CHECK(has(ended.err, "share device 0") == shares);
    }
  }
}

TEST_CASE("an update that is still enqueued when a rank without rows reduces reads the gradient that it was given") {
  // Of 1000 rows in granules of 72 the fourth batch has 136: two ranks have none of them.
  const auto config = [](const Machine& machine, const char* deterministic) {
    std::string made =
        config_on(machine, fmt::format("workers = 4\nepochs = 2\ndigest_every = 4\ndeterministic = {}", deterministic));
    made.replace(made.find("= 32"), 4, "= 288");
    made.replace(made.find("[2, 4]"), 6, "[72]");
    return made;
  };
  for (const char* deterministic : {"true", "false"}) {
    INFO("deterministic = " << std::string(deterministic));
    JobRunner prompt;
    prompt.config(config(host_machine(), deterministic));
    const Ended at_once = prompt.run_json();
    INFO(at_once.err);
    REQUIRE(at_once.exit_code == 0);
    REQUIRE(prompt.ledger("commit").at(3)["shares"].back().empty());
    const Machine machine = late_machine();
    const On on(machine);
    JobRunner job;
    job.config(config(machine, deterministic));
    const Ended ended = job.run_json();
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(ended.summary["steps"] == 8);
    CHECK(ended.summary["restarts"] == 0);  // ranks that came to hold another state would have been replaced
    CHECK(job.snapshot() == prompt.snapshot());
  }
}
