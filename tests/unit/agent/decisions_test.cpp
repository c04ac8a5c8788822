// Plugins that decide otherwise on one rank than on the others: what the agent makes of it.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "unit/agent/job_ends.hpp"
#include "unit/agent/played_job.hpp"

namespace pliant::elastic {
namespace {

GroupOptions three_workers(std::string on_loss = "replace") {
  GroupOptions options = options_for(3, 0);
  options.on_loss = std::move(on_loss);
  return options;
}

Ready ready_with(const std::string& balancer) {
  Ready ready{"data"};
  ready.plugins = {"sampler fixed 0.1.0 11", "balancer lpt 0.1.0 " + balancer};
  return ready;
}

/// Worker `id` begins, with that file of its balancer.
void let_begin(PlayedJob& job, WorkerId id, const std::string& balancer = "22") {
  job.group.started(id);
  job.group.received(id, Hello{id});
  job.group.received(id, ready_with(balancer));
}

/// Workers 0.. are ranks and stand; the last one has that file.
void let_stand(PlayedJob& job, int64_t workers, const std::string& last = "22") {
  for (WorkerId id = 0; id < workers; ++id) job.group.started(id);
  for (WorkerId id = 0; id < workers; ++id) job.group.received(id, Hello{id});
  for (WorkerId id = 0; id < workers; ++id) job.group.received(id, ready_with(id + 1 == workers ? last : "22"));
  for (const WorkerId id : job.told<WriteData>()) job.group.received(id, DataWritten{});
  for (const WorkerId id : job.join()) job.group.received(id, Formed{job.generation});
}

/// It enters the reduction of the first step.
void reduce(PlayedJob& job, WorkerId id, int64_t world_size, uint64_t of_assignment = 0, uint64_t of_rows = 0) {
  const uint64_t own = digest_of(share_out(8, {.world_size = world_size}));
  job.group.received(id, Reducing{job.generation, 0, own + of_assignment, of_rows});
}

void vote(PlayedJob& job, WorkerId id, std::vector<double> scaling) {
  Vote one{job.generation, 0, 0, 1.0, 80, scaling.front()};
  one.scaling = std::move(scaling);
  job.group.received(id, one);
}

}  // namespace

TEST_CASE("the digest of a batch tells the order of its rows, where they end and which pieces they hold") {
  const auto digest_with = [](const std::function<void(Batch&)>& change) {
    Batch batch;
    batch.offsets = {0, 2, 3};
    batch.ids = {4, 5, 6};
    batch.pieces = {{0, 7}, {0, 8}, {0, 9}};
    change(batch);
    return digest_of(batch);
  };
  const uint64_t own = digest_with([](Batch&) {});
  CHECK(digest_with([](Batch&) {}) == own);
  CHECK(digest_with([](Batch& batch) { std::swap(batch.ids[0], batch.ids[1]); }) != own);
  CHECK(digest_with([](Batch& batch) { batch.offsets[1] = 1; }) != own);
  CHECK(digest_with([](Batch& batch) { batch.pieces[2].first = 1; }) != own);
  CHECK(digest_with([](Batch& batch) { batch.epoch = 1; }) != own);
}

TEST_CASE("what a rank that was killed for its rows sent before it died ends no job") {
  PlayedJob job(three_workers());
  let_stand(job, 3);
  for (const WorkerId id : {0, 1}) reduce(job, id, 3);
  reduce(job, 2, 3, 0, 1);
  for (const WorkerId id : {0, 1}) job.group.received(id, Vote{job.generation, 0, 0, 1.0, 80});
  job.group.received(2, Vote{job.generation, 0, 7, 1.0, 90});  // of other samples
  CHECK(job.take<Commit>().empty());
  CHECK(job.killed == Workers{2});
  job.group.ended(2, kKilled);
  CHECK(job.spawned == 1);
  CHECK_FALSE(job.group.job_end().has_value());
}

TEST_CASE("a rank whose balancer or sampler decides otherwise than the agent's is killed by name, and replaced") {
  for (const bool of_rows : {false, true}) {
    CAPTURE(of_rows);
    PlayedJob job(three_workers());
    let_stand(job, 3);
    reduce(job, 0, 3);
    reduce(job, 1, 3, of_rows ? 0 : 1, of_rows ? 1 : 0);
    reduce(job, 2, 3);
    CHECK(job.killed == Workers{1});
    job.group.ended(1, kKilled);
    CHECK(job.spawned == 1);
    CHECK_FALSE(job.group.job_end().has_value());
    CHECK(job.group.committed() == 0);
    const std::string what =
        of_rows ? "other rows of step 0 from its sampler" : "another assignment of step 0 from its balancer";
    CHECK(job.log.find("rank 1 (worker 1) got " + what + " than the agent and was killed") != std::string::npos);
  }
}

TEST_CASE("where all ranks decide otherwise than the agent, or losses end the job, the job ends with the plugin") {
  for (const bool stops : {false, true}) {
    CAPTURE(stops);
    PlayedJob job(three_workers(stops ? "stop" : "replace"));
    let_stand(job, 3);
    reduce(job, 2, 3, 1);
    reduce(job, 1, 3, 1);
    CHECK(job.killed.empty());
    reduce(job, 0, 3, stops ? 0 : 1);
    for (const WorkerId id : {0, 1, 2}) job.group.ended(id, kKilled);
    REQUIRE(job.group.job_end().has_value());
    CHECK(has_failed(*job.group.job_end(), Origin::kPlugin));
    const std::string who = stops ? "rank 1 (worker 1)" : "rank 0 (worker 0)";
    const std::string why = "step 0: the balancer gave " + who + " another assignment than the agent";
    CHECK(job.group.job_end()->reason.find(why) == 0);
  }
}

TEST_CASE("ranks that decide otherwise before any rank has decided as the agent are killed once one has") {
  PlayedJob job(three_workers());
  let_stand(job, 3);
  reduce(job, 2, 3, 1);
  reduce(job, 0, 3, 0, 1);
  CHECK(job.killed.empty());
  reduce(job, 1, 3);
  CHECK(job.killed == Workers{0, 2});
}

TEST_CASE(
    "a rank whose learning-rate rules answer otherwise than those of most is killed before the step is committed") {
  PlayedJob job(three_workers());
  let_stand(job, 3);
  for (const WorkerId id : {0, 1, 2}) reduce(job, id, 3);
  vote(job, 0, {0.1, 1});
  vote(job, 1, {0.1, 2});
  vote(job, 2, {0.1, 1});
  CHECK(job.killed == Workers{1});
  CHECK(job.group.committed() == 0);
  job.group.tick();
  CHECK(job.group.committed() == 0);
  job.group.ended(1, kKilled);
  CHECK(job.log.find("rank 1 (worker 1) got other answers for step 0 from its learning-rate rules") !=
        std::string::npos);
  CHECK(job.spawned == 1);
}

TEST_CASE("rates that differ in the last bits, as of other machines, are the same") {
  PlayedJob job(three_workers());
  let_stand(job, 3);
  for (const WorkerId id : {0, 1, 2}) reduce(job, id, 3);
  vote(job, 0, {0.1, 0});
  vote(job, 1, {0.1 + 1e-16, 0});
  vote(job, 2, {0.1, 0});
  CHECK(job.killed.empty());
  CHECK(job.group.committed() == 1);
}

TEST_CASE(
    "of two ranks with different rates the one with the files that the job began with is right, if one has others") {
  for (const bool has_others : {true, false}) {
    CAPTURE(has_others);
    PlayedJob job(options_for(2, 0));
    let_stand(job, 2, has_others ? "33" : "22");
    for (const WorkerId id : {0, 1}) reduce(job, id, 2);
    vote(job, 0, {0.1});
    vote(job, 1, {0.2});
    CHECK(job.group.committed() == 0);
    if (has_others) {
      CHECK(job.killed == Workers{1});
      continue;
    }
    for (const WorkerId id : {0, 1}) job.group.ended(id, kKilled);
    REQUIRE(job.group.job_end().has_value());
    CHECK(has_failed(*job.group.job_end(), Origin::kPlugin));
    CHECK(job.group.job_end()->reason.find("there is no majority (rank 0 (worker 0): 0.1, rank 1 (worker 1): 0.2)") !=
          std::string::npos);
  }
}

TEST_CASE("a worker with other plugin files than the job began with is named once and takes part") {
  PlayedJob job(three_workers());
  let_stand(job, 2);
  CHECK(job.log.find("plugin files") == std::string::npos);
  let_begin(job, 2, "33");
  const std::string warning =
      "worker 2 has other plugin files than the workers that the job began with (balancer lpt 0.1.0 33 instead of "
      "balancer lpt 0.1.0 22)";
  CHECK(job.log.find(warning) != std::string::npos);
  CHECK(job.killed.empty());
  for (const WorkerId id : {0, 1}) reduce(job, id, 2);
  for (const WorkerId id : {0, 1}) vote(job, id, {0.1});
  CHECK(job.join() == Workers{0, 1, 2});
  let_begin(job, 3, "33");
  CHECK(job.log.find("worker 3 has other plugin files") == std::string::npos);
}

TEST_CASE("a rank that fails in the first step is held back, also where others have not formed yet as it does") {
  PlayedJob job(three_workers());
  for (WorkerId id = 0; id < 3; ++id) job.group.started(id);
  for (WorkerId id = 0; id < 3; ++id) job.group.received(id, Hello{id});
  for (WorkerId id = 0; id < 3; ++id) job.group.received(id, ready_with("22"));
  for (const WorkerId id : job.told<WriteData>()) job.group.received(id, DataWritten{});
  REQUIRE(job.join().size() == 3);
  job.group.received(0, Formed{job.generation});
  job.group.ended(0, ExitStatus{false, 1, "out of ideas"});
  CHECK(job.spawned == 0);
  for (const WorkerId id : {1, 2}) job.group.ended(id, ExitStatus{false, 1, "out of ideas"});
  CHECK(job.spawned == 0);
  REQUIRE(job.group.job_end().has_value());
  CHECK(has_failed(*job.group.job_end()));
  CHECK(job.group.job_end()->reason.find("all workers failed in the first step, so they are not restarted") == 0);
}

}  // namespace pliant::elastic
