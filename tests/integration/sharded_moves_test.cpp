// Parts of a state that go from rank to rank as workers leave, join, die and stop.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "integration/sharded_jobs.hpp"

using namespace pliant::test;

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
  // Whoever replaces another takes longer than the others are willing to wait.
  const std::filesystem::path slow = job.folder() / "slow.sh";
  std::ofstream(slow) << "#!/bin/sh\n[ \"$TORCHELASTIC_RESTART_COUNT\" = 0 ] || sleep 7\nexec sharded_trainer\n";
  std::filesystem::permissions(slow, std::filesystem::perms::owner_all);
  std::vector<std::string> command = sharded_job(
      4, {"run.max_steps=1000000", "run.epochs=1000000", fmt::format("run.command=[\"{}\"]", slow.string())});
  command.insert(command.end(), {"--inject", "kill:rank=2,step=6"});
  ::setenv("PATH", (std::string(PLIANT_BIN_DIR) + ":" + ::getenv("PATH")).c_str(), 1);
  const pid_t pid = job.start(command);
  REQUIRE(job.wait_for_commits(pid, 3));
  REQUIRE(JobRunner::wait_until(pid, [&job] {
    const auto generations = job.ledger("generation");
    const auto commits = job.ledger("commit");
    return generations.size() > 2 && !commits.empty() &&
           commits.back().at("generation") == generations.back().at("generation");
  }));
  ::kill(pid, SIGINT);
  const Ended ended = job.wait(pid);
  INFO(ended.err);
  CHECK(ended.exit_code == 130);
  const auto generations = job.ledger("generation");
  REQUIRE(generations.size() == 3);
  CHECK(generations[1].at("world_size") == 3);
  CHECK(generations[2].at("world_size") == 4);
  CHECK(generations[2].at("reason") == "a worker joined");
  CHECK(job.ledger("restart").size() == 1);            // for the death, and none for the join
  CHECK(ended.summary.at("bytes_moved") == 2 * 4096);  // of 9 chunks the fourth of 4 owns 2
  const std::string state = last_line(job.latest() / "digests.jsonl");
  const int64_t steps = nlohmann::json::parse(state).at("step").get<int64_t>();  // it is that after the last step
  JobRunner other;
  CHECK(state_after(other, sharded_job(1, {"coordinator.use=\"eager\"", "run.epochs=1000000",
                                           fmt::format("run.max_steps={}", steps)})) == state);
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
