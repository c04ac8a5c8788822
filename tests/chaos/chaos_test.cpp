// SIGKILL and SIGSTOP from outside, at random moments, to workers and to the agent; the job is resumed until it is
// done. PLIANT_CHAOS_ROUNDS: number of jobs (default 4). PLIANT_CHAOS_SEED: of the first one (default 1).
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>

#include "integration/job_runner.hpp"

using namespace pliant::test;

namespace {

int number_from(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// Pids of the workers that run in `job`'s folder.
std::vector<pid_t> workers_of(pid_t agent) {
  std::vector<pid_t> pids;
  std::ifstream in(fmt::format("/proc/{0}/task/{0}/children", agent));
  for (pid_t pid = 0; in >> pid;) {
    std::ifstream name(fmt::format("/proc/{}/comm", pid));
    std::string text;
    if (std::getline(name, text) && text == "toy_worker") pids.push_back(pid);
  }
  return pids;
}

// One job with deaths after random commits. Returns how many there were.
int disturb(JobRunner& job, std::mt19937& random, bool resume) {
  std::vector<std::string> words{"run", "pliant.toml", "--json"};
  if (resume) words.emplace_back("--resume");
  const pid_t agent = job.start(words);
  int struck = 0;
  // A resumed run's ledger already holds commits: wait for some more of them.
  int64_t commits = resume ? static_cast<int64_t>(job.ledger("commit").size()) : 0;
  for (int round = 0; round < 4; ++round) {
    commits += 1 + static_cast<int64_t>(random() % 12);
    if (!job.wait_for_commits(agent, commits)) break;
    if (random() % 8 == 0) {
      ::kill(agent, SIGKILL);
      ++struck;
      break;
    }
    const auto workers = workers_of(agent);
    if (workers.empty()) continue;
    ::kill(workers[random() % workers.size()], random() % 5 == 0 ? SIGSTOP : SIGKILL);
    ++struck;
  }
  const Ended ended = job.wait(agent);
  INFO(ended.err);
  CHECK((ended.exit_code == 0 || ended.exit_code == 128 + SIGKILL));
  while (job.processes_left() > 0) {  // the workers of a killed agent; ctest's limit ends a wait that does not end
  }
  return ended.exit_code == 0 ? struck : -struck;
}

}  // namespace

TEST_CASE("whoever is killed or stopped from outside, the weights end bitwise the same and every sample is used once") {
  const std::string config = toy_config(
      "workers = 4\ndeterministic = true\nepochs = 2\nsnapshot_every = 7\nmax_restarts = 99\nhang_timeout_s = 1.5",
      "step_ms = 2");
  JobRunner undisturbed;
  undisturbed.config(config);
  REQUIRE(undisturbed.run({"run", "pliant.toml", "--json", "--workers", "1"}).exit_code == 0);
  const std::string expected = undisturbed.snapshot();
  const int rounds = number_from("PLIANT_CHAOS_ROUNDS", 4);
  const int first = number_from("PLIANT_CHAOS_SEED", 1);
  int struck = 0;
  for (int seed = first; seed < first + rounds; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(static_cast<uint32_t>(seed));
    JobRunner job;
    job.config(config);
    int outcome = disturb(job, random, false);
    struck += std::abs(outcome);
    while (outcome < 0) {
      outcome = disturb(job, random, true);
      struck += std::abs(outcome);
    }
    CHECK(job.snapshot() == expected);
    const Ended nothing_left = job.run({"run", "pliant.toml", "--json", "--resume"});
    INFO(nothing_left.err);
    REQUIRE(nothing_left.exit_code == 0);
    CHECK(nothing_left.summary["samples_used_once"] == 406);
    CHECK(nothing_left.summary["samples_repeated"] == 0);
  }
  CHECK(struck >= rounds);
}
