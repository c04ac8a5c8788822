// Workers that do what is no step and say so: whom the agent waits for, whom it kills, and what it shows.
#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "elastic/busy_list.hpp"
#include "unit/agent/played_job.hpp"
#include "unit/sharded/says.hpp"

namespace pliant::elastic {
namespace {

using sharded::says;

GroupOptions patient_for_30_s() {
  GroupOptions options = options_for(2, 0);
  options.hang_timeout_s = options.start_timeout_s = 30;
  return options;
}

/// Two ranks compute step 1.
void let_compute_step(PlayedJob& job) {
  job.start(0, 2);
  job.form(dealt(11, 2));
  job.commit({0, 1});
}

void let_wait(PlayedJob& job, WorkerId worker) {
  const Assignment own = share_out(8, {.world_size = 2});
  job.group.received(worker, Reducing{job.generation, 1, digest_of(own)});
}

}  // namespace

TEST_CASE("a rank that is busy is waited for as long as it said, and so are those that wait for it") {
  for (const bool in_collective : {true, false}) {  // of the session, or of the program or a sharded model
    CAPTURE(in_collective);
    PlayedJob job(patient_for_30_s());
    let_compute_step(job);
    job.group.received(0, BusyWith{"evaluation", 600});
    if (in_collective) let_wait(job, 1);
    job.pass(590);
    CHECK(job.killed.empty());
    CHECK(job.told<Abort>().empty());
    job.group.received(0, BusyWith{});
    job.pass(29);  // the hang time-out begins anew
    CHECK(job.killed.empty());
    let_wait(job, 0);
    let_wait(job, 1);
    for (const WorkerId id : {0, 1}) job.group.received(id, Vote{job.generation, 1, 0, 1.0, 80});
    CHECK(job.group.committed() == 2);
  }
}

TEST_CASE("all ranks may be busy at once") {
  PlayedJob job(patient_for_30_s());
  let_compute_step(job);
  for (const WorkerId id : {0, 1}) job.group.received(id, BusyWith{"evaluation", 600});
  job.pass(590);
  CHECK(job.killed.empty());
  CHECK(job.told<Abort>().empty());
}

TEST_CASE("a rank that is busy for longer than it said is killed, with what it did, and those that wait are not") {
  PlayedJob job(patient_for_30_s());
  let_compute_step(job);
  job.group.received(1, BusyWith{"evaluation", 100});
  job.pass(99);
  CHECK(job.killed.empty());
  job.pass(2);
  CHECK(job.killed == Workers{1});
  job.group.ended(1, kKilled);
  CHECK(says(job.log, "with evaluation, for which it had announced 100.0 s at most, and was killed"));
}

TEST_CASE("who said too short a time is killed no sooner than one that said nothing") {
  PlayedJob job(patient_for_30_s());
  let_compute_step(job);
  job.group.received(1, BusyWith{"evaluation", 5});
  job.pass(29);
  CHECK(job.killed.empty());
  job.pass(2);
  CHECK(job.killed == Workers{1});
}

TEST_CASE("a rank that waits for the others in a commit is not busy, whatever it had said") {
  PlayedJob job(patient_for_30_s());
  let_compute_step(job);
  job.group.received(0, BusyWith{"evaluation", 600});
  let_wait(job, 0);
  job.pass(31);
  CHECK(job.killed == Workers{1});  // which computes, and said nothing
}

TEST_CASE("a worker that is not ready and busy is waited for, and has start_timeout_s from its end on") {
  PlayedJob job(patient_for_30_s());
  job.group.started(0);
  job.group.received(0, Hello{});
  job.group.received(0, BusyWith{"compilation", 100});
  job.pass(99);
  CHECK(job.killed.empty());
  SUBCASE("it ends") {
    job.group.received(0, BusyWith{});
    job.pass(29);
    CHECK(job.killed.empty());
    job.pass(2);
    CHECK(job.killed == Workers{0});
    job.group.ended(0, kKilled);
    CHECK(says(job.log, "was not ready"));
  }
  SUBCASE("it does not") {
    job.pass(2);
    CHECK(job.killed == Workers{0});
    job.group.ended(0, kKilled);
    CHECK(says(job.log, "with compilation, for which it had announced 100.0 s at most"));
  }
}

TEST_CASE("a rank that another one's death leaves busy is waited for in the next generation") {
  PlayedJob job(patient_for_30_s());
  let_compute_step(job);
  job.group.received(0, BusyWith{"evaluation", 600});
  job.group.ended(1, kKilled);
  job.start(2, 3);
  job.pass(500);
  CHECK(job.killed.empty());
}

TEST_CASE("a rank that is busy after the last commit is waited for, too, and one that has finished takes its time") {
  PlayedJob job(patient_for_30_s());
  let_compute_step(job);
  job.group.request_stop(130);
  let_wait(job, 0);
  let_wait(job, 1);
  for (const WorkerId id : {0, 1}) job.group.received(id, Vote{job.generation, 1, 0, 1.0, 80});
  job.group.received(0, BusyWith{"last evaluation", 600});
  job.pass(500);
  CHECK(job.killed.empty());
  job.group.received(0, BusyWith{});
  const Ownership map = dealt(11, 2);
  for (const WorkerId id : {0, 1}) job.write(id, job.generation, map, static_cast<int32_t>(id));
  job.group.received(0, SnapshotWritten{2, "step-2", ""});
  for (const WorkerId id : {0, 1}) job.group.received(id, Finished{});
  job.group.received(0, BusyWith{"an upload", 100});
  job.pass(99);
  CHECK_FALSE(says(job.log, "has not ended"));
  job.pass(40);
  CHECK(job.killed.empty());
  CHECK(says(job.log, "is done but has not ended"));
}

TEST_CASE("who is busy is shown with rank, time and what, until nobody is") {
  PlayedJob job(patient_for_30_s());
  let_compute_step(job);
  CHECK(job.shown.empty());
  job.group.received(1, BusyWith{"evaluation", 600});
  job.pass(2);
  REQUIRE(job.shown.back().size() == 1);
  CHECK(job.shown.back().front().worker == 1);
  CHECK(job.shown.back().front().rank == 1);
  CHECK(job.shown.back().front().what == "evaluation");
  CHECK(job.shown.back().front().seconds == doctest::Approx(2));
  CHECK(job.shown.back().front().at_most_s == 600);
  job.group.received(1, BusyWith{});
  CHECK(job.shown.back().empty());
  const size_t said = job.shown.size();
  job.pass(2);
  CHECK(job.shown.size() == said);
}

TEST_CASE(
    "of nested ones the last that began counts, and what began before it goes on with the time that it has left") {
  std::vector<BusyWith> told;
  BusyList list([&told](const BusyWith& what) { told.push_back(what); });
  const int64_t outer = list.begin("evaluation", 600);
  const int64_t inner = list.begin("compilation", 60);
  list.end(inner);
  REQUIRE(told.size() == 3);
  CHECK(told[0].what == "evaluation");
  CHECK(told[1].what == "compilation");
  CHECK(told[1].at_most_s == doctest::Approx(60).epsilon(0.1));
  CHECK(told[2].what == "evaluation");
  CHECK(told[2].at_most_s <= 600);
  CHECK(told[2].at_most_s > 500);
  const int64_t second = list.begin("upload", 5);
  list.end(outer);  // in another order: the upload goes on
  CHECK(told.size() == 4);
  list.end(second);
  list.end(second);
  REQUIRE(told.size() == 5);
  CHECK(told.back().what.empty());
  list.begin("more", 1e300);  // a time that no clock holds
  CHECK(told.back().at_most_s > 1e8);
  list.close();
  list.begin("later", 1);
  CHECK(told.size() == 6);
}

}  // namespace pliant::elastic
