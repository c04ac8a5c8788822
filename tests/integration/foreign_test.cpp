// `pliant run CONFIG -- PROGRAM` for programs that know nothing of Pliant.
#include <doctest/doctest.h>
#include <signal.h>

#include <cstdlib>
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

TEST_CASE("a program that fails alike on all ranks at its start is not started again, and is quoted once") {
  JobRunner job;
  job.config(kConfig);
  const Ended ended = job.run({"run", "pliant.toml", "--", "sh", "-c",
                               "echo \"train: error: rank $RANK has no data\" >&2; echo a banner; exit 4"});
  INFO(ended.err);
  CHECK(ended.exit_code == 1);
  CHECK(has(ended.out, "outcome            failed: all 3 workers exited with code 4: train: error: rank "));
  CHECK(has(ended.out, "restarts           0\n"));
  CHECK(has(ended.out, "output of workers  " + (job.latest() / "logs").string() + "\n"));
  const std::string quoted = "| train: error: rank ";
  const size_t first = ended.err.find(quoted);
  REQUIRE(first != std::string::npos);
  CHECK(ended.err.find(quoted, first + 1) == std::string::npos);
}

TEST_CASE("of a worker that a signal ends the last lines of its log are shown") {
  JobRunner job;
  job.config(kConfig);
  const Ended ended =
      job.run({"run", "pliant.toml", "--json", "--set", "run.max_restarts=0", "--", "sh", "-c",
               "echo \"$RANK reads a file\"; if [ $RANK = 1 ]; then kill -SEGV $$; fi; exec sleep 1000"});
  INFO(ended.err);
  CHECK(ended.exit_code == 1);
  CHECK(has(ended.err, "  rank 1| 1 reads a file\n"));
  CHECK(has(ended.err, "  the whole log: " + (job.latest() / "logs" / "rank-1.log").string()));
  CHECK_FALSE(has(ended.err, "rank 0| "));  // the agent ended it
}

TEST_CASE("a foreign program gets its share of the plan, at the world size that it is started with") {
  JobRunner job;
  job.config(std::string(kConfig) +
             "on_loss = \"shrink\"\n[elasticity]\nuse = \"v0.1\"\n[elasticity.\"v0.1\"]\n"
             "max_train_batch_size = 12\nmicro_batch_sizes = [1, 2, 3]\n");
  const Ended ended = job.run({"run", "pliant.toml", "--json", "--", "sh", "-c",
                               "echo $PLIANT_GLOBAL_BATCH $PLIANT_MICRO_BATCH $PLIANT_ACCUMULATION_STEPS "
                               "$PLIANT_ROW_FIRST $PLIANT_ROW_COUNT; "
                               "if [ $TORCHELASTIC_RESTART_COUNT = 0 ] && [ $RANK = 2 ]; then exit 7; fi; "
                               "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exec sleep 1000; fi"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(log_of(job, "rank-0.log") == "12 2 2 0 4\n");
  CHECK(log_of(job, "rank-1.log") == "12 2 2 4 4\n");
  CHECK(log_of(job, "rank-2.log") == "12 2 2 8 4\n");
  CHECK(log_of(job, "rank-0.restart-1.log") == "12 3 2 0 6\n");
  CHECK(log_of(job, "rank-1.restart-1.log") == "12 3 2 6 6\n");
  CHECK(ended.summary["world_size"] == 2);
  CHECK(has(ended.summary["shrunk_by"].get<std::string>(), "rank 2 exited with code 7"));
}

TEST_CASE("without a plan a foreign program is told of none, and help names every variable that workers get") {
  JobRunner job;
  job.config(kConfig);
  REQUIRE(job.run({"run", "pliant.toml", "--json", "--", "env"}).exit_code == 0);
  const std::string help = job.run({"run", "--help"}).out;
  std::istringstream lines(log_of(job, "rank-0.log"));
  int named = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string name = line.substr(0, line.find('='));
    for (const char* plan : {"PLIANT_GLOBAL_BATCH", "PLIANT_MICRO_BATCH", "PLIANT_ROW_FIRST"}) CHECK(name != plan);
    const bool is_ours = std::getenv(name.c_str()) == nullptr && name != "_" && name != "PWD" && name != "SHLVL";
    if (!is_ours) continue;
    CAPTURE(name);
    CHECK(has(help, name));
    ++named;
  }
  CHECK(named > 15);
  for (const char* plan : {"PLIANT_GLOBAL_BATCH", "PLIANT_MICRO_BATCH", "PLIANT_ACCUMULATION_STEPS", "PLIANT_ROW_FIRST",
                           "PLIANT_ROW_COUNT"}) {
    CHECK(has(help, plan));
  }
}

TEST_CASE("a program runs without a config as under torchrun, and what it prints is shown") {
  JobRunner job;
  const Ended ended = job.run({"run", "--workers", "2", "--", "sh", "-c",
                               "echo \"hello from $RANK of $WORLD_SIZE at ${MASTER_PORT:+a port} of $MASTER_ADDR\""});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(has(ended.err, "rank 0| hello from 0 of 2 at a port of 127.0.0.1\n"));
  CHECK(has(ended.err, "rank 1| hello from 1 of 2 at a port of 127.0.0.1\n"));
  CHECK(std::filesystem::exists(job.folder() / "pliant-runs/pliant-run/latest/job.json"));
  const Ended failed = job.run({"run", "--set", "run.max_restarts=0", "--", "sh", "-c", "exit 3"});
  CHECK(failed.exit_code == 1);
}

TEST_CASE("without a config and without a program there is nothing to run, and what is missing is said") {
  JobRunner job;
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"run"}, std::vector<std::string>{"run", "--workers", "2"},
        std::vector<std::string>{"run", "--"}}) {
    const Ended ended = job.run(words);
    INFO(ended.err);
    CHECK(ended.exit_code == 2);
    CHECK(has(ended.err, "CONFIG is missing"));
    CHECK_FALSE(std::filesystem::exists(job.folder() / "pliant-runs"));
  }
  const Ended absent = job.run({"run", "--", "no-such-program"});
  CHECK(absent.exit_code == 2);
  CHECK(has(absent.err, "'no-such-program' is neither beside this program"));
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
  const std::vector<std::string> words = words_of_shell(ended.summary["resume"].get<std::string>());
  REQUIRE(words.size() > 6);
  CHECK(words[5] == "--");
  CHECK(words.back().rfind("trap 'echo told; exit 0' TERM; ", 0) == 0);
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
  CHECK(ended.err.find("rank 1 breaks down, as --crash-at asks") != std::string::npos);
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
