// The process that ends what is left of a job when the agent dies: it is replaced when it dies, waited for by nobody,
// and harms no other incarnation of the job.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "integration/job_runner.hpp"

using namespace pliant::test;

namespace {

struct Process {
  pid_t parent = 0;
  char state = 'X';
};

// Of /proc/PID/stat; what is gone is 'X'.
Process look_at(pid_t pid) {
  const std::string stat = read_all("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos || name_end + 4 >= stat.size()) return {};
  return {std::stoi(stat.substr(name_end + 4)), stat[name_end + 2]};
}

bool is_gone(pid_t pid) {
  const char state = look_at(pid).state;
  return state == 'X' || state == 'Z';
}

// Polls; false after `seconds`.
bool comes_true(const std::function<bool()>& condition, int seconds = 20) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // polls what the kernel says; no order depends on it
  }
  return true;
}

// The living warden of `agent`; 0 when there is none.
pid_t warden_of(pid_t agent) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (read_all(entry.path() / "comm") != "pliant-warden\n") continue;
    const pid_t pid = std::stoi(name);
    if (look_at(pid).parent == agent && !is_gone(pid)) return pid;
  }
  return 0;
}

// Rank 0 leaves a process behind that has gone to a session of its own.
std::string daemon_config() {
  return toy_config("workers = 2\nsnapshot_every = 2",
                    "step_ms = 10\nsequences = 403\nmisbehave = \"daemon\"\nmisbehave_step = 1");
}

}  // namespace

TEST_CASE("a warden that is killed is replaced, and its successor leaves nothing behind when the agent is killed") {
  JobRunner job;
  job.config(daemon_config());
  const pid_t agent = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(agent, 3));
  const pid_t first = warden_of(agent);
  REQUIRE(first > 0);
  ::kill(first, SIGKILL);
  CHECK(comes_true([&] {
    const pid_t successor = warden_of(agent);
    return successor > 0 && successor != first;
  }));
  ::kill(agent, SIGKILL);
  CHECK(job.wait(agent).exit_code == 128 + SIGKILL);
  CHECK(comes_true([&] { return job.processes_left() == 0; }));
}

TEST_CASE("a worker whose agent is killed is told so and ends by itself") {
  JobRunner job;
  job.config(toy_config("workers = 2\nsnapshot_every = 2", "step_ms = 10\nsequences = 403"));
  const pid_t agent = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(agent, 3));
  ::kill(agent, SIGKILL);
  CHECK(job.wait(agent).exit_code == 128 + SIGKILL);
  CHECK(comes_true([&] { return job.processes_left() == 0; }));
  for (int rank = 0; rank < 2; ++rank) {
    const std::string log = read_all(job.latest() / "logs" / ("rank-" + std::to_string(rank) + ".log"));
    CHECK(log.find("the agent of this job is gone; `pliant run ") != std::string::npos);
    CHECK(log.find("` continues from the newest snapshot, or starts from the beginning if there is none") !=
          std::string::npos);
  }
  const Ended resumed = job.paste(read_all(job.latest() / "logs" / "rank-1.log"));
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(resumed.summary["resumed_from"].get<int64_t>() >= 2);
  CHECK(resumed.summary["samples_used_once"] == 403);
}

TEST_CASE("a worker of a program that came after -- names that program in what it advises") {
  JobRunner job;
  std::string config = toy_config("workers = 2\nsnapshot_every = 2", "step_ms = 10\nsequences = 403");
  const size_t command = config.find("command = ");
  config.erase(command, config.find('\n', command) - command);
  job.config(config);
  const pid_t agent =
      job.start({"run", "pliant.toml", "--json", "--", std::string(PLIANT_TEST_BIN_DIR) + "/toy_worker"});
  REQUIRE(job.wait_for_commits(agent, 3));
  ::kill(agent, SIGKILL);
  CHECK(job.wait(agent).exit_code == 128 + SIGKILL);
  CHECK(comes_true([&] { return job.processes_left() == 0; }));
  const Ended resumed = job.paste(read_all(job.latest() / "logs" / "rank-0.log"));
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(resumed.summary["resumed_from"].get<int64_t>() >= 2);
  CHECK(resumed.summary["samples_used_once"] == 403);
}

TEST_CASE("a worker that does not hear of its agent's end is killed after the warden's grace of a second") {
  JobRunner job;
  job.config(toy_config("workers = 2", "step_ms = 10\nsequences = 403\n" + misbehaving("hang_and_say", 1, 3)));
  const pid_t agent = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(agent, 1));
  REQUIRE(JobRunner::wait_until(
      agent, [&] { return read_all(job.latest() / "logs" / "rank-1.log").find("hangs") != std::string::npos; }));
  const auto began = std::chrono::steady_clock::now();
  ::kill(agent, SIGKILL);
  CHECK(job.wait(agent).exit_code == 128 + SIGKILL);
  CHECK(comes_true([&] { return job.processes_left() == 0; }));
  // The docs say a second: not at once, and nobody waits for minutes. Wide, for a machine that has much to do.
  const auto took = std::chrono::steady_clock::now() - began;
  CHECK(took >= std::chrono::milliseconds(800));
  CHECK(took <= std::chrono::seconds(10));
}

TEST_CASE("a warden that takes the place of another while the agent has no descriptor left harms nobody") {
  JobRunner job;
  job.config(daemon_config());
  const pid_t agent = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(agent, 3));
  int highest = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(agent) + "/fd"))
    highest = std::max(highest, std::stoi(entry.path().filename().string()));
  const rlimit no_more{static_cast<rlim_t>(highest) + 1, static_cast<rlim_t>(highest) + 1};
  REQUIRE(::prlimit(agent, RLIMIT_NOFILE, &no_more, nullptr) == 0);
  ::kill(warden_of(agent), SIGKILL);
  const Ended ended = job.wait(agent);
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(ended.summary["restarts"] == 0);
  CHECK(job.processes_left() == 0);
}

TEST_CASE("a stopped warden does not keep a job from its end") {
  JobRunner job;
  job.config(daemon_config());
  const pid_t agent = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(agent, 1));
  const pid_t warden = warden_of(agent);
  REQUIRE(warden > 0);
  ::kill(warden, SIGSTOP);
  CHECK(comes_true([&] { return is_gone(agent); }));
  if (!is_gone(warden)) ::kill(warden, SIGCONT);
  CHECK(job.wait(agent).exit_code == 0);
  CHECK(is_gone(warden));
  CHECK(job.processes_left() == 0);
}

TEST_CASE("a warden that was stopped while its agent died ends what is left of it and nothing of the resumed job") {
  JobRunner job;
  job.config(daemon_config());
  const pid_t agent = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(agent, 3));
  ::kill(agent, SIGSTOP);  // so that it does not mind the warden's
  const pid_t warden = warden_of(agent);
  REQUIRE(warden > 0);
  ::kill(warden, SIGSTOP);
  ::kill(agent, SIGKILL);
  job.wait(agent);
  const auto before = static_cast<int64_t>(job.ledger("commit").size());
  const pid_t resumed = job.start({"run", "pliant.toml", "--json", "--resume"});
  REQUIRE(job.wait_for_commits(resumed, before + 2));
  ::kill(warden, SIGCONT);
  CHECK(comes_true([&] { return is_gone(warden); }));
  const Ended ended = job.wait(resumed);
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(ended.summary["restarts"] == 0);
  CHECK(job.processes_left() == 0);
}
