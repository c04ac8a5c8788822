// Jobs on devices whose ranks come to hold different states there: who differs is named and replaced, and where nobody
// can tell who is right, all are named and the job stops.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "integration/job_machines.hpp"

using namespace pliant::test;

namespace {

constexpr int64_t kWrongStep = 3;  ///< after which a rank has another state
constexpr int64_t kDisputedSteps = 7;
constexpr const char* kWrongs[] = {"flip_bit", "skip_apply"};

std::string disputed_on(const Machine& machine, const std::string& run_keys, const std::string& app_keys) {
  std::string config = config_on(machine, fmt::format("max_steps = {}\n", kDisputedSteps) + run_keys);
  const auto replace = [&config](const std::string& words, const std::string& by) {
    config.replace(config.find(words), words.size(), by);
  };
  replace("\"device_trainer\"", fmt::format("\"{}/device_worker\"", PLIANT_TEST_BIN_DIR));
  replace("[app]\n", "[app]\n" + app_keys);
  return config;
}

/// A job on the CPU whose ranks agree.
struct Undisputed {
  std::string snapshot;
  std::vector<pliant::elastic::CommitRecord> commits;
};
const Undisputed& undisputed() {
  static const Undisputed kUndisputed = [] {
    JobRunner job;
    job.config(disputed_on(host_machine(), "workers = 1\ndeterministic = true", ""));
    const Ended ended = job.run_json();
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    return Undisputed{job.snapshot(), commits_of(job)};
  }();
  return kUndisputed;
}

/// `when`: "began step 4".
std::string named(int rank, const std::string& when) {
  return fmt::format("rank {} (worker {}) {} with another state than the other ranks (", rank, rank, when);
}

/// Of three ranks the one that did `how` after a step is named, alone, and replaced; the others have the right weights.
void check_replaced(const Machine& machine, bool deterministic, const char* how, int rank, int64_t step) {
  INFO(std::string(how) << " on rank " << rank << " after step " << step);
  JobRunner job;
  job.config(disputed_on(machine, "workers = 3" + in_mode(deterministic), misbehaving(how, rank, step)));
  const Ended ended = job.run_json();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  const bool is_last = step + 1 == kDisputedSteps;  // another one saves what it has, and nobody is replaced
  const std::string when = is_last ? "ended" : fmt::format("began step {}", step + 1);
  for (int one = 0; one < 3; ++one) CHECK(has(ended.err, named(one, when)) == (one == rank));
  CHECK(ended.summary["restarts"] == (is_last ? 0 : 1));
  CHECK(ended.summary["steps"] == kDisputedSteps);
  CHECK(ended.summary["samples_repeated"] == 0);
  check_commits(commits_of(job), undisputed().commits, deterministic);
  if (deterministic) CHECK(job.snapshot() == undisputed().snapshot);
  CHECK(job.processes_left() == 0);
}

}  // namespace

TEST_CASE(
    "of three ranks the one in whose device memory a bit flips, or an update is left out, is named and replaced, and "
    "the weights are right") {
  on_every_machine([](const Machine& machine, bool deterministic) {
    int rank = 0;  // another one each time, and rank 0 in both modes
    for (const char* const how : kWrongs) {
      check_replaced(machine, deterministic, how, rank, kWrongStep);
      rank = deterministic ? 1 : 2;
    }
  });
}

TEST_CASE("updates that a device begins late are in what is compared: who leaves one out is named, and nobody else") {
  check_replaced(late_machine(), true, "skip_apply", 2, kWrongStep);
}

TEST_CASE("a bit that flips on a device after the last step is seen, and who differs is named") {
  for (const Machine& machine : machines(3)) {
    const On on(machine);
    INFO(machine.name);
    check_replaced(machine, true, "flip_bit", 1, kDisputedSteps - 1);
  }
}

TEST_CASE("two ranks whose states on devices differ stop the job, both named, and the disputed state is not saved") {
  for (const Machine& machine : machines(2)) {
    const On on(machine);
    for (const char* const how : kWrongs) {
      INFO(machine.name << ", " << std::string(how));
      JobRunner job;
      job.config(disputed_on(machine, "workers = 2", misbehaving(how, 1, kWrongStep)));
      const Ended ended = job.run_json();
      INFO(ended.err);
      CHECK(ended.exit_code == 1);
      const std::string reason = ended.summary["reason"];
      CHECK_MESSAGE(has(reason, fmt::format("step {} is not committed: the ranks began it with different states",
                                            kWrongStep + 1)),
                    reason);
      CHECK(has(reason, "rank 0 (worker 0): "));
      CHECK(has(reason, "rank 1 (worker 1): "));
      CHECK(ended.summary["restarts"] == 0);
      CHECK(ended.summary["steps"] == kWrongStep + 1);
      CHECK(ended.summary["snapshot"].is_null());
      CHECK(job.processes_left() == 0);
    }
  }
}
