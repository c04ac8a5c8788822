// Ranks of a sharded job that visit other modules than others: what the agent makes of it.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "unit/agent/job_ends.hpp"
#include "unit/agent/played_job.hpp"
#include "unit/sharded/says.hpp"

namespace pliant::elastic {
namespace {

using sharded::says;

constexpr const char* kDiffer = "rank 1 entered mlp.up (forward) as visit 3, rank 0 had made fewer visits";

/// Two ranks compute step 1.
void let_compute(PlayedJob& job) {
  job.start(0, 2);
  job.form(dealt(11, 2));
  job.commit({0, 1});
}

/// Two ranks, which own `map`, have committed the only step.
void let_commit_all(PlayedJob& job, const Ownership& map) {
  job.steps = 1;
  job.start(0, 2);
  job.form(map);
  job.commit({0, 1});
  job.take<Abort>();
}

void let_vote(PlayedJob& job, std::vector<sharded::VisitCount> visits) {
  const Assignment own = share_out(8, {.world_size = 2});
  for (const WorkerId id : {0, 1}) job.group.received(id, Reducing{job.generation, 1, digest_of(own)});
  for (const WorkerId id : {0, 1}) {
    Vote vote{job.generation, 1, 0, 1.0, 80};
    vote.visits = visits[static_cast<size_t>(id)];
    job.group.received(id, vote);
  }
}

/// The workers of a job that is about to end.
std::string reason_of(PlayedJob& job) {
  for (const WorkerId id : {0, 1}) job.group.ended(id, kKilled);
  REQUIRE(job.group.job_end().has_value());
  CHECK(has_failed(*job.group.job_end()));
  return job.group.job_end()->reason;
}

}  // namespace

TEST_CASE("ranks that have parted end the job once that has lasted a moment, as what others did by then has it") {
  PlayedJob job(2, 0);
  let_compute(job);
  job.parted = kDiffer;
  job.group.compare_visits(false);
  job.seconds = 0.1;
  job.group.compare_visits(false);
  CHECK(job.killed.empty());
  job.parted = "rank 1 entered mlp.up (forward) as visit 3, rank 0 entered attn.qkv (forward) as visit 3";
  job.seconds = 0.4;
  job.group.compare_visits(false);
  CHECK(job.group.committed() == 1);
  CHECK(says(reason_of(job), "step 1 is not committed: " + *job.parted + ". All ranks must visit the same modules"));
}

TEST_CASE("a rank that ends is compared with the others before its page goes") {
  PlayedJob job(2, 0);
  let_compute(job);
  job.group.compare_visits(true);
  CHECK(job.killed.empty());
  job.parted = kDiffer;
  job.group.compare_visits(true);
  CHECK(says(reason_of(job), kDiffer));
}

TEST_CASE("a rank that breaks off where ranks have parted is heard when they turn out not to have") {
  PlayedJob job(2, 0);
  let_compute(job);
  job.parted = kDiffer;
  job.group.received(0, Broken{job.generation, "a kernel failed"});
  CHECK(job.generation == 1);
  CHECK_FALSE(says(job.log, "a kernel failed"));
  job.parted.reset();
  job.seconds = 0.1;
  job.group.compare_visits(false);
  CHECK(job.generation == 2);
  CHECK(says(job.log, "reported a failure: a kernel failed"));
}

TEST_CASE("votes of ranks that counted other visits commit nothing, whether their pages can be read or not") {
  for (const bool is_seen : {false, true}) {
    CAPTURE(is_seen);
    PlayedJob job(2, 0);
    let_compute(job);
    if (is_seen) job.parted = "rank 0 made no more visits, rank 1 began an evaluation";
    let_vote(job, {{17, 4}, {17, 5}});
    CHECK(job.group.committed() == 1);
    const std::string reason = reason_of(job);
    CHECK(says(reason, "step 1 is not committed: "));
    CHECK(says(reason, is_seen ? "rank 1 began an evaluation"
                               : "rank 0 and rank 1 visited different modules; the modules are unknown"));
  }
  PlayedJob job(2, 0);
  let_compute(job);
  let_vote(job, {{17, 4}, {17, 4}});
  CHECK(job.group.committed() == 2);
}

TEST_CASE("ranks that part after the last commit are named, break off and write what they have") {
  for (const bool all_wrote : {false, true}) {
    CAPTURE(all_wrote);
    PlayedJob job(2, 0);
    const Ownership map = dealt(11, 2);
    let_commit_all(job, map);
    job.group.compare_visits(false);
    job.write(1, 1, map, 1);
    job.parted = "rank 0 began an evaluation, rank 1 ended the step after 8 visits";
    if (!all_wrote) {
      job.group.compare_visits(false);
      CHECK(job.told<Abort>().empty());
      job.seconds = 0.3;
      job.group.compare_visits(false);
      job.group.compare_visits(false);
      CHECK(job.told<Abort>() == Workers{0, 1});
      CHECK(job.killed.empty());
    }
    job.write(0, 1, map, 0);
    CHECK(job.told<Assemble>() == Workers{0});
    job.group.received(0, SnapshotWritten{1, "step-1", ""});
    CHECK(job.snapshots == std::vector<int64_t>{1});
    CHECK(says(reason_of(job), "after step 0, which is committed: " + *job.parted + ". All ranks must visit"));
  }
}

TEST_CASE("after the last commit a rank that breaks off in its passes has the others break off") {
  PlayedJob job(2, 0);
  const Ownership map = dealt(11, 2);
  let_commit_all(job, map);
  job.group.received(1, Broken{job.generation, "gone", BreakCause::kPeerLost});
  CHECK(job.told<Abort>().empty());
  job.group.received(1, Broken{job.generation, "a kernel failed"});
  CHECK(job.told<Abort>() == Workers{0, 1});
  CHECK(says(job.log, "reported a failure after the last commit: a kernel failed"));
  job.parted = kDiffer;  // what they do from here on is nobody's business
  job.group.compare_visits(true);
  for (const int32_t rank : {0, 1}) job.write(rank, 1, map, rank);
  job.group.received(0, SnapshotWritten{1, "step-1", ""});
  for (const WorkerId id : {0, 1}) job.group.ended(id, ExitStatus{});
  REQUIRE(job.group.job_end().has_value());
  CHECK_FALSE(has_failed(*job.group.job_end()));
}

}  // namespace pliant::elastic
