// Programs that do what they should not: each ends in a clear message, and nothing is lost.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>

#include "base/result.hpp"
#include "data/lengths_file.hpp"
#include "integration/job_runner.hpp"

using namespace pliant::test;

namespace {

void check_survived(const Ended& ended, const char* words) {
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["samples_used_once"] == 203);
  CHECK(ended.err.find(words) != std::string::npos);
}

Ended misbehave(JobRunner& job, const char* how, const char* run_keys = "") {
  job.config(toy_config(fmt::format("workers = 4\n{}", run_keys),
                        fmt::format("misbehave = \"{}\"\nmisbehave_rank = 1\nmisbehave_step = 3", how)));
  return job.run({"run", "pliant.toml", "--json"});
}

}  // namespace

TEST_CASE("a worker that exits 0 before the job is done is replaced, and named") {
  JobRunner job;
  check_survived(misbehave(job, "exit0"), "rank 1 (worker 1) exited with code 0 before the job was done");
}

TEST_CASE("a worker that exits 1 is replaced") {
  JobRunner job;
  check_survived(misbehave(job, "exit1"), "rank 1 (worker 1) exited with code 1");
}

TEST_CASE("rows and gradients that do not fit the step are refused, and the step goes on") {
  JobRunner job;
  const Ended ended = misbehave(job, "bad_add");
  check_survived(ended, "");
  CHECK(ended.summary["restarts"] == 0);
}

TEST_CASE("a worker attaches once, and what it starts is no worker") {
  JobRunner job;
  const Ended ended = misbehave(job, "attach_again");
  check_survived(ended, "");
  CHECK(ended.summary["restarts"] == 0);
}

namespace {

/// Rank 1 loads other data than the others, and is ready before or after them.
Ended load_other_data(JobRunner& job, const char* turn, const std::string& run_keys) {
  job.config(toy_config(run_keys, fmt::format("content = 7\nmisbehave = \"other_data\"\nmisbehave_rank = 1\n"
                                              "turn = \"{}\"",
                                              turn)));
  return job.run_json();
}

uint64_t content_on_disk(const JobRunner& job) {
  return pliant::or_throw(pliant::data::read_dataset(job.latest() / "dataset.bin")).content;
}

constexpr const char* kNamed = "worker 1 reads other data than the other workers (data of fingerprint ";

}  // namespace

TEST_CASE("a rank that loads other data than the most is named and replaced, be it ready first or last") {
  for (const char* const turn : {"first", "last"}) {
    for (const bool replaced : {true, false}) {
      INFO(std::string(turn));
      JobRunner job;
      const Ended ended =
          load_other_data(job, turn, fmt::format("workers = 4\non_loss = \"{}\"", replaced ? "replace" : "shrink"));
      INFO(ended.err);
      CHECK(ended.exit_code == 0);
      CHECK(has(ended.err, kNamed));
      CHECK(ended.summary["restarts"] == (replaced ? 1 : 0));
      CHECK(ended.summary["samples_used_once"] == 203);
      CHECK(content_on_disk(job) == 7);
      for (const auto& generation : job.ledger("generation")) CHECK(generation.at("world_size") == (replaced ? 4 : 2));
      CHECK(job.processes_left() == 0);
    }
  }
}

TEST_CASE("two ranks that load different data end the job before a step, both named, and neither has written it") {
  for (const char* const turn : {"first", "last"}) {
    for (const char* const on_loss : {"replace", "shrink"}) {
      INFO(std::string(turn));
      JobRunner job;
      const Ended ended = load_other_data(job, turn, fmt::format("workers = 2\non_loss = \"{}\"", on_loss));
      INFO(ended.err);
      CHECK(ended.exit_code == 2);
      const std::string reason = ended.summary["reason"];
      CHECK(has(reason, "there is no majority (worker 0: data of fingerprint "));
      CHECK(has(reason, ", worker 1: data of fingerprint "));
      CHECK(ended.summary["restarts"] == 0);
      CHECK_FALSE(std::filesystem::exists(job.latest() / "dataset.bin"));
      CHECK(job.processes_left() == 0);
    }
  }
}

TEST_CASE("a worker that joins later and loads other data than the job is named and replaced") {
  JobRunner later;
  later.config(toy_config("workers = 4\ndeterministic = true",
                          "content = 7\nmisbehave = \"other_data\"\nmisbehave_rank = 1\nmisbehave_restart = 1"));
  const Ended replaced = later.run_json({"--inject", "kill:rank=1,step=3"});
  INFO(replaced.err);
  CHECK(replaced.exit_code == 0);
  CHECK(replaced.summary["restarts"] == 2);
  CHECK(has(replaced.err, "worker 4 reads other data than the other workers (data of fingerprint "));
  CHECK(content_on_disk(later) == 7);
}

TEST_CASE("a resumed job holds what its ranks load against what the run has on disk") {
  JobRunner job;
  job.config(toy_config("workers = 2\nsnapshot_every = 2", "content = 7"));
  REQUIRE(job.run_json({"--set", "run.max_steps=4"}).exit_code == 0);
  const Ended other = job.run_json({"--resume", "--set", "app.content=8"});
  INFO(other.err);
  CHECK(other.exit_code == 2);
  CHECK(has(other.summary["reason"].get<std::string>(), "the data set has changed: "));
  CHECK(other.summary["restarts"] == 0);
  CHECK(content_on_disk(job) == 7);
  job.config(toy_config("workers = 2\nsnapshot_every = 2",
                        "content = 7\nmisbehave = \"other_data\"\nmisbehave_rank = 1\nturn = \"first\""));
  const Ended one = job.run_json({"--resume"});
  INFO(one.err);
  CHECK(one.exit_code == 0);
  CHECK(has(one.err, kNamed));
  CHECK(one.summary["samples_used_once"] == 203);
  CHECK(content_on_disk(job) == 7);
}

TEST_CASE(
    "a rank that names its arrays in another order than the most is named and replaced, be it the first or the last") {
  for (const int rank : {0, 3}) {
    JobRunner job;
    job.config(toy_config("workers = 4", "halved = true\n" + misbehaving("other_arrays", rank, 0)));
    const Ended ended = job.run_json();
    INFO(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(has(ended.err, fmt::format("worker {} has other arrays than the other workers (arrays of digest ", rank)));
    CHECK(std::regex_search(ended.err,
                            std::regex("instead of [0-9a-f]{16}: [^ ]+ f32\\[[0-9]+\\] instead of [^ ]+ f32\\[")));
    CHECK(has(ended.err, "TrainingState::arrays must give the same names, types and shapes in the same order"));
    CHECK(ended.summary["restarts"] == 1);
    for (const auto& generation : job.ledger("generation")) CHECK(generation.at("world_size") == 4);
    CHECK(ended.summary["samples_used_once"] == 203);
    CHECK(job.processes_left() == 0);
  }
}

TEST_CASE("two ranks whose arrays come in different orders end the job before a step, both named") {
  JobRunner job;
  job.config(toy_config("workers = 2", "halved = true\n" + misbehaving("other_arrays", 0, 0)));
  const Ended ended = job.run_json();
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  const std::string reason = ended.summary["reason"];
  CHECK(has(reason, "there is no majority (worker 0: arrays of digest "));
  CHECK(has(reason, ", worker 1: arrays of digest "));
  CHECK(has(reason, ", which begin to differ where worker 0 has "));
  CHECK(ended.summary["restarts"] == 0);
  CHECK(job.processes_left() == 0);
}

TEST_CASE("a rank whose gradient is of other parameters is named before a step, and of two ranks both") {
  JobRunner job;
  job.config(toy_config("workers = 4", misbehaving("other_gradient", 1, 0)));
  const Ended replaced = job.run_json();
  INFO(replaced.err);
  CHECK(replaced.exit_code == 0);
  CHECK(has(replaced.err, "worker 1 has another gradient than the other workers (a gradient of "));
  CHECK(has(replaced.err, "all workers must train the same parameters"));
  CHECK(replaced.summary["restarts"] == 1);
  CHECK(replaced.summary["samples_used_once"] == 203);
  JobRunner of_two;
  of_two.config(toy_config("workers = 2", misbehaving("other_gradient", 0, 0)));
  const Ended ended = of_two.run_json();
  CHECK(ended.exit_code == 2);
  const std::string reason = ended.summary["reason"];
  CHECK(has(reason, "there is no majority (worker 0: a gradient of "));
  CHECK(has(reason, ", worker 1: a gradient of "));
  CHECK(of_two.processes_left() == 0);
}

TEST_CASE("a worker that dies at its start is replaced") {
  JobRunner job;
  check_survived(misbehave(job, "exit_at_start"), "worker 1 exited with code 1");
}

TEST_CASE("ranks that say that they are busy, one or all, are no hang, and nor are those that wait for them") {
  for (const int rank : {1, -1}) {
    CAPTURE(rank);
    JobRunner job;
    job.config(toy_config("workers = 4\nhang_timeout_s = 1", misbehaving("busy", rank, 3)));
    const Ended ended = job.run_json();
    check_survived(ended, "");
    CHECK(ended.summary["restarts"] == 0);
    CHECK(ended.summary["generations"] == 1);
  }
}

TEST_CASE("a rank that is busy for longer than it said is killed and named, with what it did") {
  JobRunner job;
  job.config(toy_config("workers = 4\nhang_timeout_s = 1", misbehaving("busy_too_long", 1, 3)));
  const Ended ended = job.run_json();
  check_survived(ended, "with evaluation, for which it had announced 1.5 s at most, and was killed");
  CHECK(has(ended.err, "rank 1 (worker 1) was busy for "));
  CHECK_FALSE(has(ended.err, "rank 0 (worker 0) was busy"));
}

TEST_CASE("a worker that says at its start that it is busy may take longer than start_timeout_s") {
  JobRunner job;
  job.config(toy_config("workers = 4\nstart_timeout_s = 2", misbehaving("busy_at_start", 1, 0)));
  const Ended ended = job.run_json();
  check_survived(ended, "");
  CHECK(ended.summary["restarts"] == 0);
}

TEST_CASE("a worker that hangs at its start is named, killed and replaced") {
  JobRunner job;
  check_survived(misbehave(job, "hang_at_start", "start_timeout_s = 2"), "worker 1 was not ready 2 s after its start");
}

TEST_CASE("a rank that loops or is stopped is named, killed and replaced") {
  for (const char* how : {"hang", "stop"}) {
    JobRunner job;
    check_survived(misbehave(job, how, "hang_timeout_s = 2"), "rank 1 (worker 1) made no progress");
  }
}

TEST_CASE("a worker that refuses its config or its machine at the start is replaced while others are well") {
  for (const char* how : {"usage_at_start", "environment_at_start"}) {
    JobRunner job;
    check_survived(misbehave(job, how), how[0] == 'u' ? "worker 1 exited with code 2" : "worker 1 exited with code 3");
  }
}

TEST_CASE("workers that all refuse their config end the job with their code and their words, and use up no restart") {
  JobRunner job;
  job.config(toy_config("workers = 4", "misbehave = \"usage_at_start\"\nmisbehave_rank = -1"));
  const Ended ended = job.run({"run", "pliant.toml", "--json"});
  CHECK(ended.summary["restarts"] == 0);
  CHECK(ended.exit_code == 2);
  CHECK(ended.err.find("exited with code 2") != std::string::npos);
  CHECK(job.processes_left() == 0);
}

TEST_CASE("workers that all fail alike at their start end the job at once, with one message and without a restart") {
  JobRunner job;
  job.config(toy_config("workers = 4", "misbehave = \"exit_at_start\"\nmisbehave_rank = -1\nmisbehave_always = true"));
  const Ended ended = job.run({"run", "pliant.toml", "--json"});
  INFO(ended.err);
  CHECK(ended.exit_code == 1);
  CHECK(ended.summary["restarts"] == 0);
  CHECK(has(ended.summary["reason"].get<std::string>(), "all 4 workers exited with code 1"));
  CHECK_FALSE(has(ended.err, "warning: "));
  CHECK(job.processes_left() == 0);
}

TEST_CASE("the summary says the world size that the job ended with, and what shrank it") {
  JobRunner job;
  job.config(toy_config("workers = 4\non_loss = \"shrink\""));
  const Ended ended = job.run({"run", "pliant.toml", "--json", "--inject", "kill:rank=1,step=3"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["world_size"] == 2);  // 3 are not valid
  CHECK(ended.summary["shrunk_by"] == "rank 1 (worker 1) was killed by signal 9 (Killed)");
  CHECK_FALSE(has(ended.err, "  rank 1| "));  // by an injection: its log says nothing of it
}

TEST_CASE("ranks that one after the other refuse the same end the job, although each says so in other words") {
  JobRunner job;
  job.config(toy_config("workers = 2\nmax_restarts = 9",
                        "misbehave = \"refuse\"\nmisbehave_always = true\nmisbehave_step = 3"));
  const Ended ended = job.run_json();
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.summary["reason"].get<std::string>(), "exited with code 2: toy_worker: process "));
  CHECK(ended.summary["restarts"] == 1);
  CHECK(job.processes_left() == 0);
}

TEST_CASE("workers of another version of Pliant than the agent's end the job at once, and say what to do") {
  for (const char* protocol : {"PLIANT_PROTOCOL=0", "--unset=PLIANT_PROTOCOL"}) {
    JobRunner job;
    std::string config = toy_config("workers = 2", "");
    const size_t command = config.find("command = [");
    REQUIRE(command != std::string::npos);
    config.insert(command + 11, "\"/usr/bin/env\", \"" + std::string(protocol) + "\", ");
    job.config(config);
    const Ended ended = job.run({"run", "pliant.toml", "--json"});
    INFO(ended.err);
    CHECK(ended.exit_code == 2);
    CHECK(ended.summary["restarts"] == 0);
    CHECK(ended.err.find("another version of Pliant than the `pliant run` that started it") != std::string::npos);
    CHECK(ended.err.find("build it again with that version") != std::string::npos);
    CHECK(job.processes_left() == 0);
  }
}

TEST_CASE("a worker that always fails uses up the restarts and the job says so") {
  JobRunner job;
  job.config(toy_config("workers = 1\nmax_restarts = 2", "misbehave = \"exit1\"\nmisbehave_always = true"));
  const Ended ended = job.run({"run", "pliant.toml", "--json"});
  CHECK(ended.exit_code == 1);
  CHECK(ended.summary["restarts"] == 2);
  CHECK(ended.err.find("no workers are left") != std::string::npos);
}

TEST_CASE("what a dead worker had started dies with it") {
  JobRunner job;
  check_survived(misbehave(job, "orphan"), "exited with code 1");
  CHECK(job.processes_left() == 0);
}

TEST_CASE("on_loss = stop ends the job at the first loss") {
  JobRunner job;
  const Ended ended = misbehave(job, "exit1", "on_loss = \"stop\"");
  CHECK(ended.exit_code == 1);
  CHECK(job.processes_left() == 0);
}

TEST_CASE("a world size that is not valid is refused with the nearest ones") {
  JobRunner job;
  job.config(toy_config("workers = 3"));
  const Ended ended = job.run({"run", "pliant.toml"});
  CHECK(ended.exit_code == 2);
  CHECK(ended.err.find("world size 3 is not valid for global batch 8") != std::string::npos);
  CHECK(ended.err.find("nearest valid: 2, 4") != std::string::npos);
}

TEST_CASE("a program that is not there is refused before anything starts") {
  JobRunner job;
  job.config(toy_config("workers = 2"));
  const Ended ended = job.run({"run", "pliant.toml", "--", "no-such-program"});
  CHECK(ended.exit_code == 2);
  CHECK(ended.err.find("'no-such-program' is neither beside this program") != std::string::npos);
}

TEST_CASE("an empty dataset is refused by name") {
  JobRunner job;
  job.config(toy_config("workers = 2", "sequences = 0"));
  const Ended ended = job.run({"run", "pliant.toml"});
  CHECK(ended.exit_code == 2);
  CHECK(ended.err.find("empty") != std::string::npos);
}

TEST_CASE("a full disk on the commit path ends the job cleanly and the run can be resumed") {
  JobRunner job;
  job.config(toy_config("workers = 2\nepochs = 14\nsnapshot_every = 3\ndeterministic = true") +
             "[accelerator]\nuse = \"host\"\n[accelerator.host]\nchunk_bytes = 4096\n");
  // A limit on file size stands for a full disk: the ledger hits it in the middle of the job.
  const Ended ended = job.run_limited(80, {"run", "pliant.toml", "--json"});
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(ended.summary["reason"].get<std::string>().find("is not committed") != std::string::npos);
  CHECK(job.processes_left() == 0);
  const Ended resumed = job.run({"run", "pliant.toml", "--json", "--resume"});
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(resumed.summary["samples_used_once"] == 2842);
  CHECK(resumed.summary["samples_repeated"] == 0);
}

TEST_CASE("without room for shared memory the job ends with the reason and the run can be resumed") {
  JobRunner job;
  std::string config = toy_config("workers = 2\ndeterministic = true");
  config.replace(config.find("[sampler]"), 0, "min_gpus = 2\n");  // one rank needs none
  job.config(config);
  const Ended ended = job.run_limited(100, {"run", "pliant.toml", "--json"});
  INFO(ended.err);
  CHECK(ended.exit_code == 3);
  CHECK(ended.summary["reason"].get<std::string>().find("no shared memory") != std::string::npos);
  CHECK(job.processes_left() == 0);
  const Ended resumed = job.run({"run", "pliant.toml", "--json", "--resume"});
  REQUIRE(resumed.exit_code == 0);
  CHECK(resumed.summary["samples_used_once"] == 203);
}

TEST_CASE("a program whose worker dies before it could say that it uses the API is started again and finishes") {
  JobRunner job;
  std::string config = toy_config("workers = 4");
  config.replace(config.find("attach = \"required\""), 19, "attach = \"auto\"");
  job.config(config);
  const Ended ended = job.run({"run", "pliant.toml", "--json", "--", "sh", "-c",
                               "[ \"$RANK$TORCHELASTIC_RESTART_COUNT\" = 10 ] && exit 1; exec " +
                                   std::string(PLIANT_TEST_BIN_DIR) + "/toy_worker"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["uses_api"] == true);
  CHECK(ended.summary["samples_used_once"] == 203);
  CHECK(ended.summary["restarts"] == 1);
}

TEST_CASE("workers that say that they use the API while their group is ended are not waited for") {
  JobRunner job;
  std::string config = toy_config("workers = 2\nstop_grace_s = 1000");
  config.replace(config.find("attach = \"required\""), 19, "attach = \"auto\"");
  job.config(config);
  const std::string gone = (job.folder() / "gone").string();
  const std::string program = fmt::format(
      "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && [ $RANK = 1 ] && touch {0} && exit 1; trap '' TERM; "
      "while [ ! -e {0} ]; do sleep 0.01; done; [ $TORCHELASTIC_RESTART_COUNT = 0 ] && sleep 0.3; exec {1}/toy_worker",
      gone, PLIANT_TEST_BIN_DIR);
  const Ended ended = job.run({"run", "pliant.toml", "--json", "--", "sh", "-c", program});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["samples_used_once"] == 203);
  CHECK(ended.summary["restarts"] == 1);
}

TEST_CASE("Ctrl-C while workers are being started ends with 130 and leaves none") {
  for (int round = 0; round < 12; ++round) {
    CAPTURE(round);
    JobRunner job;
    job.config("config_version = 1\n[run]\nname = \"toy\"\nworkers = 12\nstop_grace_s = 2\n");
    const pid_t agent = job.start({"run", "pliant.toml", "--json", "--", "sleep", "1000"});
    const auto logs = job.folder() / "pliant-runs/toy";  // made just before the workers are started
    while (!std::filesystem::exists(logs)) {
    }
    for (int spin = 0; spin < round * 20000; ++spin) __asm__ volatile("" ::: "memory");
    ::kill(agent, SIGINT);
    const Ended ended = job.wait(agent);
    INFO(ended.err);
    CHECK((ended.exit_code == 130 || ended.exit_code == 128 + SIGINT));
    CHECK(job.processes_left() == 0);
  }
}

TEST_CASE("a job does not end because nobody can read its progress") {
  JobRunner job;
  job.config(toy_config("workers = 2"));
  for (const char* nowhere : {"2>/dev/full", "2>&-", "<&- 2>&-"}) {
    CAPTURE(nowhere);
    const std::string command = "cd " + job.folder().string() + " && " + std::string(PLIANT_BIN_DIR) +
                                "/pliant run pliant.toml --json " + std::string(nowhere) + " > out.json";
    CHECK(std::system(command.c_str()) == 0);
    CHECK(pliant::test::read_all(job.folder() / "out.json").find("\"samples_used_once\":203") != std::string::npos);
  }
  const std::string full = "cd " + job.folder().string() + " && " + std::string(PLIANT_BIN_DIR) +
                           "/pliant run pliant.toml --json >/dev/full 2>&1";
  CHECK(WEXITSTATUS(std::system(full.c_str())) == 1);
}

TEST_CASE("a job goes on while nobody reads what its workers print, and says how much it left out") {
  JobRunner job;
  job.config(toy_config("workers = 2", "misbehave = \"talk\"\nstep_ms = 5"));
  const std::string pipe = job.folder() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  REQUIRE(reader >= 0);
  const std::string command = "cd " + job.folder().string() + " && exec " + PLIANT_BIN_DIR +
                              "/pliant run pliant.toml --json --show-logs > out.json 2> pipe";
  const pid_t agent = ::fork();
  if (agent == 0) {
    ::execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  const auto summary = [&job] { return pliant::test::read_all(job.folder() / "out.json"); };
  CHECK(job.wait_until(agent, [&summary] { return !summary().empty(); }));
  std::string read;
  std::vector<char> bytes(1 << 16);
  pollfd more{reader, POLLIN, 0};
  for (ssize_t n = 1; n != 0 && ::poll(&more, 1, -1) > 0;) {
    n = ::read(reader, bytes.data(), bytes.size());
    if (n > 0) read.append(bytes.data(), static_cast<size_t>(n));
  }
  ::close(reader);
  int status = 0;
  ::waitpid(agent, &status, 0);
  CHECK(status == 0);
  CHECK(summary().find("\"samples_used_once\":203") != std::string::npos);
  CHECK(read.find(" has much to say") != std::string::npos);  // of whichever rank was first
  CHECK(read.find(" lines were dropped here: stderr was not read in time") != std::string::npos);
}

TEST_CASE("a process that has left its worker's session dies with the job") {
  JobRunner job;
  job.config("config_version = 1\n[run]\nname = \"toy\"\nworkers = 2\n");
  const Ended ended = job.run({"run", "pliant.toml", "--json", "--", "sh", "-c", "setsid sleep 1000 & exit 0"});
  CHECK(ended.exit_code == 0);
  CHECK(job.processes_left() == 0);
}

TEST_CASE("a worker inherits its own end of its own socket and nothing else of the agent's") {
  JobRunner job;
  job.config("config_version = 1\n[run]\nname = \"toy\"\nworkers = 3\n");
  const Ended ended = job.run(
      {"run", "pliant.toml", "--show-logs", "--", "sh", "-c", "readlink /proc/$$/fd/* | grep -c -e socket -e pidfd"});
  INFO(ended.err);
  for (const char* line : {"rank 0| 1\n", "rank 1| 1\n", "rank 2| 1\n"}) {
    CHECK(ended.err.find(line) != std::string::npos);
  }
}

TEST_CASE("an injection that cannot strike is refused, one that did not is named at the end") {
  JobRunner job;
  job.config(toy_config("workers = 2"));
  const auto refused = [&](const std::string& kill, const char* words) {
    const Ended ended = job.run({"run", "pliant.toml", "--inject", kill});
    CHECK(ended.exit_code == 2);
    CHECK_MESSAGE(ended.err.find(words) != std::string::npos, ended.err);
  };
  refused("kill:rank=9,step=5", "no rank 9; 2 workers have ranks 0 to 1");
  refused("kill:rank=1,step=5,step=6", "step is given twice");
  const Ended late = job.run({"run", "pliant.toml", "--inject", "kill:rank=1,step=500"});
  CHECK(late.exit_code == 0);
  CHECK(late.err.find("the kill of rank 1 at step 500 (forward) did not happen") != std::string::npos);
}

TEST_CASE("a stopped spare is continued when nobody else is left") {
  JobRunner job;
  job.config(toy_config("workers = 4\non_loss = \"shrink\"\nhang_timeout_s = 1", "step_ms = 20"));
  const pid_t agent = job.start({"run", "pliant.toml", "--json", "--inject", "kill:rank=3,step=1", "--inject",
                                 "kill:rank=0,step=12", "--inject", "kill:rank=1,step=12"});
  REQUIRE(job.wait_for_commits(agent, 5));  // three are left, and two of them are ranks
  const pid_t spare = job.worker(2);
  REQUIRE(spare > 0);
  ::kill(spare, SIGSTOP);
  const Ended ended = job.wait(agent);
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(ended.err.find("worker 2, which is stopped: step 0 would be lost with it") != std::string::npos);
  CHECK(ended.err.find("no worker holds step 12: going back to step 1") != std::string::npos);
  CHECK(job.processes_left() == 0);
}

TEST_CASE("a worker that finds another elastic config than the agent's takes no part, and the others go on") {
  JobRunner job;
  job.config(toy_config("workers = 2\nmax_restarts = 1", "step_ms = 20"));
  const std::string other =
      fmt::format("[ $TORCHELASTIC_RESTART_COUNT = 1 ] && export PLIANT_ELASTICITY_DIGEST=another; exec {}/toy_worker",
                  PLIANT_TEST_BIN_DIR);
  const Ended ended = job.run({"run", "pliant.toml", "--inject", "kill:rank=1,step=2", "--", "bash", "-c", other});
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(ended.err.find("the elastic config of this worker differs from the job's: digest ") != std::string::npos);
  CHECK(ended.err.find("all 1 restarts are used; continuing without a replacement") != std::string::npos);
}

TEST_CASE("a worker whose message to the agent has no end is killed by name, and the job goes on") {
  JobRunner job;
  job.config(toy_config("workers = 2", "misbehave = \"babble\"\nmisbehave_rank = 1\nmisbehave_step = 3"));
  const Ended ended = job.run({"run", "pliant.toml", "--json"});
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(ended.err.find("RANK 1 at its start") != std::string::npos);
  CHECK(ended.err.find("without an end of line") != std::string::npos);
  CHECK(ended.summary["restarts"] == 1);
  CHECK(ended.summary["samples_used_once"] == 203);
}

TEST_CASE("a program that leaves a part of its state unread is told so, and goes on nowhere with the rest") {
  const std::string words = "this program did not read all of its saved state; TrainingState::load must read all";
  for (const char* arrays : {"true", "false"}) {  // half of the state is an array, or all is in what it saves
    INFO("arrays = " << std::string(arrays));
    JobRunner job;
    job.config(toy_config("workers = 2\nmax_restarts = 0",
                          fmt::format("misbehave = \"read_less\"\nmisbehave_always = true\narrays = {}", arrays)));
    const Ended ended = job.run({"run", "pliant.toml", "--json", "--set", "run.max_steps=4"});
    INFO(ended.err);
    CHECK(ended.err.find(words) != std::string::npos);
    CHECK(ended.err.find("reported a failure") == std::string::npos);
    const Ended resumed = job.run({"run", "pliant.toml", "--json", "--resume"});
    INFO(resumed.err);
    CHECK(resumed.exit_code == 1);
    CHECK(resumed.err.find(words) != std::string::npos);
    JobRunner later;  // one that joins in the middle
    later.config(toy_config("workers = 2\nmax_restarts = 1",
                            fmt::format("misbehave = \"read_less\"\nmisbehave_restart = 1\narrays = {}", arrays)));
    const Ended joined = later.run_json({"--inject", "kill:rank=1,step=3"});
    INFO(joined.err);
    CHECK(joined.exit_code == 0);  // the other goes on
    CHECK(has(joined.err, words));
  }
}
