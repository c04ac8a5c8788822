// Metrics and evaluations that ranks give: what the agent records of them, and when.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "unit/agent/job_ends.hpp"
#include "unit/agent/played_job.hpp"
#include "unit/sharded/says.hpp"

namespace pliant::elastic {
namespace {

using sharded::says;
using Values = std::map<std::string, double>;

MetricShare share(const char* name, double value, double weight = 1) {
  return {name, MetricRule::kMean, {value * weight}, {weight}};
}

/// Both ranks vote for the next step with these metrics.
void vote(PlayedJob& job, const std::vector<std::vector<MetricShare>>& metrics) {
  const int64_t step = job.group.committed();
  const Assignment own = share_out(8, {.world_size = 2});
  for (const WorkerId id : {0, 1}) job.group.received(id, Reducing{job.generation, step, digest_of(own)});
  for (const WorkerId id : {0, 1}) {
    Vote vote{job.generation, step, 0, 1.0, 80};
    vote.metrics = metrics[static_cast<size_t>(id)];
    job.group.received(id, vote);
  }
  REQUIRE(job.group.committed() == step + 1);
}

void let_commit(PlayedJob& job) {
  job.start(0, 2);
  job.form(dealt(11, 2));
  vote(job, {{share("accuracy", 0.5, 3), share("of_one", 7)}, {share("accuracy", 1, 1)}});
}

}  // namespace

TEST_CASE("the metrics of all ranks are one in the commit") {
  PlayedJob job(2, 0);
  let_commit(job);
  REQUIRE(job.commits.size() == 1);
  CHECK(job.commits[0].metrics == Values{{"accuracy", 0.625}, {"of_one", 7}});
  vote(job, {{}, {}});
  CHECK(job.commits[1].metrics.empty());
}

TEST_CASE("a metric that ranks combine by different rules is left out, and named once") {
  PlayedJob job(2, 0);
  let_commit(job);
  const MetricShare sum{"x", MetricRule::kSum, {1}, {}};
  for (int i = 0; i < 2; ++i) vote(job, {{sum, share("y", 2)}, {share("x", 1)}});
  CHECK(job.commits.back().metrics == Values{{"y", 2}});
  CHECK(says(job.log, "metric x is left out: ranks combine it by different rules, from step 1 on"));
  CHECK(job.log.find("metric x") == job.log.rfind("metric x"));
}

TEST_CASE("an evaluation is recorded once all ranks have gone on from its state") {
  PlayedJob job(2, 0);
  let_commit(job);
  job.group.received(0, Evaluated{1, {share("valid", 1, 10)}});
  CHECK(job.evaluations.empty());
  job.group.received(1, Evaluated{1, {share("valid", 3, 30)}});
  vote(job, {{}, {}});
  REQUIRE(job.evaluations.size() == 1);
  CHECK(job.evaluations[0].step == 1);
  CHECK(job.evaluations[0].ranks == 2);
  CHECK(job.evaluations[0].lost == 0);
  CHECK(job.evaluations[0].values == Values{{"valid", 2.5}});
  CHECK(says(job.log, "evaluation after step 1: valid 2.5"));
  vote(job, {{}, {}});
  CHECK(job.evaluations.size() == 1);
}

TEST_CASE("what was found out within an attempt is recorded with its commit, and not that of another attempt") {
  PlayedJob job(2, 0);
  let_commit(job);
  job.group.received(0, Evaluated{1, {share("valid", 100)}, job.generation - 1});
  job.group.received(0, Evaluated{1, {share("valid", 1)}, job.generation});
  job.group.received(1, Evaluated{1, {share("valid", 3)}, job.generation});
  job.group.received(1, Evaluated{1, {share("other", 5)}});
  CHECK(job.evaluations.empty());
  vote(job, {{}, {}});
  REQUIRE(job.evaluations.size() == 1);
  CHECK(job.evaluations[0].step == 1);
  CHECK(job.evaluations[0].ranks == 2);
  CHECK(job.evaluations[0].values == Values{{"other", 5}, {"valid", 2}});
  job.group.received(0, Evaluated{2, {share("valid", 9)}, job.generation});
  job.group.ended(1, kKilled);  // the attempt comes to nothing
  job.form(dealt(11, 1));
  job.commit({0});
  job.commit({0});
  CHECK(job.evaluations.size() == 1);
}

TEST_CASE("what was found out is told to all ranks with the next commit, once") {
  PlayedJob job(2, 0);
  let_commit(job);
  job.take<Commit>();
  job.group.received(0, Evaluated{1, {share("valid", 4)}});
  vote(job, {{}, {}});
  for (const auto& [id, commit] : job.take<Commit>()) {
    CHECK(commit.evaluation.step == 1);
    CHECK(commit.evaluation.values == Values{{"valid", 4}});
  }
  vote(job, {{}, {}});
  for (const auto& [id, commit] : job.take<Commit>()) CHECK(commit.evaluation.step == -1);
}

TEST_CASE("where one rank asks for the end, the step is the last one: a snapshot, exit code 0 and its reason") {
  PlayedJob job(2, 0);
  let_commit(job);
  job.take<Commit>();
  const Assignment own = share_out(8, {.world_size = 2});
  for (const WorkerId id : {0, 1}) job.group.received(id, Reducing{job.generation, 1, digest_of(own)});
  for (const WorkerId id : {0, 1}) {
    Vote asks{job.generation, 1, 0, 1.0, 80};
    if (id == 1) asks.end = "good enough";
    job.group.received(id, asks);
  }
  REQUIRE(job.ends.size() == 1);
  CHECK(job.ends[0].step == 2);
  CHECK(job.ends[0].reason == "rank 1: good enough");
  const auto commits = job.take<Commit>();
  REQUIRE(commits.size() == 2);
  for (const auto& [id, commit] : commits) CHECK(commit.wait);
  const Ownership map = dealt(11, 2);
  SUBCASE("all is well") {
    for (const WorkerId id : {0, 1}) job.write(id, job.generation, map, static_cast<int32_t>(id));
    job.group.received(0, SnapshotWritten{2, "step-2", ""});
    for (const WorkerId id : {0, 1}) job.group.received(id, Finished{});
    for (const WorkerId id : {0, 1}) job.group.ended(id, {});
    REQUIRE(job.group.job_end().has_value());
    CHECK(ended_early(*job.group.job_end()));
    CHECK(job.group.job_end()->reason == "rank 1: good enough");
  }
  SUBCASE("its state is lost before it is saved: the job goes on from the beginning, and nothing ends it") {
    job.group.ended(0, kKilled);
    CHECK(job.restarts == std::vector<int64_t>{0});
    job.form(dealt(11, 1));
    job.commit({1});
    job.commit({1});
    const auto later = job.take<Commit>();
    REQUIRE(later.size() == 2);
    for (const auto& [id, commit] : later) CHECK_FALSE(commit.wait);
    CHECK_FALSE(job.group.job_end().has_value());
  }
}

TEST_CASE("what rank 0 alone has found out is an evaluation, and no rank is missing") {
  PlayedJob job(2, 0);
  let_commit(job);
  job.group.received(0, Evaluated{1, {share("valid", 1)}});
  vote(job, {{}, {}});
  REQUIRE(job.evaluations.size() == 1);
  CHECK(job.evaluations[0].ranks == 1);
  CHECK(job.evaluations[0].lost == 0);
}

TEST_CASE("of a state that was never committed, or that the job goes back behind, nothing is recorded") {
  PlayedJob job(2, 0);
  let_commit(job);
  job.group.received(0, Evaluated{2, {share("valid", 1)}});
  job.group.received(0, Evaluated{-1, {share("valid", 1)}});
  job.group.received(0, Evaluated{1, {share("valid", 1)}});
  job.group.ended(1, kKilled);  // with it goes a part of the state
  CHECK(job.restarts == std::vector<int64_t>{0});
  job.form(dealt(11, 1));
  job.commit({0});
  CHECK(job.evaluations.empty());
}

TEST_CASE("the evaluation of the last state is recorded when all workers have ended, with how many were lost before") {
  for (const bool dies : {false, true}) {
    CAPTURE(dies);
    PlayedJob job(2, 0);
    let_commit(job);
    job.group.request_stop(130);
    vote(job, {{}, {}});
    job.group.received(0, Evaluated{2, {share("valid", 4)}});
    const Ownership map = dealt(11, 2);
    for (const WorkerId id : {0, 1}) job.write(id, job.generation, map, static_cast<int32_t>(id));
    job.group.received(0, SnapshotWritten{2, "step-2", ""});
    for (const WorkerId id : {0, 1}) {
      if (!dies || id == 0) job.group.received(id, Finished{});
    }
    job.group.received(0, Evaluated{2, {share("late", 5)}});
    job.group.ended(1, dies ? kKilled : ExitStatus{});
    CHECK(job.evaluations.empty());
    job.group.ended(0, {});
    REQUIRE(job.group.job_end().has_value());
    REQUIRE(job.evaluations.size() == 1);
    CHECK(job.evaluations[0].step == 2);
    CHECK(job.evaluations[0].lost == (dies ? 1 : 0));
    CHECK(job.evaluations[0].values == Values{{"late", 5}, {"valid", 4}});
  }
}

}  // namespace pliant::elastic
