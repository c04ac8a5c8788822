// `pliant run CONFIG -- PROGRAM` for programs that know nothing of Pliant.
#include <doctest/doctest.h>
#include <signal.h>

#include <fstream>
#include <sstream>

#include "integration/job_runner.hpp"

using namespace pliant::test;

namespace {

constexpr const char* kConfig = "config_version = 1\n[run]\nname = \"toy\"\nworkers = 3\nstop_grace_s = 2\n";

std::string log_of(const JobRunner& job, const std::string& name) {
  std::error_code absent;
  if (!std::filesystem::exists(job.folder() / "pliant-runs/toy/latest", absent)) return {};
  std::ifstream in(job.latest() / "logs" / name);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("a foreign program gets the names that torchrun uses and a log of its own") {
  JobRunner job;
  job.config(kConfig);
  const Ended ended =
      job.run({"run", "pliant.toml", "--json", "--", "sh", "-c",
               "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR ${MASTER_PORT:+port} "
               "${TORCHELASTIC_RUN_ID:+id} $TORCHELASTIC_RESTART_COUNT"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["uses_api"] == false);
  CHECK(log_of(job, "rank-0.log") == "0 0 3 3 0 127.0.0.1 port id 0\n");
  CHECK(log_of(job, "rank-2.log") == "2 2 3 3 0 127.0.0.1 port id 0\n");
}

TEST_CASE("when one worker of a foreign program dies all are started again") {
  JobRunner job;
  job.config(kConfig);
  const Ended ended = job.run({"run", "pliant.toml", "--json", "--", "sh", "-c",
                               "if [ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exit 7; fi; "
                               "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then sleep 1000; fi; echo again"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["restarts"] == 1);
  CHECK(ended.err.find("rank 1 exited with code 7") != std::string::npos);
  CHECK(log_of(job, "rank-0.restart-1.log") == "again\n");
  CHECK(job.processes_left() == 0);
}

TEST_CASE("restarts are spent and the job fails with the program's last words") {
  JobRunner job;
  job.config(kConfig);
  const Ended ended = job.run({"run", "pliant.toml", "--json", "--set", "run.max_restarts=1", "--", "sh", "-c",
                               "if [ $RANK = 1 ]; then echo it broke; exit 4; fi; exec sleep 1000"});
  CHECK(ended.exit_code == 1);
  CHECK(ended.summary["restarts"] == 1);
  CHECK(ended.err.find("it broke") != std::string::npos);
}

TEST_CASE("a worker's failure is seen by a pliant that was started with SIGCHLD ignored") {
  JobRunner job;
  job.config(kConfig);
  const std::string inner =
      std::string("exec env --ignore-signal=CHLD ") + PLIANT_BIN_DIR +
      "/pliant run pliant.toml --set run.workers=1 --set run.max_restarts=0 --log-dir inner -- false";
  const Ended ended = job.run({"run", "pliant.toml", "--json", "--set", "run.workers=1", "--set", "run.max_restarts=0",
                               "--", "sh", "-c", inner});
  CHECK(ended.exit_code == 1);
  CHECK(log_of(job, "rank-0.log").find("rank 0 exited with code 1") != std::string::npos);
}

TEST_CASE("Ctrl-C ends a foreign program with SIGTERM and then with 130") {
  JobRunner job;
  job.config(kConfig);
  const pid_t pid = job.start({"run", "pliant.toml", "--json", "--", "sh", "-c",
                               "trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.05; done"});
  while (log_of(job, "rank-0.log") != "up\n" || log_of(job, "rank-1.log") != "up\n" ||
         log_of(job, "rank-2.log") != "up\n") {
  }
  ::kill(pid, SIGINT);
  const Ended ended = job.wait(pid);
  CHECK(ended.exit_code == 130);
  CHECK(log_of(job, "rank-1.log").find("told") != std::string::npos);
  CHECK(job.processes_left() == 0);
}

TEST_CASE("a program that must use the embedding API and does not is ended") {
  JobRunner job;
  job.config(std::string(kConfig) + "attach = \"required\"\nstart_timeout_s = 1\nmax_restarts = 0\n");
  const Ended ended = job.run({"run", "pliant.toml", "--json", "--", "sleep", "1000"});
  CHECK(ended.exit_code != 0);
  CHECK(ended.err.find("was not ready 1 s after its start") != std::string::npos);
  CHECK(job.processes_left() == 0);
}

TEST_CASE("the foreign sample breaks down once, is restarted and finds the line it looks for") {
  JobRunner job;
  const Ended ended = job.run({"run", std::string(PLIANT_SOURCE_DIR) + "/samples/foreign/pliant.toml", "--json",
                               "--show-logs", "--set", "run.working_dir=" + job.folder().string(), "--", "python3",
                               std::string(PLIANT_SOURCE_DIR) + "/samples/foreign/train.py", "--crash-at", "25"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["restarts"] == 1);
  CHECK(ended.err.find("rank 1 breaks down, as it was told to") != std::string::npos);
  CHECK(ended.err.find("attempt 1, from step 20") != std::string::npos);
  CHECK(ended.err.find("done: y = 2.99 x + -2.00") != std::string::npos);
}

TEST_CASE("each start of a foreign group is a generation of its own") {
  JobRunner job;
  job.config(kConfig);
  const Ended ended =
      job.run({"run", "pliant.toml", "--json", "--set", "run.max_restarts=2", "--", "sh", "-c", "exit $RANK"});
  CHECK(ended.exit_code == 1);
  CHECK(ended.summary["restarts"] == 2);
  CHECK(ended.summary["generations"] == 3);
}
