// Jobs whose weights and gradients stay on devices: the same weights, to the bit, on every accelerator, at every number
// of workers, after every loss.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <string>
#include <vector>

#include "integration/job_machines.hpp"

using namespace pliant::test;

TEST_CASE(
    "in deterministic mode the weights are bitwise the same on every accelerator and at every number of workers") {
  for (const Machine& machine : machines()) {
    const On on(machine);
    for (const int workers : {1, 2, 4}) {
      INFO(machine.name << ", " << workers << " workers");
      JobRunner job;
      job.config(config_on(machine, fmt::format("workers = {}\ndeterministic = true", workers)));
      const Ended ended = job.run_json();
      check_whole(ended);
      CHECK(job.snapshot() == reference().snapshot);
      CHECK(digests_of(job) == reference().digests);  // which the device takes itself
      const bool shares = machine.name != "host" && machine.name != "cuda, NCCL" && workers > 1;  // a GPU is one here
      CHECK((ended.err.find("share device 0") != std::string::npos) == shares);
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
    prompt.config(config(machines().front(), deterministic));
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

TEST_CASE("a job on devices that loses a worker at any point of a step comes to the same weights") {
  for (const Machine& machine : machines()) {
    const On on(machine);
    for (const char* at : {"forward", "reduce", "vote", "commit", "apply"}) {
      INFO(machine.name << ", at " << std::string(at));
      JobRunner job;
      job.config(config_on(machine, "workers = 2\ndeterministic = true"));
      const Ended ended = job.run_json({"--inject", fmt::format("kill:rank=1,step=9,at={}", at)});
      check_whole(ended);
      CHECK(ended.summary["restarts"] == 1);
      CHECK(job.snapshot() == reference().snapshot);
      CHECK(job.processes_left() == 0);
    }
  }
}

TEST_CASE("a job on devices that loses its writer in the middle of a snapshot comes to the same weights") {
  for (const Machine& machine : machines()) {
    const On on(machine);
    INFO(machine.name);
    JobRunner job;
    job.config(config_on(machine, "workers = 2\ndeterministic = true\nsnapshot_every = 10"));
    const Ended ended = job.run_json({"--inject", "kill:rank=0,step=20,at=snapshot"});
    check_whole(ended);
    CHECK(ended.summary["restarts"] == 1);
    CHECK(job.snapshot() == reference().snapshot);
  }
}

TEST_CASE("a joiner that dies half way through its copy to the device is replaced, and the weights are the same") {
  for (const Machine& machine : machines()) {
    const On on(machine);
    INFO(machine.name);
    JobRunner job;
    job.config(config_on(machine, "workers = 4\ndeterministic = true"));
    const Ended ended = job.run_json({"--inject", "kill:rank=1,step=9", "--inject", "kill:rank=3,step=10,at=copy"});
    check_whole(ended);
    CHECK(ended.err.find("(copy)") != std::string::npos);
    CHECK(ended.summary["restarts"] == 2);
    CHECK(job.snapshot() == reference().snapshot);
  }
}

TEST_CASE("a job on devices is stopped, resumed at another size, and comes to the same weights") {
  for (const Machine& machine : machines()) {
    const On on(machine);
    INFO(machine.name);
    JobRunner job;
    job.config(config_on(machine, "workers = 2\ndeterministic = true"));
    const pid_t agent = job.start({"run", "pliant.toml", "--json"});
    REQUIRE(job.wait_for_commits(agent, 5));
    ::kill(agent, SIGINT);
    CHECK(job.wait(agent).exit_code == 130);
    const Ended ended = job.run_json({"--resume", "--workers", "1"});
    check_whole(ended);
    CHECK(job.snapshot() == reference().snapshot);
  }
}

TEST_CASE("in fast mode a job on devices uses every sample once and its losses agree with those on the CPU") {
  std::vector<double> on_cpu;
  for (const Machine& machine : machines()) {
    const On on(machine);
    INFO(machine.name);
    for (const char* at : {"forward", "reduce", "vote", "commit", "apply"}) {
      JobRunner job;
      job.config(config_on(machine, "workers = 4"));
      const Ended ended = job.run_json({"--inject", fmt::format("kill:rank=2,step=5,at={}", at)});
      check_whole(ended);
      CHECK(ended.summary["restarts"] == 1);
      if (on_cpu.empty()) on_cpu = losses_of(job);
      check_close(losses_of(job), on_cpu);
    }
    JobRunner stopped;
    stopped.config(config_on(machine, "workers = 4"));
    const pid_t agent = stopped.start({"run", "pliant.toml", "--json"});
    REQUIRE(stopped.wait_for_commits(agent, 5));
    ::kill(agent, SIGINT);
    CHECK(stopped.wait(agent).exit_code == 130);
    const Ended ended = stopped.run_json({"--resume"});
    check_whole(ended);
    CHECK(ended.summary["restarts"] == 0);
    check_close(losses_of(stopped), on_cpu);
  }
}
