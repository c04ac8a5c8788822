// Sharded jobs whose ranks die, stop or misbehave wherever others need them, and whose snapshots are damaged: they end
// with the bits of a job that nothing happened to, or say what is wrong and lose nothing.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "integration/sharded_misbehaviour.hpp"
#include "sharded/files/safetensors.hpp"

using namespace pliant::test;
namespace fs = std::filesystem;

namespace {

/// As kTight, with [app] flags: what is external stays whole, and its gradient until the pass ends; beside both lie a
/// layer, its gradient and what arrives for it, more of three ranks than of two.
std::vector<std::string> tight_flags(int64_t workers) {
  return {"coordinator.use=\"planned\"", fmt::format("coordinator.budget={}", workers > 2 ? 71936 : 65536)};
}

/// Kills a rank there, and says to which step the job must go back.
struct Death {
  std::string where;  ///< "rank=2,step=6,at=gather"
  int64_t back_to = 0;
};

void check_death(const Death& death, const std::vector<std::string>& sets = {}) {
  CAPTURE(death.where);
  JobRunner job;
  check_undisturbed(job, job.run(disturbed(sharded_job(4, sets), {"kill:" + death.where})));
  REQUIRE(job.ledger("restart").size() == 1);
  CHECK(job.ledger("restart").front().at("step") == death.back_to);
}

/// One rank fails at one of these allocations of its process, in the first or second pass, and goes on.
void check_shortages(const std::vector<std::string>& sets, const std::vector<int>& allocations) {
  int broken = 0;
  int of_additions = 0;
  CAPTURE(sets.front());
  for (const int allocation : allocations) {
    CAPTURE(allocation);
    JobRunner job;
    std::vector<std::string> command = job_that(
        "run_short", "", 2,
        joined(sets, {"accelerator.use=\"sim\"", fmt::format("accelerator.sim.fail_alloc_at=[{}]", allocation)}));
    command.insert(command.end(), {"--plugin-dir", PLIANT_TESTKIT_PLUGIN_DIR, "--show-logs"});
    const Ended ended = job.run(command);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    broken +=
        has(ended.err, "rank 1 (worker 1) reported a failure: ") ? 1 : 0;  // or had what was on its way added first
    of_additions += has(ended.err, "of 20480 bytes") ? 1 : 0;  // a sum of all that it owns, made as the first is added
    CHECK(last_state(job) == well_behaved());
    CHECK(ended.summary.at("restarts") == 0);
    CHECK(job.ledger("restart").empty());
  }
  CHECK(broken > 1);
  CHECK(of_additions > 0);
}

}  // namespace

TEST_CASE("a rank that dies as it gathers or sends gradients takes the job back, to the same bits") {
  for (const std::vector<std::string>& sets : {std::vector<std::string>{"coordinator.use=\"eager\""},
                                               std::vector<std::string>{"coordinator.use=\"zero3\""}, kTightSample}) {
    CAPTURE(sets.front());
    check_death({"rank=2,step=6,at=gather", 4}, sets);
    check_death({"rank=2,step=6,at=scatter", 4}, sets);
  }
}

TEST_CASE("a rank that dies as it writes its part of a snapshot, or finishes one, leaves the one before") {
  for (const Death& death : std::vector<Death>{{"rank=1,step=8,at=snapshot", 4},
                                               {"rank=0,step=8,at=finish", 4},
                                               {"rank=3,step=14,at=snapshot", 12},
                                               {"rank=0,step=14,at=finish", 12}}) {
    check_death(death, kTightSample);
  }
}

TEST_CASE("a rank that is stopped wherever others need it, and continued, costs no step") {
  for (const char* const where : {"rank=2,step=6,at=gather", "rank=2,step=6,at=scatter", "rank=2,step=8,at=snapshot",
                                  "rank=0,step=8,at=finish", "rank=0,step=6,at=copy"}) {
    CAPTURE(where);
    JobRunner job;
    std::vector<std::string> injections{std::string("stop:") + where};
    if (has(where, "copy")) injections.emplace_back("leave:rank=1,step=6");
    const pid_t agent = job.start(disturbed(sharded_job(4, kTightSample), injections));
    ::kill(wait_for_stop(job, agent, has(where, "rank=0") ? 0 : 2), SIGCONT);
    check_undisturbed(job, job.wait(agent));
    CHECK(job.ledger("restart").empty());
  }
}

TEST_CASE("a rank that stays stopped is continued once, for its share of the state, and killed after that") {
  struct History {
    std::vector<std::string> injections;
    const char* said;
    bool is_killed = false;
  };
  const std::vector<History> histories{
      {{"stop:rank=1,step=6,at=gather"}, "would be lost with it"},
      {{"stop:rank=1,step=14,at=snapshot"}, "would be lost with it"},
      {{"stop:rank=1,step=6,at=gather", "stop:rank=1,step=6,at=scatter"}, "rank 1 (worker 1) made no progress", true}};
  std::vector<JobRunner> jobs(histories.size());
  std::vector<pid_t> agents;
  for (size_t i = 0; i < jobs.size(); ++i) {  // side by side: they wait most of the time
    agents.push_back(jobs[i].start(
        disturbed(sharded_job(2, {"run.hang_timeout_s=1", "run.max_restarts=9"}), histories[i].injections)));
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    CAPTURE(histories[i].injections.back());
    const Ended ended = jobs[i].wait(agents[i]);
    check_undisturbed(jobs[i], ended);
    INFO(ended.err);
    CHECK(has(ended.err, histories[i].said));
    const auto restarts = jobs[i].ledger("restart");
    REQUIRE(restarts.size() >= (histories[i].is_killed ? 1U : 0U));
    if (histories[i].is_killed) CHECK(restarts.front().at("step") == 4);
  }
}

TEST_CASE("a point of sharded jobs is refused where the config has no coordinator") {
  JobRunner job;
  job.config(toy_config("workers = 2"));
  const Ended ended = job.run_json({"--inject", "kill:rank=1,step=3,at=gather"});
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "at=gather exists in sharded jobs only"));
}

TEST_CASE("a program that dies or throws in the middle of a pass is replaced, and the bits are the same") {
  struct Fault {
    const char* how;
    const char* place;
    std::vector<std::string> sets;
  };
  for (const Fault& fault :
       {Fault{"kill", "entered", kTight}, Fault{"kill", "released", kRoomy}, Fault{"kill", "backward", kTight},
        Fault{"kill", "passed", kZero3}, Fault{"throw", "backward", kTight}}) {
    INFO(std::string(fault.how) << " at " << fault.place);
    JobRunner job;
    const Ended ended = job.run(job_that(fault.how, fault.place, 4, fault.sets));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(last_state(job) == well_behaved());
    CHECK(ended.summary.at("restarts") == 1);
    CHECK(job.ledger("restart").front().at("step") == 4);
    CHECK(has(ended.err, "the program ran out of ideas") == (std::string(fault.how) == "throw"));
  }
}

TEST_CASE("a program that dies as its order of visits is dropped, or in an evaluation, is replaced to the same bits") {
  const std::vector<std::string> habits{"app.drops_trace=true", "app.evaluates=true"};
  for (const char* const place : {"dropped", "evaluating"}) {
    for (const std::vector<std::string>& sets : {kTight, kZero3}) {
      CAPTURE(place);
      CAPTURE(sets.front());
      JobRunner job;
      const Ended ended = job.run(job_that("kill", place, 4, joined(habits, sets)));
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      CHECK(last_state(job) == well_behaved());
      CHECK(ended.summary.at("restarts") == 1);
      CHECK(job.ledger("restart").front().at("step") == 4);
    }
  }
}

TEST_CASE(
    "a program that is stopped once a parameter is whole, was released or in backward, as an order is dropped or "
    "between steps, and continued, costs nothing") {
  const std::vector<std::string> habits{"app.drops_trace=true", "app.evaluates=true"};
  for (const char* const place : {"entered", "released", "backward", "dropped", "evaluating"}) {
    CAPTURE(place);
    JobRunner job;
    const std::vector<std::string>& sets = has(place, "released") ? kRoomy : kTight;  // which releases at once
    const pid_t agent = job.start(job_that("stop", place, 4, joined(habits, sets)));
    ::kill(wait_for_stop(job, agent, 1), SIGCONT);
    const Ended ended = job.wait(agent);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(last_state(job) == well_behaved());
    CHECK(ended.summary.at("restarts") == 0);
    CHECK(job.ledger("restart").empty());
  }
}

TEST_CASE("a model of one element, and one of none, trains, is kept and goes on from its snapshot at any size") {
  for (const char* const width : {"1", "0"}) {
    const std::vector<std::string> small{fmt::format("app.width={}", width), "app.layers=1"};
    JobRunner alone;
    const std::string expected =
        state_after(alone, job_that("", "", 1, joined(small, {"coordinator.use=\"eager\"", "coordinator.budget=0"})));
    for (const std::vector<std::string>& sets :
         {joined(small, joined(kZero3, {"coordinator.zero3.strict=true"})), joined(small, kRoomy),
          joined(small, {"coordinator.budget=768"})}) {  // its value, its gradient and what arrives for it
      CAPTURE(width);
      CAPTURE(sets.back());
      JobRunner job;
      const Ended ended = job.run(job_that("kill", "passed", 4, sets));
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      CHECK(last_state(job) == expected);
      CHECK(ended.summary.at("restarts") == 1);
      CHECK(job.ledger("restart").empty());  // it owned nothing
      CHECK(ended.summary.at("samples_missing") == 0);
      CHECK(ended.summary.at("samples_repeated") == 0);
      CHECK(job.ledger("snapshot").back().at("step") == kShardedSteps);
      std::vector<std::string> words =
          job_that("", "", 2, joined(sets, {fmt::format("run.max_steps={}", kShardedSteps + 2)}));
      words.emplace_back("--resume");
      const Ended resumed = job.run(words);
      INFO(resumed.err);
      CHECK(resumed.exit_code == 0);
      CHECK(resumed.summary.at("resumed_from") == kShardedSteps);
    }
  }
}

TEST_CASE("of four ranks of a model of one element the one that owns it takes it along, and no other does") {
  for (const int rank : {0, 3}) {
    CAPTURE(rank);
    JobRunner job;
    const Ended ended = job.run(job_that(
        "kill", "passed", 4,
        {"app.width=1", "app.layers=1", "coordinator.budget=768", fmt::format("app.misbehave_rank={}", rank)}));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(ended.summary.at("restarts") == 1);
    CHECK(job.ledger("restart").size() == (rank == 3 ? 1U : 0U));
    CHECK(ended.summary.at("samples_missing") == 0);
  }
}

TEST_CASE("leaves, persistent parameters and ones used unannounced have the same bits, whoever trains with whatever") {
  std::string expected;
  for (const int64_t workers : {1, 3}) {
    for (const std::vector<std::string>& sets :
         {std::vector<std::string>{"coordinator.use=\"eager\"", "coordinator.budget=0"}, kZero3,
          joined(kZero3, {"coordinator.zero3.strict=true"}), kRoomy, tight_flags(workers)}) {
      CAPTURE(workers);
      CAPTURE(sets.front());
      CAPTURE(sets.back());
      JobRunner job;
      const std::string state = state_after(job, job_that("", "", workers, joined(sets, {"app.flags=true"})));
      if (expected.empty()) expected = state;
      CHECK(state == expected);
    }
  }
  CHECK(expected != well_behaved());
}

TEST_CASE("a program that catches what it threw in its passes goes on: all make the step again, and lose nothing") {
  for (const char* const place : {"entered", "backward", "passed"}) {
    CAPTURE(place);
    JobRunner job;
    const Ended ended = job.run(job_that("catch", place, 4, has(place, "passed") ? kZero3 : kTight));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(has(ended.err, "reported a failure: the program ran out of ideas"));
    CHECK(ended.summary.at("restarts") == 0);
    CHECK(last_state(job) == well_behaved());
    CHECK(job.ledger("restart").empty());
  }
}

TEST_CASE(
    "a rank that has no memory somewhere in a pass, and goes on, has all make the step again, and no bit is lost") {
  check_shortages({"coordinator.use=\"eager\"", "coordinator.budget=0"}, {9, 10, 11, 12, 13, 14, 27, 28, 29, 30, 31});
}

TEST_CASE("a rank that has no memory in a pass makes the step again with all, also under zero3 and within a budget") {
  check_shortages(kZero3, {7, 11, 13, 14, 18, 19, 26, 29});
  check_shortages(kTight, {7, 8, 9, 12, 16, 19});
}

TEST_CASE("what is not finite in a sharded job is named with its rows, each once, and not committed") {
  struct Kind {
    const char* how;
    const char* rank;
    const char* named;
    std::vector<std::string> sets;
  };
  for (const Kind& kind : {Kind{"nan", "1", " on rank 1", kTight}, Kind{"nan_gradient", "1", " on rank 1", kRoomy},
                           Kind{"nan_loss", "1", " on rank 1", kZero3}, Kind{"nan", "-1", " on rank 0; row", kTight}}) {
    const bool deterministic = kind.how != std::string("nan_loss");
    CAPTURE(kind.how);
    JobRunner job;
    const Ended ended = job.run(job_that(kind.how, "", 2,
                                         joined(kind.sets, {fmt::format("run.deterministic={}", deterministic),
                                                            fmt::format("app.misbehave_rank={}", kind.rank)})));
    INFO(ended.err);
    CHECK(ended.exit_code == 1);
    const std::string reason = ended.summary.at("reason");
    CHECK(has(reason, "step 6 is not committed: the gradient or the loss of row"));
    CHECK(has(reason, kind.named));
    CHECK(has(reason, deterministic
                          ? "rows 2..3, rows 6..7, rows 10..11, rows 14..15, rows 18..19, rows 22..23 on rank 1"
                          : "rows 12..23 on rank 1"));
    CHECK(job.ledger("commit").size() == 6);
    CHECK(fs::exists(job.latest() / ended.summary.at("snapshot").get<std::string>()));
    CHECK(has(ended.summary.at("snapshot").get<std::string>(), "step-00000006"));
  }
}

TEST_CASE("a step of a sharded job that is not finite is skipped, or taken as it is, where the config says so") {
  const std::string skip = "run.on_nonfinite=\"skip\"";
  std::string state;
  for (const int workers : {1, 2, 4}) {
    CAPTURE(workers);
    JobRunner job;
    const Ended ended = job.run(disturbed(job_that("nan_loss", "", workers, {skip, "app.misbehave_rank=-1"}),
                                          {workers == 4 ? "leave:rank=2,step=6" : "kill:rank=0,step=9"}));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(ended.summary.at("steps_skipped") == 1);
    CHECK(has(ended.err, "its update is skipped, its samples count as used"));
    const auto commits = job.ledger("commit");
    CHECK(commits.at(6).contains("skipped"));
    CHECK(job.parts_of_state(6) == job.parts_of_state(7));
    CHECK(job.parts_of_state(7) != job.parts_of_state(8));
    if (state.empty()) state = last_state(job);
    CHECK(last_state(job) == state);
  }
  JobRunner ignores;
  const Ended ended = ignores.run(job_that("nan_loss", "", 2, {"run.on_nonfinite=\"ignore\""}));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary.at("steps_skipped") == 0);
  CHECK(last_state(ignores) == well_behaved());  // the loss is a number for people
}

TEST_CASE("a rank that commits and does not update, or whose shard changes by itself, is ended by what it did") {
  struct Kind {
    const char* how;
    const char* said;
  };
  for (const Kind kind : {Kind{"skip_update", "step 6 was committed but this rank has not applied it"},
                          Kind{"flip", "of weights of this rank has changed since step 6 began"},
                          Kind{"flip_after_update", "of weights of this rank has changed since step 7 began"}}) {
    for (const int workers : {1, 2}) {
      CAPTURE(kind.how);
      CAPTURE(workers);
      JobRunner job;
      std::vector<std::string> command = job_that(kind.how, "", workers, workers == 1 ? kZero3 : kTight);
      command.emplace_back("--show-logs");
      const Ended ended = job.run(command);
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      CHECK(has(ended.err, kind.said));
      CHECK(job.ledger("restart").size() == 1);
      CHECK(last_state(job) == well_behaved());
    }
  }
}

TEST_CASE("what was read on all ranks and written on some takes the job back, to the same bits") {
  const std::string averages = "app.averages=true";
  JobRunner well;
  const std::string expected = state_after(well, job_that("", "", 1, {averages}));
  CHECK(expected != well_behaved());
  JobRunner job;
  const Ended ended = job.run(job_that("break_write", "", 4, {averages}));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(last_state(job) == expected);
  CHECK(ended.summary.at("restarts") == 0);
  REQUIRE(job.ledger("restart").size() == 1);
  CHECK(job.ledger("restart").front().at("step") == 4);
  CHECK(has(ended.err, "holds an incomplete part of a state"));
  JobRunner again;  // and it does so whenever it comes there, until it is another process
  const Ended twice = again.run(job_that("break_writes", "", 4, {averages}));
  INFO(twice.err);
  REQUIRE(twice.exit_code == 0);
  CHECK(has(twice.err, "gave up twice between the commit of step 6 and the next step, and was killed"));
  CHECK(twice.summary.at("restarts") == 1);
  CHECK(last_state(again) == expected);
}

TEST_CASE("what is given up between the last commit and its update is made again, by another process") {
  for (const std::string snapshots : {"run.snapshot_every=4", "run.snapshot_every=0"}) {  // without: from the beginning
    CAPTURE(snapshots);
    const std::vector<std::string> sets{"app.averages=true", "run.max_steps=7", snapshots};
    JobRunner well;
    const std::string expected = state_after(well, job_that("", "", 1, sets));
    JobRunner job;
    const Ended ended = job.run(job_that("break_write", "", 4, sets));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(has(ended.err, "gave up between the commit of step 6, the last, and its update, and was killed"));
    CHECK(ended.summary.at("restarts") == 1);
    CHECK(last_state(job) == expected);
  }
}

TEST_CASE("an evaluation between a commit and its update leaves training its bits, whatever stays whole") {
  for (const char* const flags : {"app.flags=false", "app.flags=true"}) {
    JobRunner plain;
    const std::string expected =
        state_after(plain, job_that("", "", 1, {"coordinator.use=\"eager\"", "coordinator.budget=0", flags}));
    for (const std::vector<std::string>& sets :
         {std::vector<std::string>{"coordinator.use=\"eager\"", "coordinator.budget=0"}, kZero3, kRoomy,
          tight_flags(2)}) {
      CAPTURE(flags);
      CAPTURE(sets.front());
      CAPTURE(sets.back());
      JobRunner job;
      CHECK(state_after(job, job_that("", "", 2, joined(sets, {flags, "app.looks_first=true"}))) == expected);
    }
  }
}

TEST_CASE("a death in an evaluation between a commit and its update costs one rank, and no bit") {
  for (const std::vector<std::string>& sets : {kTight, kZero3}) {
    CAPTURE(sets.front());
    JobRunner job;
    const Ended ended = job.run(job_that("kill", "evaluating", 4, joined(sets, {"app.looks_first=true"})));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(ended.summary.at("restarts") == 1);
    CHECK(job.ledger("restart").size() == 1);
    CHECK(ended.summary.at("samples_missing") == 0);
    CHECK(last_state(job) == well_behaved());
  }
  const std::vector<std::string> is_last{"run.max_steps=7", "app.looks_first=true"};
  JobRunner well;
  const std::string expected = state_after(well, job_that("", "", 1, is_last));
  JobRunner job;
  const Ended ended = job.run(job_that("kill", "evaluating", 4, is_last));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary.at("restarts") == 1);
  CHECK(last_state(job) == expected);
}

TEST_CASE("a rank that does other things than the others is named at once, and the step is not committed") {
  for (const Parted& parted : ways_to_part()) {
    CAPTURE(parted.how);
    for (const char* const coordinator : {"coordinator.use=\"planned\"", "coordinator.use=\"eager\""}) {
      CAPTURE(coordinator);
      check_parted(parted, {coordinator});
    }
  }
}

TEST_CASE("no step of ranks that differ is committed where their pages of visits cannot be written") {
  check_parted({"leave_root_first", "rank 2 and ranks 0, 1, 3 visited different modules; the modules are unknown"},
               {"app.hides_pages=true", "coordinator.use=\"eager\"", "coordinator.budget=0"});
}

TEST_CASE("a rank that does other things than the others after the last commit is named at once, and no step is lost") {
  struct Way {
    const char* how;
    std::vector<std::string> sets;
    const char* named;
    int64_t kept;  ///< the last snapshot; what was read to be written by it is of no step
  };
  const std::vector<std::string> few{"run.snapshot_every=4"};
  const std::vector<std::string> none{"run.snapshot_every=0"};
  for (const Way& way :
       {Way{"evaluate_after", few, "rank 2 began an evaluation, ranks 0, 1, 3 ended the step after ", 7},
        Way{"evaluate_after", none, "rank 2 began an evaluation, ranks 0, 1, 3 ended the step after ", 7},
        Way{"average_less", joined(few, {"app.averages=true"}), "rank 2 ended the step after ", 4}}) {
    CAPTURE(way.how);
    CAPTURE(way.sets.front());
    JobRunner job;
    const Ended ended = job.run(job_that(way.how, "", 4,
                                         joined(way.sets, {"app.misbehave_rank=2", "app.misbehave_step=6",
                                                           "run.max_steps=7", "run.hang_timeout_s=100000"})));
    INFO(ended.err);
    CHECK(ended.exit_code == 1);
    const std::string reason = ended.summary.at("reason");
    CHECK(has(reason, "after step 6, which is committed: "));
    CHECK(has(reason, way.named));
    CHECK(ended.summary.at("steps") == 7);
    CHECK(ended.summary.at("restarts") == 0);
    REQUIRE_FALSE(job.ledger("snapshot").empty());
    CHECK(job.ledger("snapshot").back().at("step") == way.kept);
    CHECK(job.processes_left() == 0);
  }
}

TEST_CASE(
    "a program that catches what it threw in an evaluation after the last commit ends its job, with all it trained") {
  const std::vector<std::string> is_last{"run.max_steps=7", "app.evaluates=true", "run.hang_timeout_s=100000"};
  JobRunner well;
  const std::string expected = state_after(well, job_that("", "", 1, is_last));
  JobRunner job;
  const Ended ended = job.run(job_that("catch", "evaluating", 4, is_last));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(has(ended.err, "reported a failure after the last commit: the program ran out of ideas"));
  CHECK(ended.summary.at("restarts") == 0);
  CHECK(last_state(job) == expected);
}

TEST_CASE("pages of visits that a killed agent has left are removed as its run goes on") {
  JobRunner job;
  leave_half(job);
  write_all(job.latest() / "logs/.visits-77", "of a worker that is gone");
  check_undisturbed(job, resume(job));
  for (const auto& entry : fs::directory_iterator(job.latest() / "logs"))
    CHECK_FALSE(entry.path().filename().string().starts_with(".visits-"));
}

TEST_CASE("sharded runs are audited against each other, up to what their last step left") {
  JobRunner job;
  const Ended ended = job.run(sharded_job(2));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  JobRunner other;
  REQUIRE(other.run(sharded_job(3, {"coordinator.use=\"eager\""})).exit_code == 0);
  JobRunner shorter;
  REQUIRE(shorter.run(sharded_job(2, {"lr.base_lr=0.002"})).exit_code == 0);
  const Ended same = job.run({"audit", job.latest().string(), "--against", other.latest().string()});
  INFO(same.out << same.err);
  CHECK(same.exit_code == 0);
  CHECK(job.ledger("snapshot").back().contains("state"));
  const Ended differs = job.run({"audit", job.latest().string(), "--against", shorter.latest().string()});
  INFO(differs.out << differs.err);
  CHECK(differs.exit_code == 1);
}

TEST_CASE("weights that are imported after the start are refused, and a job that begins anew has its own") {
  namespace sharded = pliant::sharded;
  JobRunner job;
  const fs::path file = job.folder() / "other.safetensors";
  sharded::SafetensorsHeader header;
  header.tensors.push_back({"frozen", pliant::DType::kF32, {7}});
  for (int i = 0; i < 3; ++i) {
    header.tensors.push_back({fmt::format("layer.{}.weights", i), pliant::DType::kF32, {3000}});
  }
  const std::vector<float> zeros(7 + 3 * 3000);
  REQUIRE(sharded::write_safetensors(file, header, false, [&](sharded::SafetensorsSink& sink) {
            return sink.write(zeros.data(), zeros.size() * sizeof(float));
          }).has_value());
  const std::vector<std::string> sets{fmt::format("app.other_weights=\"{}\"", file.string()), "run.snapshot_every=0"};
  std::vector<std::string> command = disturbed(job_that("late_import", "", 2, sets), {"kill:rank=0,step=8"});
  command.emplace_back("--show-logs");
  const Ended ended = job.run(command);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(has(ended.err, "sharded_worker: refused: import_safetensors of " + file.string() +
                           " was called too late: import before Session::start"));
  CHECK(job.ledger("restart").front().at("step") == 0);
  CHECK(last_state(job) == well_behaved());
}

TEST_CASE("ranks of other models are named before the first step, and so is a second model in one session") {
  JobRunner job;
  const Ended apart = job.run(job_that("other_model", "", 2));
  INFO(apart.err);
  CHECK(apart.exit_code == 2);
  CHECK(has(apart.err, "the workers do not agree on the job and there is no majority (worker 0: a model of digest "));
  CHECK(has(apart.err, ", worker 1: a model of digest "));
  CHECK_FALSE(fs::exists(job.latest() / "dataset.bin"));
  CHECK(job.processes_left() == 0);
  JobRunner other;
  const Ended ended = other.run(job_that("two_models", "", 1));
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "this session has a sharded model already"));
}

TEST_CASE("of four ranks the one with another model or other options is named at the start") {
  struct Odd {
    const char* how;
    const char* said;
  };
  for (const Odd& odd : {Odd{"other_state", "worker 2 has another model than the other workers (a model of digest "},
                         Odd{"", "worker 2 has other options than the other workers (options of digest "}}) {
    CAPTURE(odd.how);
    const bool is_of_options = *odd.how == '\0';
    const Environment options(std::map<std::string, std::string>{{"TEST_OTHER_BUDGET", is_of_options ? "2 0" : ""}});
    JobRunner job;
    const Ended ended = job.run(job_that(odd.how, "", 4, {"app.misbehave_rank=2", "coordinator.budget=1000000"}));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    const size_t said = ended.err.find(odd.said);
    REQUIRE(said != std::string::npos);
    CHECK(said < ended.err.find("step 1/"));
    CHECK_FALSE(has(ended.err, "no majority"));
    for (const int worker : {0, 1, 3}) CHECK_FALSE(has(ended.err, fmt::format("worker {} has ", worker)));
    CHECK(ended.summary.at("restarts") == 1);  // it is replaced, by one that is as the others are
    CHECK(job.ledger("restart").empty());
    CHECK(last_state(job) == well_behaved());
    CHECK(job.processes_left() == 0);
  }
}

TEST_CASE("a rank with other options is named: of two at the start the job ends, later it is replaced") {
  struct Case {
    const char* who;  ///< rank and incarnation
    const char* injection;
    int exit_code;
    const char* said;
  };
  for (const Case& one : {Case{"1 0", "", 2, "there is no majority (worker 0: options of digest "},
                          Case{"1 1", "kill:rank=1,step=6", 0, "has other options than the other workers"}}) {
    CAPTURE(one.who);
    const Environment options(std::map<std::string, std::string>{{"TEST_OTHER_BUDGET", one.who}});
    JobRunner job;
    std::vector<std::string> command = job_that("", "", 2, {"coordinator.budget=1000000"});
    if (*one.injection != '\0') command = disturbed(command, {one.injection});
    const Ended ended = job.run(command);
    INFO(ended.err);
    CHECK(ended.exit_code == one.exit_code);
    CHECK(has(ended.err, one.said));
    CHECK(job.processes_left() == 0);
  }
}

TEST_CASE(
    "a budget that does not suffice in the first pass ends the job in the words of the workers, without a restart") {
  // No room for a layer beside its gradient; or for both beside what the root has.
  for (const auto& sets :
       {std::vector<std::string>{"coordinator.use=\"eager\"", "coordinator.budget=14000"},
        std::vector<std::string>{"coordinator.budget=14000"}, std::vector<std::string>{"coordinator.budget=24064"}}) {
    CAPTURE(sets.front());
    CAPTURE(sets.back());
    JobRunner job;
    const Ended ended = job.run(job_that("", "", 2, sets));
    INFO(ended.err);
    CHECK(ended.exit_code == 2);
    CHECK(has(ended.summary.at("reason"), "exited with code 2: "));
    CHECK(has(ended.summary.at("reason"), "[coordinator] budget"));
    CHECK(has(ended.summary.at("reason"), "is too small"));
    CHECK(ended.summary.at("restarts") == 0);
    CHECK(job.processes_left() == 0);
  }
}

TEST_CASE("a damaged snapshot of a sharded job is named, and the one before is taken") {
  JobRunner job;
  leave_half(job, kTightSample);
  const fs::path newest = job.latest() / "snapshots/step-00000008.snapshot";
  damage(newest);
  write_all(job.latest() / "snapshots/step-00000009.snapshot.generation-1.draft", "a part is missing");
  const Ended ended = resume(job, kTightSample);
  check_undisturbed(job, ended);
  CHECK(has(ended.err, "step-00000008.snapshot is damaged: its checksum does not match"));
  CHECK(has(ended.err, "restore it from a copy, or remove it to resume from an older snapshot; going back"));
  CHECK(ended.summary.at("resumed_from") == 4);
}

TEST_CASE("what a job that was killed left of a snapshot is in nobody's way once it is resumed") {
  JobRunner job;
  leave_half(job);
  // Of the last step, in a generation of that number, all written and not yet in its place.
  const std::string left = "snapshots/step-00000014.snapshot.generation-1.draft";
  write_all(job.latest() / left, std::string(1 << 20, 'x'));
  const Ended ended = resume(job);
  check_undisturbed(job, ended);
  CHECK(ended.summary.at("resumed_from") == 8);
  CHECK(fs::exists(job.latest() / "snapshots/step-00000014.snapshot"));
}

TEST_CASE(
    "a snapshot that is damaged under a running job ends it in words once it is needed, and nothing older is lost") {
  JobRunner job;
  const pid_t agent = job.start(disturbed(sharded_job(2, kTightSample), {"stop:rank=1,step=10"}));
  const pid_t stopped = wait_for_stop(job, agent, 1);
  damage(job.latest() / "snapshots/step-00000008.snapshot");
  ::kill(stopped, SIGKILL);
  const Ended ended = job.wait(agent);
  INFO(ended.err);
  CHECK(ended.exit_code == 1);
  CHECK(has(ended.summary.at("reason"), "step-00000008.snapshot is damaged: its checksum does not match"));
  CHECK(job.processes_left() == 0);
  const Ended resumed = resume(job, kTightSample);
  check_undisturbed(job, resumed);
  CHECK(resumed.summary.at("resumed_from") == 4);
}

TEST_CASE("a model whose parameters were added in another order goes on from a snapshot, each by its name") {
  JobRunner job;
  const Ended first = job.run(job_that("", "", 3, {"run.max_steps=8"}));
  INFO(first.err);
  REQUIRE(first.exit_code == 0);
  const auto go_on = [&job](const std::vector<std::string>& sets, int64_t workers) {
    std::vector<std::string> words = job_that("", "", workers, sets);
    words.emplace_back("--resume");
    const Ended ended = job.run(words);
    INFO(ended.err);
    CHECK(ended.exit_code == 0);
  };
  go_on({"run.max_steps=11", "app.reversed=true", "coordinator.use=\"eager\"", "coordinator.budget=0"}, 2);
  CHECK(last_state(job) != well_behaved());  // the order of the arrays is another
  go_on({}, 4);
  CHECK(last_state(job) == well_behaved());
  for (const auto& one : {std::pair{"velocity", "it belongs to another model: it lacks velocity of its parameters"},
                          std::pair{"weights", "two arrays of a sharded model have the name weights"},
                          std::pair{"exp avg", "the state \"exp avg\" needs a name of letters"}}) {
    std::vector<std::string> words =
        job_that("", "", 2, {fmt::format("app.state=\"{}\"", one.first), "run.max_steps=16"});
    words.emplace_back("--resume");
    const Ended other = job.run(words);
    INFO(other.err);
    CHECK(other.exit_code != 0);
    CHECK(has(other.err, one.second));
  }
}

TEST_CASE("a snapshot of another model or run is refused by its name, and the right model goes on from it") {
  JobRunner job;
  leave_half(job);
  const fs::path newest = job.latest() / "snapshots/step-00000008.snapshot";
  const std::string own = read_all(newest);
  struct Other {
    std::vector<std::string> sets;
    const char* said;
  };
  for (const Other& other :
       {Other{{"app.width=2000"}, "its layer.0.weights is f32[3000] instead of f32[2000], its layer.1.weights is "},
        Other{{"app.layers=4"}, "it lacks layer.3.weights; "},
        Other{{"app.layers=2"}, "its layer.2.weights does not exist in this model; "}}) {
    const std::string config = read_all(job.latest() / "config.toml");
    const Ended ended = resume(job, other.sets);
    INFO(ended.err);
    CHECK(ended.exit_code == 2);
    CHECK(ended.summary.at("restarts") == 0);
    CHECK(ended.summary.at("generations") == 1);
    const size_t said = ended.err.find("step-00000008.snapshot: it belongs to another model: ");
    CHECK(said != std::string::npos);
    CHECK(ended.err.rfind("it belongs to another model: ") > said);
    CHECK(ended.err.find("it belongs to another model: ", ended.err.find("it belongs to another model: ") + 1) ==
          std::string::npos);
    CHECK(read_all(job.latest() / "config.toml") == config);
    CHECK(has(ended.err, other.said));
    CHECK(has(ended.err, "build the model that wrote it, or start a new run"));
    CHECK(read_all(newest) == own);
  }
  JobRunner again;
  leave_half(again);
  const Ended refused = resume(again, {"app.width=1"});
  INFO(refused.err);
  REQUIRE(refused.exit_code == 2);
  check_undisturbed(again, again.paste("`" + refused.summary.at("resume").get<std::string>() + "`"));
  JobRunner stranger;
  leave_half(stranger);
  write_all(newest, read_all(stranger.latest() / "snapshots/step-00000008.snapshot"));
  const Ended ended = resume(job);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "step-00000008.snapshot is that of run "));
  write_all(newest, own);
  check_undisturbed(job, resume(job, {"coordinator.use=\"eager\"", "run.workers=2"}));
}

TEST_CASE("a sharded job refuses to resume with another learning-rate rule, or a balancer that does not deal in turn") {
  JobRunner job;
  leave_half(job);
  const std::string config = read_all(job.latest() / "config.toml");
  const Ended rule = resume(job, {"lr.use=\"linear\""});
  INFO(rule.err);
  CHECK(rule.exit_code == 2);
  CHECK(has(rule.err, "the saved learning-rate state belongs to rule 'sqrt', but [lr] uses 'linear'"));
  const Ended balancer = resume(job, {"balancer.use=\"lpt\""});
  INFO(balancer.err);
  CHECK(balancer.exit_code == 2);
  CHECK(has(balancer.err, "[balancer] use = \"lpt\" gives rank "));
  CHECK(read_all(job.latest() / "config.toml") == config);
  check_undisturbed(job, resume(job, {"balancer.use=\"cost_sort\"", "balancer.cost_sort.window=1"}));
}
