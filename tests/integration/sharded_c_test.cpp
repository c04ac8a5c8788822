// A trainer in C whose model is cut over the ranks, over libpliant: it ends with the bits of the one in C++ of the same
// model, whatever happens to its job.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "integration/sharded_jobs.hpp"

using namespace pliant::test;

namespace {

std::vector<std::string> job_of(const char* program, int64_t workers, const std::vector<std::string>& sets = {}) {
  return sharded_job(
      workers, joined({fmt::format("run.command=[\"{}/{}\"]", PLIANT_TEST_BIN_DIR, program), "app.width=500"}, sets));
}

/// What a job leaves: its last snapshot, and each step as it was committed.
struct Left {
  std::string snapshot;
  std::string state;
  std::vector<pliant::elastic::CommitRecord> commits;
};

Left left_by(const std::vector<std::string>& command) {
  JobRunner job;
  const Ended ended = job.run(command);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(job.processes_left() == 0);
  return {job.snapshot(), last_state(job), commits_of(job)};
}

void check_same(const Left& c, const Left& cpp) {
  REQUIRE(!c.snapshot.empty());
  CHECK(c.snapshot == cpp.snapshot);
  CHECK(c.state == cpp.state);
  REQUIRE(c.commits.size() == cpp.commits.size());
  check_commits(c.commits, cpp.commits, true);
}

const Left& of_cpp() {
  static const Left one = left_by(job_of("sharded_worker", 2));
  return one;
}

}  // namespace

TEST_CASE("a sharded model in C has the bits of one in C++, at every number of ranks and with every coordinator") {
  for (const int64_t workers : {1, 2, 3}) {
    CAPTURE(workers);
    check_same(left_by(job_of("sharded_c_worker", workers)), of_cpp());
  }
  check_same(left_by(job_of("sharded_c_worker", 2, {"coordinator.use=\"eager\""})), of_cpp());
}

TEST_CASE("a rank in C with fewer micro-batches than the other repeats its last pass, and no bit changes") {
  const Left alone = left_by(job_of("sharded_worker", 1, kFiveGranules));
  JobRunner job;
  CHECK(state_after(job, job_of("sharded_c_worker", 2, joined(kFiveGranules, {"app.repeats=true"}))) == alone.state);
  CHECK(job.snapshot() == alone.snapshot);
  CHECK(repeated_passes(job) == std::vector<double>(kShardedSteps, 1));
}

TEST_CASE("a sharded trainer in C that loses a rank within its passes goes on with the same bits") {
  for (const char* const point : {"forward", "gather", "reduce", "apply"}) {
    CAPTURE(point);
    JobRunner job;
    const Ended ended =
        job.run(disturbed(job_of("sharded_c_worker", 2), {fmt::format("kill:rank=1,step=6,at={}", point)}));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(ended.summary.at("restarts") == 1);
    CHECK(job.snapshot() == of_cpp().snapshot);
  }
}

TEST_CASE("passes in C that end with a status of the program's own are made again, and no bit changes") {
  JobRunner job;
  std::vector<std::string> command = job_of("sharded_c_worker", 2, {"app.fail_at=5"});
  command.emplace_back("--show-logs");
  const Ended ended = job.run(command);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(has(ended.err, "sharded_c_worker: the program's own work of an attempt ended with status 4"));
  CHECK(job.snapshot() == of_cpp().snapshot);
}

TEST_CASE("first values and an update in C that end with a number that is no status are named, and no bit changes") {
  struct Breaking {
    std::string name;
    const char* words;
    int64_t restarts;
  };
  for (const Breaking& one :
       {Breaking{"initialise", "the program's own initialise of a parameter ended with status -7", 0},
        Breaking{"each", "the program's own update of a shard ended with status 99", 1}}) {
    CAPTURE(one.name);
    JobRunner job;
    const auto once = job.folder() / "once";
    std::vector<std::string> command =
        job_of("sharded_c_worker", 2,
               {fmt::format("app.breaks=\"{}\"", one.name), fmt::format("app.once=\"{}\"", once.string())});
    command.emplace_back("--show-logs");
    const Ended ended = job.run(command);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(has(ended.err, one.words));
    CHECK(ended.summary.at("restarts") == one.restarts);
    CHECK(job.processes_left() == 0);
    CHECK(job.snapshot() == of_cpp().snapshot);
  }
}

TEST_CASE("a pass in C that is left for the next step is given up and made again, and no bit changes") {
  JobRunner job;
  std::vector<std::string> command = job_of("sharded_c_worker", 2, {"app.leave_at=5"});
  command.emplace_back("--show-logs");
  const Ended ended = job.run(command);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(has(ended.err, "Session::next was called within a pass over the sharded model"));
  CHECK(job.snapshot() == of_cpp().snapshot);
}

TEST_CASE("what C reads, writes, evaluates and fetches by hand between steps is what C++ does") {
  const std::vector<std::string> habits{"app.averages=true", "app.evaluates=true"};
  const Left cpp = left_by(job_of("sharded_worker", 2, habits));
  CHECK(cpp.snapshot != of_cpp().snapshot);
  check_same(left_by(job_of("sharded_c_worker", 2, joined(habits, {"app.by_hand=true"}))), cpp);
}

TEST_CASE("calls of a sharded model in C that are wrong, or come at the wrong time, are refused and change no bit") {
  check_same(left_by(job_of("sharded_c_worker", 2, {"app.tries_wrong=true"})), of_cpp());
}

TEST_CASE("weights that C exports are imported by C and C++ alike") {
  const ScratchFolder folder;
  const std::string file = (folder / "model.safetensors").string();
  left_by(job_of("sharded_c_worker", 2, {"app.export_at=3", fmt::format("app.export_to=\"{}\"", file)}));
  REQUIRE(std::filesystem::exists(file));
  const std::vector<std::string> first{fmt::format("app.first_weights=\"{}\"", file)};
  const Left cpp = left_by(job_of("sharded_worker", 1, first));
  CHECK(cpp.snapshot != of_cpp().snapshot);
  check_same(left_by(job_of("sharded_c_worker", 2, first)), cpp);
}
