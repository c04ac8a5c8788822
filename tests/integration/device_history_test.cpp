// Jobs on devices to which everything happens: workers die at every point, leave and join, agents die, jobs are stopped
// and resumed at other sizes; in both modes. They end as a job to which nothing happened. Each case takes seconds: it
// runs a dozen jobs, and a worker is started anew after each death.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "elastic/message.hpp"
#include "integration/job_machines.hpp"

using namespace pliant::test;
using pliant::elastic::InjectionPoint;

namespace {

/// Words of a job with "kill:rank=1,step=3,at=forward" and so on.
std::vector<std::string> injecting(const std::vector<std::string>& injections) {
  std::vector<std::string> words;
  for (const std::string& one : injections) words.insert(words.end(), {"--inject", one});
  return words;
}

/// The agent died: what is left of its job ends.
void check_killed(const JobRunner& job, const Ended& ended) {
  INFO(ended.err);
  REQUIRE(ended.exit_code == 128 + SIGKILL);
  job.wait_for_processes();
}

/// Ranks agreed on the state that each step began with: in fast mode, too.
void check_compared(const Ended& ended, const std::vector<pliant::elastic::CommitRecord>& commits) {
  CHECK(ended.summary["digests"] >= ended.summary["steps_this_run"]);  // more where steps were made again
  for (const auto& commit : commits) CHECK(commit.state.has_value());
}

void check_as_undisturbed(const JobRunner& job, const Ended& ended, bool deterministic) {
  check_whole(ended);
  check_commits(commits_of(job), reference().commits, deterministic);
  check_compared(ended, commits_of(job));
  if (deterministic) CHECK(job.snapshot() == reference().snapshot);
  CHECK(job.processes_left() == 0);
}

}  // namespace

TEST_CASE("a job on devices whose workers die at every point ends as one whose workers live") {
  // All three ranks are needed, so each death is followed by a join, which copies the state to the device.
  const std::vector<std::pair<std::string, std::string>> deaths{
      {"forward", "rank=2,step=3"},  {"reduce", "rank=0,step=5"}, {"copy", "rank=2,step=7"},
      {"vote", "rank=1,step=7"},     {"commit", "rank=0,step=9"}, {"apply", "rank=2,step=11"},
      {"snapshot", "rank=0,step=20"}};
  std::set<InjectionPoint> points{InjectionPoint::kGather, InjectionPoint::kScatter, InjectionPoint::kFinish,
                                  InjectionPoint::kBucket};
  std::vector<std::string> injections;
  for (const auto& death : deaths) {
    points.insert(pliant::or_throw(pliant::elastic::parse_injection_point(death.first)));
    injections.push_back(fmt::format("kill:{},at={}", death.second, death.first));
  }
  // And those of sharded jobs, and of buckets, which are there in fast mode alone: these are all.
  CHECK(points.size() == static_cast<size_t>(InjectionPoint::kBucket) + 1);
  for (const char* rank : {"0", "1", "2"}) injections.push_back(fmt::format("kill:rank={},step=33,at=apply", rank));
  on_every_machine([&](const Machine& machine, bool deterministic) {
    JobRunner job;
    std::string config =
        config_on(machine, "workers = 3\nsnapshot_every = 10\nmax_restarts = 20" + in_mode(deterministic));
    config.replace(config.find("micro_batch"), 0, "min_gpus = 3\n");
    job.config(config);
    std::vector<std::string> all = injections;
    if (!deterministic) all.push_back("kill:rank=1,step=15,at=bucket");
    const Ended ended = job.run_json(injecting(all));
    check_as_undisturbed(job, ended, deterministic);
    CHECK(ended.summary["restarts"] == all.size());
    CHECK(job.ledger("restart").size() == 1);  // all three died, and the snapshot went to the devices
    CHECK(!has(ended.err, "did not happen"));
  });
}

TEST_CASE(
    "a job on devices that a worker leaves, and whose agent dies, is resumed at other sizes and ends as undisturbed") {
  on_every_machine([](const Machine& machine, bool deterministic) {
    JobRunner job;
    job.config(config_on(machine, "workers = 3\nsnapshot_every = 4" + in_mode(deterministic)));
    check_killed(job, job.run_json(injecting({"leave:rank=1,step=2", "kill:agent,step=10,at=vote"})));
    CHECK(sizes_of(job) == std::vector<int64_t>{3, 2});
    std::vector<std::string> more = injecting({"kill:agent,step=18,at=commit"});
    more.insert(more.end(), {"--resume", "--workers", "4"});
    check_killed(job, job.run_json(more));
    const Ended ended = job.run_json({"--resume", "--workers", "2"});
    check_as_undisturbed(job, ended, deterministic);
    CHECK(ended.summary["resumed_from"] == 16);
    CHECK(sizes_of(job) == std::vector<int64_t>{3, 2, 4, 2});
  });
}

TEST_CASE("a job on devices shrinks and grows in place, is stopped and resumed, and ends as undisturbed") {
  struct Done {
    std::string what;
    bool deterministic;
    std::vector<pliant::elastic::CommitRecord> commits;
  };
  const std::string endless = "epochs = 100000\n";
  std::vector<Done> done;
  int64_t most = 0;
  on_every_machine([&](const Machine& machine, bool deterministic) {
    JobRunner job;
    job.config(config_on(machine, endless + "workers = 3" + in_mode(deterministic)));
    const pid_t agent = job.start({"run", "pliant.toml", "--json", "--inject", "kill:rank=1,step=3,at=reduce"});
    REQUIRE(job.wait_for_commits(agent, 3));
    REQUIRE(JobRunner::wait_until(agent, [&job] {
      const auto generations = job.ledger("generation");
      return generations.size() == 3 && job.ledger("commit").back()["generation"] == generations.back()["generation"];
    }));
    ::kill(agent, SIGINT);
    const Ended stopped = job.wait(agent);
    INFO(stopped.err);
    REQUIRE(stopped.exit_code == 130);
    CHECK(sizes_of(job) == std::vector<int64_t>{3, 2, 3});
    const int64_t steps = stopped.summary["steps"].get<int64_t>() + 4;
    const Ended ended = job.run_json({"--resume", "--workers", "1", "--set", fmt::format("run.max_steps={}", steps)});
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(ended.summary["steps"] == steps);
    check_compared(ended, commits_of(job));
    done.push_back({machine.name, deterministic, commits_of(job)});
    most = std::max(most, steps);
  });
  JobRunner undisturbed;
  undisturbed.config(
      config_on(host_machine(), fmt::format("{}workers = 1\nmax_steps = {}", endless, most) + in_mode(true)));
  REQUIRE(undisturbed.run_json().exit_code == 0);
  for (const Done& one : done) {
    INFO(one.what << ", deterministic = " << one.deterministic);
    check_commits(one.commits, commits_of(undisturbed), one.deterministic);
  }
}
