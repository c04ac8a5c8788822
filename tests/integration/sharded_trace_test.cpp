// `pliant run --trace`: one file of what all ranks did, whoever dies, and what is said where there can be none.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "integration/sharded_jobs.hpp"
#include "sharded/trace/trace_file.hpp"

using namespace pliant::test;
using namespace pliant::sharded;
using pliant::or_throw;

namespace {

std::vector<std::string> traced(std::vector<std::string> job) {
  job.insert(job.end(), {"--trace", "trace.json"});
  return job;
}

TraceFile trace_of(const JobRunner& job) {
  return or_throw(read_trace(job.folder() / "trace.json"));
}

/// Steps of which a rank has the end.
std::set<int64_t> steps_of(const TracedRank& rank) {
  std::set<int64_t> steps;
  for (const TracedCall& call : rank.calls) {
    if (call.kind == TracedCall::Kind::kEndStep) steps.insert(call.step);
  }
  return steps;
}

/// Nothing of what workers recorded is left in the run directory.
void check_no_records(const JobRunner& job) {
  for (const auto& entry : std::filesystem::directory_iterator(job.latest() / "logs"))
    CHECK_FALSE(entry.path().filename().string().starts_with(".trace-"));
}

}  // namespace

TEST_CASE("a trace has every step of every rank, and the most bytes that the summary says") {
  for (const char* const coordinator : {"planned", "zero3"}) {
    CAPTURE(coordinator);
    JobRunner job;
    const std::vector<std::string> sets =
        joined({fmt::format("coordinator.use=\"{}\"", coordinator)},
               std::string(coordinator) == "planned" ? std::vector<std::string>{"coordinator.budget=65536"}
                                                     : std::vector<std::string>());
    const Ended ended = job.run(traced(sharded_job(4, sets)));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(last_state(job) == undisturbed());  // whoever is watched computes the same
    CHECK(has(ended.err, fmt::format("trace: trace.json, 4 ranks, {} steps, ", kShardedSteps)));
    CHECK(has(ended.err, "open it in ui.perfetto.dev or read it with `pliant trace trace.json`"));
    CHECK(ended.summary.at("trace") == "trace.json");
    check_no_records(job);
    const TraceFile trace = trace_of(job);
    CHECK(trace.run == ended.summary.at("run_id"));
    CHECK(trace.coordinator == coordinator);
    REQUIRE(trace.model.has_value());
    CHECK(trace.model->parameters().size() == 3);
    CHECK(trace.model->modules()[3].external == std::vector<uint32_t>{0});
    std::set<int64_t> committed;
    for (const auto& commit : job.ledger("commit")) committed.insert(commit.at("step").get<int64_t>());
    REQUIRE(trace.ranks.size() == 4);
    uint64_t most = 0;
    double first = 1;
    std::set<int64_t> workers;
    for (size_t i = 0; i < 4; ++i) {
      const TracedRank& rank = trace.ranks[i];
      CHECK(rank.rank == static_cast<int32_t>(i));
      CHECK(rank.world_size == 4);
      CHECK_FALSE(rank.is_cut);
      CHECK(steps_of(rank) == committed);
      workers.insert(rank.worker);
      CHECK_FALSE(rank.transfers.empty());
      REQUIRE_FALSE(rank.calls.empty());
      first = std::min(first, rank.calls.front().began);
      for (const TracedCall& call : rank.calls) most = std::max(most, call.most_bytes);
      REQUIRE(rank.calls.size() == trace.ranks[0].calls.size());
      for (size_t k = 0; k < rank.calls.size(); ++k) {  // all ranks do the same
        CHECK(rank.calls[k].kind == trace.ranks[0].calls[k].kind);
        CHECK(rank.calls[k].module == trace.ranks[0].calls[k].module);
        CHECK(rank.calls[k].step == trace.ranks[0].calls[k].step);
        CHECK(rank.calls[k].actions.size() == trace.ranks[0].calls[k].actions.size());
      }
    }
    CHECK(workers == std::set<int64_t>{0, 1, 2, 3});
    CHECK(most == ended.summary.at("bytes_of_a_rank").at("whole_at_once").get<uint64_t>());
  }
}

TEST_CASE("a rank that is killed is in the trace with what it did until then, and so is who takes its place") {
  JobRunner job;
  const Ended ended = job.run(traced(disturbed(sharded_job(3, kTightSample), {"kill:rank=1,step=6,at=scatter"})));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(last_state(job) == undisturbed());
  CHECK(has(ended.err, "trace: trace.json, 3 ranks, 2 generations, "));
  check_no_records(job);
  const TraceFile trace = trace_of(job);
  REQUIRE(trace.ranks.size() == 6);
  for (size_t i = 1; i < 6; ++i) {
    const TracedRank& before = trace.ranks[i - 1];
    CHECK(std::pair(before.generation, before.rank) < std::pair(trace.ranks[i].generation, trace.ranks[i].rank));
  }
  const TracedRank& killed = trace.ranks[1];
  CHECK(killed.worker == 1);
  CHECK(steps_of(killed) == std::set<int64_t>{0, 1, 2, 3, 4, 5});
  CHECK(killed.calls.back().step == 6);  // it died as it sent gradients, in a later call of this step
  std::set<int64_t> after;
  for (int64_t step = 4; step < kShardedSteps; ++step) after.insert(step);  // from the snapshot on
  const auto replacement =
      std::find_if(trace.ranks.begin(), trace.ranks.end(), [](const TracedRank& rank) { return rank.worker == 3; });
  REQUIRE(replacement != trace.ranks.end());
  CHECK(steps_of(*replacement) == after);
}

TEST_CASE("a job that fails, or is stopped, leaves its trace") {
  {
    JobRunner job;
    const Ended ended = job.run(
        traced(disturbed(sharded_job(2, {"run.max_restarts=0", "run.on_loss=\"stop\""}), {"kill:rank=1,step=3"})));
    INFO(ended.err);
    CHECK(ended.exit_code != 0);
    const TraceFile trace = trace_of(job);
    REQUIRE(trace.ranks.size() == 2);
    CHECK(steps_of(trace.ranks[0]) == std::set<int64_t>{0, 1, 2});
  }
  JobRunner job;
  const pid_t pid = job.start(traced(sharded_job(2, {"run.max_steps=100000", "run.epochs=100000"})));
  REQUIRE(job.wait_for_commits(pid, 3));
  ::kill(pid, SIGINT);
  const Ended ended = job.wait(pid);
  INFO(ended.err);
  CHECK(ended.exit_code == 130);
  CHECK(trace_of(job).ranks.size() == 2);
}

TEST_CASE("what an agent that was killed has left is no part of the trace of who resumes") {
  JobRunner job;
  const Ended killed = job.run(traced(disturbed(sharded_job(2), {"kill:agent,step=10"})));
  REQUIRE(killed.exit_code == 128 + SIGKILL);
  job.wait_for_processes();
  CHECK_FALSE(std::filesystem::exists(job.folder() / "trace.json"));
  std::vector<std::string> resumed = traced(sharded_job(2));
  resumed.emplace_back("--resume");
  const Ended ended = job.run(resumed);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  check_no_records(job);
  const TraceFile trace = trace_of(job);
  for (const TracedRank& rank : trace.ranks) CHECK(*steps_of(rank).begin() == 8);
}

TEST_CASE("evaluations, what is read by hand, and other parameters of a module are in the trace") {
  JobRunner job;
  const Ended ended = job.run(
      traced(sharded_job(2, {"coordinator.use=\"planned\"", "lr.ema=0.75", "app.eval_every=3", "app.untie_after=6"})));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  std::map<TracedCall::Kind, int64_t> counts;
  const TraceFile trace = trace_of(job);
  REQUIRE_FALSE(trace.ranks.empty());
  for (const TracedCall& call : trace.ranks[0].calls) ++counts[call.kind];
  CHECK(counts[TracedCall::Kind::kBeginEvaluation] == kShardedSteps / 3);
  CHECK(counts[TracedCall::Kind::kByHand] > 0);
  CHECK(counts[TracedCall::Kind::kEnter] == counts[TracedCall::Kind::kLeave]);
}

TEST_CASE("what is simulated by a trace gathers in a step what the job did") {
  JobRunner job;
  // planned decides by what gathers took in the job, too.
  const std::vector<std::string> sets{"coordinator.use=\"eager\"", "app.layers=8", "app.width=6000"};
  const Ended ended = job.run(traced(sharded_job(2, sets)));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  const TraceFile trace = trace_of(job);
  REQUIRE_FALSE(trace.ranks.empty());
  uint64_t gathered = 0;  // in the last step
  for (const TracedTransfer& one : trace.ranks[0].transfers) {
    const bool is_last = trace.ranks[0].calls[one.call].step == kShardedSteps - 1;
    if (is_last && one.kind == TracedTransfer::Kind::kGather) gathered += one.bytes;
  }
  CHECK(gathered > 0);
  std::vector<std::string> simulate = traced(sharded_job(2, sets));
  simulate.front() = "simulate";
  simulate.insert(simulate.begin(), "coordinator");
  const Ended played = job.run(simulate);
  INFO(played.err);
  REQUIRE(played.exit_code == 0);
  CHECK(played.summary.at("costs").at("compute") == "recorded");
  CHECK(played.summary.at("steps").back().at("bytes") == gathered);
  simulate.insert(simulate.end(), {"--tokens", "100"});
  CHECK(job.run(simulate).summary.at("costs").at("compute") == "flops");
}

TEST_CASE("a job without sharding has a trace of its reductions") {
  JobRunner job;
  job.config(toy_config("workers = 2\nmax_steps = 5\n"));
  const Ended ended = job.run_json({"--trace", "trace.json"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(
      has(ended.err, "open it in ui.perfetto.dev; the job is not sharded: the trace has only the times of reductions"));
  CHECK_FALSE(has(ended.err, "pliant trace"));  // which would refuse it
  const TraceFile trace = trace_of(job);
  CHECK_FALSE(trace.model.has_value());
  CHECK(trace.coordinator.empty());
  REQUIRE(trace.ranks.size() == 2);
  for (const TracedRank& rank : trace.ranks) {
    CHECK(steps_of(rank) == std::set<int64_t>{0, 1, 2, 3, 4});
    CHECK(rank.calls.size() == 5);
  }
}

TEST_CASE("a trace that cannot be written is refused before a worker starts") {
  JobRunner job;
  write_all(job.folder() / "old.json", "old");
  ::mkfifo((job.folder() / "pipe").c_str(), 0600);
  const auto refused = [&job](const std::string& file, const std::string& words) {
    std::vector<std::string> command = sharded_job(2);
    command.insert(command.end(), {"--trace", file});
    const Ended ended = job.run(command);
    INFO(ended.err);
    CHECK(ended.exit_code == 2);
    CHECK(has(ended.err, words));
    CHECK_FALSE(std::filesystem::exists(job.folder() / "pliant-runs"));
  };
  refused("no/trace.json", "--trace: cannot write no/trace.json: folder no does not exist");
  refused(".", "--trace: . is a directory; name a file");
  refused("pipe", "--trace: pipe is not a regular file; name a file");
  job.config(toy_config("workers = 1\n"));
  const Ended foreign = job.run_json({"--trace", "old.json", "--set", "run.attach=\"never\""});
  CHECK(foreign.exit_code == 2);
  CHECK(has(foreign.err, "--trace needs a program that uses the embedding API"));
  CHECK(read_all(job.folder() / "old.json") == "old");
}

TEST_CASE("a program that does not use the embedding API has no trace, and that is said") {
  JobRunner job;
  job.config("config_version = 1\n[run]\nname = \"toy\"\ncommand = [\"/bin/true\"]\n");
  const Ended ended = job.run_json({"--trace", "trace.json"});
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(has(ended.err, "warning: trace: trace.json was not written: no worker of this job computed anything with the"));
  CHECK_FALSE(std::filesystem::exists(job.folder() / "trace.json"));
  CHECK_FALSE(ended.summary.contains("trace"));
}
