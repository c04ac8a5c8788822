// What others do to a job: processes are stopped, descriptors run out, links are cut, everybody is told to end at once.
// It costs the one that was hit, and no state that a snapshot could keep.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>

#include "first_free_descriptor.hpp"
#include "integration/job_runner.hpp"
#include "unit/accelerator/own_namespaces.hpp"

using namespace pliant::test;

namespace {

void check_whole(const Ended& ended, int64_t restarts) {
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["samples_used_once"] == 203);
  CHECK(ended.summary["samples_repeated"] == 0);
  CHECK(ended.summary["restarts"] == restarts);
}

/// Resumes what ended early; nothing is done twice.
void check_resumable(JobRunner& job, int64_t first_step) {
  const Ended resumed = job.run({"run", "pliant.toml", "--json", "--resume"});
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(resumed.summary["samples_used_once"] == 203);
  CHECK(resumed.err.find(fmt::format("from step {}", first_step)) != std::string::npos);
  CHECK(job.ledger("restart").empty());
}

}  // namespace

TEST_CASE("a joiner that is stopped while the group forms is left out, and joins when it continues") {
  JobRunner job;
  job.config(toy_config("workers = 4\nhang_timeout_s = 10", "step_ms = 20"));
  const pid_t agent = job.start({"run", "pliant.toml", "--json", "--inject", "kill:rank=3,step=2"});
  REQUIRE(job.wait_for_records(agent, "generation", 3));
  const pid_t joiner = job.replacement(1);
  REQUIRE(joiner > 0);
  ::kill(joiner, SIGSTOP);
  CHECK(job.wait_for_words(agent, "(worker 4) is stopped; the group continues without it until it runs again"));
  ::kill(joiner, SIGCONT);
  check_whole(job.wait(agent), 1);
  CHECK(job.ledger("restart").empty());
}

TEST_CASE("a spare that is stopped gets no rank when another dies") {
  JobRunner job;
  job.config(toy_config("workers = 4\non_loss = \"shrink\"\nhang_timeout_s = 5", "step_ms = 20"));
  const pid_t agent = job.start({"run", "pliant.toml", "--json", "--inject", "kill:rank=3,step=1"});
  REQUIRE(job.wait_for_commits(agent, 4));  // three are left, and two of them are ranks
  const pid_t spare = job.worker(2);
  ::kill(spare, SIGSTOP);
  const auto is_stopped = [&] { return has(read_all(fmt::format("/proc/{}/stat", spare)), ") T "); };
  REQUIRE(JobRunner::wait_until(agent, is_stopped));
  ::kill(job.worker(1), SIGKILL);
  CHECK(job.wait_for_words(agent, "generation 3: 1 rank from step"));
  ::kill(spare, SIGCONT);
  check_whole(job.wait(agent), 0);
  CHECK(job.ledger("restart").empty());
}

TEST_CASE("a joiner short of file descriptors costs only itself") {
  for (const int limit : {4, 5, 6, 7}) {
    CAPTURE(limit);
    JobRunner job;
    job.config(toy_config("workers = 4", "step_ms = 20"));
    const std::string limited = fmt::format("[ $TORCHELASTIC_RESTART_COUNT = 1 ] && ulimit -n {}; exec {}/toy_worker",
                                            limit, PLIANT_TEST_BIN_DIR);
    const pid_t agent =
        job.start({"run", "pliant.toml", "--json", "--inject", "kill:rank=3,step=2", "--", "bash", "-c", limited});
    const Ended ended = job.wait(agent);
    INFO(ended.err);
    check_whole(ended, ended.summary["restarts"]);
    CHECK(ended.summary["restarts"].get<int64_t>() <= 2);
    CHECK(job.ledger("restart").empty());
  }
}

TEST_CASE(
    "workers that all die together are replaced, and one of the new ones that is stopped delays nobody for long") {
  JobRunner job;
  job.config(toy_config("workers = 4\nstart_timeout_s = 90\nsnapshot_every = 2\nmax_restarts = 4",
                        "misbehave = \"stop_at_start\"\nmisbehave_restart = 2\nmisbehave_rank = -1"));
  const Ended ended =
      job.run({"run", "pliant.toml", "--json", "--inject", "kill:rank=0,step=6", "--inject", "kill:rank=1,step=6",
               "--inject", "kill:rank=2,step=6", "--inject", "kill:rank=3,step=6"});
  check_whole(ended, 4);
  CHECK_MESSAGE(ended.err.find("was not ready") == std::string::npos, ended.err);
}

TEST_CASE("a link that is cut for a while is named, and the job goes on as soon as it is back") {
  pliant_test::check_unless_skipped(pliant_test::in_a_process([]() -> std::string {
    pliant_test::enter_own_namespaces(CLONE_NEWNET);
    if (std::system("ip link set lo up") != 0) throw pliant_test::Refused("no ip (package iproute2)");
    JobRunner job;
    job.config(toy_config("workers = 2\nhang_timeout_s = 60", "step_ms = 20") +
               "[accelerator]\nuse = \"host\"\n[accelerator.host]\ntransport = \"gloo\"\ninterface = \"lo\"\n"
               "peer_timeout_seconds = 1\n");
    const pid_t agent = job.start({"run", "pliant.toml", "--json"});
    if (job.wait_for_commits(agent, 3)) {
      if (std::system("ip link set lo down") != 0) return "the link stays";
      job.wait_for_words(agent, "lost its peers");
      if (std::system("ip link set lo up") != 0) return "the link stays away";
    }
    const Ended ended = job.wait(agent);
    if (ended.err.find("Gloo") != std::string::npos && ended.err.find("was built without") != std::string::npos)
      throw pliant_test::Refused("built without Gloo");
    if (ended.exit_code != 0 || ended.summary["samples_used_once"] != 203 || ended.summary["restarts"] != 0)
      return ended.err + ended.out;
    return ended.err.find("lost its peers") == std::string::npos ? "nobody noticed: " + ended.err : "";
  }));
}

TEST_CASE("an order to end that reaches agent and workers alike stops the job, and it can be resumed") {
  for (const bool agent_first : {true, false}) {
    CAPTURE(agent_first);
    JobRunner job;
    job.config(toy_config("workers = 2", "step_ms = 20"));
    const pid_t agent = job.start({"run", "pliant.toml", "--json"});
    REQUIRE(job.wait_for_commits(agent, 3));
    const pid_t workers[] = {job.worker(0), job.worker(1)};
    if (agent_first) ::kill(agent, SIGTERM);
    for (const pid_t worker : workers) ::kill(worker, SIGTERM);
    if (!agent_first) ::kill(agent, SIGTERM);
    const Ended ended = job.wait(agent);
    INFO(ended.err);
    CHECK(ended.exit_code == 143);
    CHECK(ended.summary["outcome"] == "stopped");
    CHECK(ended.err.find("was killed") == std::string::npos);
    CHECK(job.processes_left() == 0);
    check_resumable(job, static_cast<int64_t>(job.ledger("commit").size()));
  }
}

TEST_CASE("workers that die of the signal that the agent gets too are no failure") {
  JobRunner job;
  job.config(toy_config("workers = 2", "step_ms = 20\nkeep_signals = true"));
  const pid_t agent = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(agent, 3));
  for (const pid_t worker : {job.worker(0), job.worker(1)}) ::kill(worker, SIGTERM);
  ::kill(agent, SIGTERM);
  const Ended ended = job.wait(agent);
  INFO(ended.err);
  CHECK(ended.exit_code == 143);
  CHECK(ended.summary["restarts"] == 0);
}

TEST_CASE("a final snapshot that one rank cannot write is written by another") {
  JobRunner job;
  job.config(toy_config("workers = 2", "step_ms = 20"));
  const pid_t agent =
      job.start({"run", "pliant.toml", "--json"}, 1 << 20);  // what is too large fails, without a signal
  REQUIRE(job.wait_for_commits(agent, 3));
  const rlimit none{0, 0};
  REQUIRE(::prlimit(job.worker(0), RLIMIT_FSIZE, &none, nullptr) == 0);
  ::kill(agent, SIGINT);
  const Ended ended = job.wait(agent);
  INFO(ended.err);
  CHECK(ended.exit_code == 130);
  CHECK(ended.err.find("no snapshot of step") != std::string::npos);
  check_resumable(job, static_cast<int64_t>(job.ledger("commit").size()));
}

TEST_CASE("a job that ends because too few workers are left leaves a snapshot of the last step") {
  JobRunner job;
  std::string config = toy_config("workers = 2\non_loss = \"shrink\"");
  config.replace(config.find("[sampler]"), 0, "min_gpus = 2\n");
  job.config(config);
  const Ended ended = job.run({"run", "pliant.toml", "--json", "--inject", "kill:rank=1,step=9"});
  INFO(ended.err);
  CHECK(ended.exit_code == 75);
  CHECK(job.ledger("commit").size() == 9);
  check_resumable(job, 9);
}

TEST_CASE("a snapshot that was due when its writer died is written by another rank") {
  JobRunner job;
  job.config(toy_config("workers = 4\nsnapshot_every = 7", "step_ms = 5"));
  const Ended killed = job.run(
      {"run", "pliant.toml", "--json", "--inject", "kill:rank=0,step=6,at=commit", "--inject", "kill:agent,step=12"});
  REQUIRE(killed.exit_code == 137);
  const Ended resumed = job.run({"run", "pliant.toml", "--json", "--resume"});
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(resumed.summary["resumed_from"] == 7);
  CHECK(resumed.summary["samples_used_once"] == 203);
}

TEST_CASE("workers that are all stopped, and once more, lose nothing") {
  for (const int64_t workers : {1, 4}) {
    CAPTURE(workers);
    JobRunner job;
    job.config(toy_config(fmt::format("workers = {}\nhang_timeout_s = 1", workers), "step_ms = 10"));
    const pid_t agent = job.start({"run", "pliant.toml", "--json"});
    for (const int64_t commits : {3, 8}) {
      REQUIRE(job.wait_for_commits(agent, commits));
      for (int64_t rank = 0; rank < workers; ++rank) ::kill(job.worker(rank), SIGSTOP);
    }
    check_whole(job.wait(agent), 0);
    CHECK(job.ledger("restart").empty());
  }
}

TEST_CASE("the only rank that hangs is replaced") {
  JobRunner job;
  job.config(
      toy_config("workers = 1\nhang_timeout_s = 1\nsnapshot_every = 2", "misbehave = \"hang\"\nmisbehave_step = 5"));
  const Ended ended = job.run({"run", "pliant.toml", "--json"});
  check_whole(ended, 1);
  CHECK(ended.err.find("rank 0 (worker 0) made no progress for 1.") != std::string::npos);
}

TEST_CASE("on a resume a rank short of file descriptors costs only itself, whichever it is") {
  for (const int64_t rank : {0, 2}) {
    CAPTURE(rank);
    JobRunner job;
    job.config(toy_config("workers = 4", "step_ms = 5"));
    const pid_t agent = job.start({"run", "pliant.toml", "--json"});
    REQUIRE(job.wait_for_commits(agent, 3));
    ::kill(agent, SIGINT);
    REQUIRE(job.wait(agent).exit_code == 130);
    const std::string limited =
        fmt::format("[ $RANK = {} ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ] && ulimit -n 5; exec {}/toy_worker", rank,
                    PLIANT_TEST_BIN_DIR);
    const Ended ended = job.run({"run", "pliant.toml", "--json", "--resume", "--", "bash", "-c", limited});
    INFO(ended.err);
    check_whole(ended, ended.summary["restarts"]);
    CHECK(ended.summary["restarts"].get<int64_t>() <= 2);
    CHECK(job.ledger("restart").empty());
  }
}

TEST_CASE("a rank that is stopped while a resumed group forms delays nobody for long") {
  JobRunner job;
  job.config(toy_config("workers = 4\nhang_timeout_s = 60", "step_ms = 5"));
  const pid_t first = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(first, 3));
  ::kill(first, SIGINT);
  REQUIRE(job.wait(first).exit_code == 130);
  const auto before = static_cast<int64_t>(job.ledger("generation").size());
  const pid_t agent = job.start({"run", "pliant.toml", "--json", "--resume"});
  REQUIRE(job.wait_for_records(agent, "generation", before + 1));
  const pid_t stopped = job.worker(2);
  ::kill(stopped, SIGSTOP);
  const Ended ended = job.wait(agent);
  check_whole(ended, 0);
  CHECK(ended.err.find("no progress") == std::string::npos);
  CHECK(job.ledger("restart").empty());
}

TEST_CASE("two orders to end that come together are one") {
  for (const int second : {SIGHUP, SIGTERM}) {
    CAPTURE(second);
    JobRunner job;
    job.config(toy_config("workers = 2", "step_ms = 20"));
    const pid_t agent = job.start({"run", "pliant.toml", "--json"});
    REQUIRE(job.wait_for_commits(agent, 3));
    ::kill(agent, SIGTERM);
    ::kill(agent, second);
    const Ended ended = job.wait(agent);
    INFO(ended.err);
    CHECK((ended.exit_code == 143 || ended.exit_code == 128 + second));  // the kernel may tell the later first
    CHECK(ended.summary["outcome"] == "stopped");
    check_resumable(job, static_cast<int64_t>(job.ledger("commit").size()));
  }
}

TEST_CASE("where a snapshot holds all that is committed, a stopped rank that holds it too is not waited for long") {
  JobRunner job;
  job.config(toy_config("workers = 2\nsnapshot_every = 1\nhang_timeout_s = 60", "step_ms = 100"));
  const pid_t agent = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_records(agent, "snapshot", 3));
  const pid_t stopped = job.worker(1);
  ::kill(stopped, SIGSTOP);
  ::kill(job.worker(0), SIGKILL);
  CHECK(job.wait_for_words(agent, "generation 2: "));
  ::kill(stopped, SIGCONT);
  const Ended ended = job.wait(agent);
  check_whole(ended, 1);
  CHECK(ended.err.find("made no progress") == std::string::npos);
}

TEST_CASE("the last holder of the state, stopped, is continued after seconds and not after the hang time-out") {
  JobRunner job;
  job.config(toy_config("workers = 2\nhang_timeout_s = 60", "step_ms = 20"));
  const pid_t agent = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(agent, 3));
  ::kill(job.worker(1), SIGSTOP);
  ::kill(job.worker(0), SIGKILL);
  const Ended ended = job.wait(agent);
  check_whole(ended, 1);
  CHECK(ended.err.find("would be lost with it") != std::string::npos);
  CHECK(job.ledger("restart").empty());
}

TEST_CASE("a worker that does not end after its training is named, and two signals end it") {
  JobRunner job;
  job.config(toy_config("workers = 2\nhang_timeout_s = 1"));
  const std::string stays = fmt::format("{}/toy_worker; exec sleep 1000", PLIANT_TEST_BIN_DIR);
  const pid_t agent = job.start({"run", "pliant.toml", "--json", "--", "bash", "-c", stays});
  CHECK(job.wait_for_words(agent, "is done but has not ended for 1 s; the job waits for it"));
  CHECK(job.ledger("commit").size() == 26);
  ::kill(agent, SIGKILL);
  job.wait(agent);
}

#ifndef __SANITIZE_ADDRESS__  // UBSan needs descriptors to look at an object's type
TEST_CASE("where all who hold the state have no descriptor left, they are replaced and no step is lost") {
  for (const int more : {0, 1, 2}) {
    CAPTURE(more);
    JobRunner job;
    job.config(toy_config("workers = 4\nmax_restarts = 9", "step_ms = 20"));
    const pid_t agent = job.start({"run", "pliant.toml", "--json"});
    REQUIRE(job.wait_for_commits(agent, 3));
    for (const int64_t rank : {1, 2}) {
      const pid_t worker = job.worker(rank);
      const rlim_t few = first_free_descriptor(worker) + static_cast<rlim_t>(more);
      const rlimit limit{few, few};
      REQUIRE(::prlimit(worker, RLIMIT_NOFILE, &limit, nullptr) == 0);
    }
    for (const int64_t rank : {0, 3}) ::kill(job.worker(rank), SIGKILL);
    const Ended ended = job.wait(agent);
    check_whole(ended, ended.summary["restarts"]);
    CHECK(ended.summary["restarts"].get<int64_t>() <= 6);
    CHECK(job.ledger("restart").empty());
  }
}

TEST_CASE("a job whose state nobody can write for want of descriptors ends, and says so") {
  JobRunner job;
  job.config(toy_config("workers = 2\nmax_restarts = 9", "step_ms = 20"));
  const pid_t agent = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(agent, 3));
  const rlimit none{3, 3};  // what is reserved is not to be had either
  REQUIRE(::prlimit(job.worker(1), RLIMIT_NOFILE, &none, nullptr) == 0);
  ::kill(job.worker(0), SIGKILL);
  const Ended ended = job.wait(agent);
  INFO(ended.err);
  CHECK(ended.exit_code == 3);
  CHECK(has(ended.err, "no snapshot of step "));
  CHECK(has(ended.err, "Too many open files"));
  CHECK(job.processes_left() == 0);
}

TEST_CASE("the only worker, whose successor cannot be started at once, is replaced when it can be") {
  JobRunner job;
  job.config(toy_config("workers = 1\nsnapshot_every = 1", "step_ms = 50"));
  const pid_t agent = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_records(agent, "snapshot", 3));
  rlimit before{};
  REQUIRE(::prlimit(agent, RLIMIT_NOFILE, nullptr, &before) == 0);
  const rlimit none{3, before.rlim_max};
  REQUIRE(::prlimit(agent, RLIMIT_NOFILE, &none, nullptr) == 0);
  ::kill(job.worker(0), SIGKILL);
  REQUIRE(job.wait_for_words(agent, "retrying"));
  REQUIRE(::prlimit(agent, RLIMIT_NOFILE, &before, nullptr) == 0);
  check_whole(job.wait(agent), 1);
}
#endif
