// Parts of a state that go from rank to rank as workers leave, join, die and stop.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "integration/sharded_jobs.hpp"
#include "integration/sharded_misbehaviour.hpp"

using namespace pliant::test;

namespace {

const std::vector<std::string> kEndless{"run.max_steps=20000", "run.epochs=1000000"};

/// A job that goes on until somebody ends it, or, where a test fails, for some seconds.
std::vector<std::string> endless_job(int64_t workers, const std::vector<std::string>& sets = {}) {
  return sharded_job(workers, joined(kEndless, sets));
}

/// Of run.command: the sample. What replaces the first worker that dies stops itself before it is ready, so that the
/// others do not wait for it.
std::string late_trainer(const JobRunner& job) {
  const std::filesystem::path script = job.folder() / "late.sh";
  std::ofstream(script) << fmt::format(
      "#!/bin/sh\n[ \"$TORCHELASTIC_RESTART_COUNT\" != 1 ] || kill -STOP $$\nexec {}/sharded_trainer\n",
      PLIANT_BIN_DIR);
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  return fmt::format("run.command=[\"{}\"]", script.string());
}

/// Once three ranks have committed a step without it, the replacement of late_trainer runs on; returns its process.
pid_t let_late_one_join(JobRunner& job, pid_t agent) {
  REQUIRE(job.wait_for_commits(agent, 1));
  REQUIRE(JobRunner::wait_until(agent, [&job] {
    const auto generations = job.ledger("generation");
    const auto commits = job.ledger("commit");
    return !generations.empty() && generations.back().at("world_size") == 3 && !commits.empty() &&
           commits.back().at("generation") == generations.back().at("generation");
  }));
  const pid_t late = job.replacement(1);
  REQUIRE(late > 0);
  ::kill(late, SIGCONT);
  return late;
}

/// Blocks until a step is committed in the newest generation, of at least so many.
void wait_for_commit_in(const JobRunner& job, pid_t agent, size_t generations) {
  REQUIRE(JobRunner::wait_until(agent, [&job, generations] {
    const auto all = job.ledger("generation");
    const auto commits = job.ledger("commit");
    return all.size() >= generations && !commits.empty() &&
           commits.back().at("generation") == all.back().at("generation");
  }));
}

/// The state after its last step is that of one worker that made as many steps.
void check_as_one_worker(const JobRunner& job) {
  const std::string state = last_state(job);
  const auto steps = nlohmann::json::parse(state).at("step").get<int64_t>();
  JobRunner other;
  CHECK(state_after(other, sharded_job(1, {"coordinator.use=\"eager\"", "run.epochs=1000000",
                                           fmt::format("run.max_steps={}", steps)})) == state);
}

}  // namespace

TEST_CASE("ranks that leave give what they own to the others: no step is lost, and the bits are as undisturbed") {
  struct Leave {
    std::vector<int> who;
    int64_t moved;  ///< chunks; the last of 4 ranks owns 3 of 9, the others 2
  };
  for (const Leave& leave : {Leave{{0}, 2}, Leave{{2}, 2}, Leave{{3}, 3}, Leave{{1, 3}, 5}}) {
    CAPTURE(leave.moved);
    JobRunner job;
    std::vector<std::string> command = sharded_job(4, {"run.snapshot_every=0"});
    for (const int rank : leave.who) {
      command.insert(command.end(), {"--inject", fmt::format("leave:rank={},step=6", rank)});
    }
    const Ended ended = job.run(command);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(last_line(job.latest() / "digests.jsonl") == undisturbed());
    CHECK(job.ledger("restart").empty());
    REQUIRE(job.ledger("generation").size() == 2);
    CHECK(job.ledger("generation").back().at("world_size") == 4 - leave.who.size());
    CHECK(job.ledger("generation").back().at("next_step") == 7);
    CHECK(ended.summary.at("bytes_moved") == leave.moved * 4096);
    CHECK(has(ended.err, "has left"));
  }
}

TEST_CASE("all arrays of a state move with their chunks, and the bytes are those of the plan") {
  JobRunner job;
  const std::vector<std::string> program{fmt::format("run.command=[\"{}/sharded_worker\"]", PLIANT_TEST_BIN_DIR)};
  JobRunner calm;
  const std::string expected = state_after(calm, sharded_job(1, program));
  const Ended ended = job.run(disturbed(sharded_job(4, program), {"leave:rank=2,step=6"}));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(last_state(job) == expected);
  CHECK(job.ledger("restart").empty());
  CHECK(ended.summary.at("bytes_moved") == 2 * 2 * 4096);  // two chunks of weights, and of momentum
}

TEST_CASE("a rank that leaves as a snapshot is due loses neither") {
  JobRunner job;
  std::vector<std::string> command = sharded_job(4, {"run.snapshot_every=1"});
  command.insert(command.end(), {"--inject", "leave:rank=0,step=6"});
  CHECK(state_after(job, command) == undisturbed());
  CHECK(job.ledger("restart").empty());
}

TEST_CASE("a rank that dies while parts of the state move takes the job back to its newest snapshot") {
  for (const char* const rank : {"0", "2"}) {
    CAPTURE(rank);
    JobRunner job;
    std::vector<std::string> command = sharded_job(4);
    command.insert(command.end(),
                   {"--inject", "leave:rank=1,step=6", "--inject", fmt::format("kill:rank={},step=6,at=copy", rank)});
    CHECK(state_after(job, command) == undisturbed());
    REQUIRE(job.ledger("restart").size() == 1);
    CHECK(job.ledger("restart").front().at("step") == 4);
  }
}

TEST_CASE("a rank whose update broke off is ended by name, and nothing of what it left goes on or into a snapshot") {
  const auto command = [](const std::vector<std::string>& sets) {
    std::vector<std::string> all{fmt::format("run.command=[\"{}/breaking_worker\"]", PLIANT_TEST_BIN_DIR)};
    all.insert(all.end(), sets.begin(), sets.end());
    return sharded_job(2, all);
  };
  JobRunner well;
  const std::string expected = state_after(well, command({}));
  for (const bool leaves : {false, true}) {  // a snapshot is due after the step, or another rank takes its part over
    CAPTURE(leaves);
    JobRunner job;
    std::vector<std::string> broken = command({leaves ? "app.breaks_at=6" : "app.breaks_at=7"});
    if (leaves) broken.insert(broken.end(), {"--inject", "leave:rank=1,step=6"});
    const Ended ended = job.run(broken);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(last_line(job.latest() / "digests.jsonl") == expected);
    CHECK(has(ended.err, "the shards of this rank belong to no step because an update or a move was not completed"));
    REQUIRE(job.ledger("restart").size() == 1);
    CHECK(job.ledger("restart").front().at("step") == 4);
  }
}

TEST_CASE("a worker that comes late gets its share from the others, in place") {
  JobRunner job;
  std::vector<std::string> command = endless_job(4, {late_trainer(job)});
  command.insert(command.end(), {"--inject", "kill:rank=2,step=6"});
  const pid_t agent = job.start(command);
  let_late_one_join(job, agent);
  wait_for_commit_in(job, agent, 3);
  ::kill(agent, SIGINT);
  const Ended ended = job.wait(agent);
  INFO(ended.err);
  CHECK(ended.exit_code == 130);
  const auto generations = job.ledger("generation");
  REQUIRE(generations.size() == 3);
  CHECK(generations[1].at("world_size") == 3);
  CHECK(generations[2].at("world_size") == 4);
  CHECK(generations[2].at("reason") == "a worker joined");
  CHECK(job.ledger("restart").size() == 1);            // for the death, and none for the join
  CHECK(ended.summary.at("bytes_moved") == 2 * 4096);  // of 9 chunks the fourth of 4 owns 2
  check_as_one_worker(job);
}

TEST_CASE("a rank that dies while a late worker gets its share takes the job back to its newest snapshot") {
  for (const bool late_one_dies : {false, true}) {  // it, or one that gives to it
    CAPTURE(late_one_dies);
    JobRunner job;
    REQUIRE(job.run(sharded_job(4, {"run.max_steps=4", "run.epochs=1000000"})).exit_code == 0);
    // From here on there is no snapshot but that of step 4. The late one becomes rank 3.
    std::vector<std::string> command =
        disturbed(endless_job(4, {late_trainer(job), "run.snapshot_every=0"}),
                  {"kill:rank=2,step=7", "stop:rank=0,step=0,at=copy", "stop:rank=3,step=0,at=copy"});
    command.emplace_back("--resume");
    const pid_t agent = job.start(command);
    const pid_t late = let_late_one_join(job, agent);
    const pid_t giver = wait_for_stop(job, agent, 0);
    REQUIRE(JobRunner::wait_until(agent, [late] { return is_stopped(late); }));
    ::kill(late_one_dies ? late : giver, SIGKILL);
    ::kill(late_one_dies ? giver : late, SIGCONT);
    wait_for_commit_in(job, agent, 4);
    ::kill(agent, SIGINT);
    const Ended ended = job.wait(agent);
    INFO(ended.err);
    CHECK(ended.exit_code == 130);
    const auto generations = job.ledger("generation");
    REQUIRE(generations.size() >= 5);
    CHECK(generations[3].at("reason") == "a worker joined");
    CHECK(generations[3].at("next_step") > 4);
    CHECK(generations.back().at("world_size") == 4);
    const auto restarts = job.ledger("restart");
    REQUIRE(restarts.size() == 2);  // for each death
    CHECK(restarts[0].at("step") == 4);
    CHECK(restarts[1].at("step") == 4);
    CHECK(ended.summary.at("restarts") == 2);
    CHECK(ended.summary.at("samples_repeated") == 0);
    CHECK(ended.summary.at("samples_missing") == 0);
    CHECK(job.processes_left() == 0);
    check_as_one_worker(job);
  }
}

TEST_CASE("a sharded job that is stopped keeps all parts of its state, and goes on with another number of workers") {
  JobRunner job;
  std::vector<std::string> command =
      sharded_job(4, {"run.max_steps=100000", "run.epochs=100000", "run.snapshot_every=0"});
  const pid_t pid = job.start(command);
  REQUIRE(job.wait_for_commits(pid, 3));
  ::kill(pid, SIGINT);
  const Ended ended = job.wait(pid);
  INFO(ended.err);
  CHECK(ended.exit_code == 130);
  REQUIRE(job.ledger("snapshot").size() == 1);
  const int64_t step = job.ledger("snapshot").front().at("step");
  CHECK(step >= 3);
  const int64_t more = step + 2;
  std::vector<std::string> again = sharded_job(2, {fmt::format("run.max_steps={}", more), "run.epochs=100000"});
  again.insert(again.end(), {"--resume", job.latest().string()});
  const Ended resumed = job.run(again);
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(resumed.summary.at("resumed_from") == step);
  JobRunner calm;
  CHECK(last_state(job) ==
        state_after(calm, sharded_job(1, {fmt::format("run.max_steps={}", more), "run.epochs=100000"})));
}
