// Messages of ranks of a sharded job that reach the agent late, one by one: over their own sockets they overtake one
// another, and some are of a generation or of a draft that is over.
#include <doctest/doctest.h>

#include <array>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "unit/agent/job_ends.hpp"
#include "unit/agent/played_job.hpp"

namespace pliant::elastic {

TEST_CASE("a part that is in the draft of an older generation counts for no other draft of the same snapshot") {
  PlayedJob job(2, 1);
  const Ownership map = dealt(11, 2);
  job.start(0, 2);
  job.form(map);
  job.commit({0, 1});  // and a snapshot is due
  job.write(0, 1, map, 0);
  job.group.received(0, Broken{1, "a kernel failed"});
  REQUIRE(job.generation == 2);
  job.group.request_stop(SIGINT);
  REQUIRE(job.told<Save>() == Workers{0, 1});  // the same snapshot, in the draft of the second
  job.write(1, 1, map, 1);                     // late
  job.write(0, 2, map, 0);
  CHECK(job.told<Assemble>().empty());
  job.write(1, 2, map, 1);
  CHECK(job.told<Assemble>() == Workers{0});
  job.group.received(0, SnapshotWritten{1, "step-1", ""});
  CHECK(job.snapshots == std::vector<int64_t>{1});
  CHECK(job.told<Stop>() == Workers{0, 1});
}

namespace {

/// Two ranks have made a step, and a third comes into the generation that they form, in which parts of the state move.
void let_third_join(PlayedJob& job) {
  job.start(0, 2);
  job.form(dealt(11, 2));
  job.start(2, 3);
  job.commit({0, 1});
  REQUIRE(job.join() == Workers{0, 1, 2});
}

}  // namespace

TEST_CASE("a rank that moves parts has written, before that, what it was asked for before that") {
  PlayedJob job(3, 1);
  const Ownership map = dealt(11, 2);
  let_third_join(job);
  job.write(1, 1, map, 1);
  job.group.received(1, Copying{2, true});
  job.write(0, 1, map, 0);
  CHECK(job.told<Assemble>() == Workers{0});
  job.group.received(0, Copying{2, true});
  job.group.received(0, SnapshotWritten{1, "step-1", ""});
  CHECK(job.snapshots == std::vector<int64_t>{1});
}

TEST_CASE(
    "a rank that turns out to have given parts away has nothing to write, and the end of the job waits for none") {
  PlayedJob job(3, 0);
  const Ownership map = dealt(11, 2);
  let_third_join(job);
  job.group.request_stop(SIGINT);
  CHECK(job.told<Save>().empty());  // parts may move
  job.group.ended(2, kKilled);
  REQUIRE(job.told<Save>() == Workers{0, 1});  // nobody has said that any do
  job.write(0, 2, map, 0);
  job.group.received(1, Copying{2, true});
  CHECK(job.log.find("no snapshot of step 1 from") != std::string::npos);
  CHECK(job.told<Stop>() == Workers{0, 1});
  job.write(1, 2, map, 1);
  CHECK(job.told<Assemble>().empty());
  job.group.ended(0, {});
  job.group.ended(1, {});
  REQUIRE(job.group.job_end().has_value());
  CHECK(has_failed(*job.group.job_end()));
  CHECK(job.snapshots.empty());
}

TEST_CASE("a rank that turns out to have given parts away in the generation before takes the job back at once") {
  PlayedJob job(3, 0);
  let_third_join(job);
  job.group.ended(2, kKilled);
  REQUIRE(job.generation == 3);
  REQUIRE(job.join() == Workers{0, 1});
  CHECK(job.restarts.empty());
  job.take<Abort>();
  job.group.received(1, Copying{2, true});  // late
  CHECK(job.told<Abort>() == Workers{0, 1});
  CHECK(job.generation == 4);
  CHECK(job.restarts == std::vector<int64_t>{0});
  for (const auto& [id, form] : job.take<Form>()) CHECK(form.owners.empty());
}

TEST_CASE("where no chunk moves, ranks that have formed write what they own although the generation breaks") {
  for (const bool both : {true, false}) {
    CAPTURE(both);
    PlayedJob job(3, 0);
    const Ownership before = dealt(2, 2);
    const Ownership after = *Ownership::of_runs(std::vector<Ownership::Run>{{1, 0}, {1, 1}}, 3, 1);
    job.start(0, 2);
    job.form(before);
    job.start(2, 3);
    job.commit({0, 1});
    REQUIRE(job.join() == Workers{0, 1, 2});
    job.group.request_stop(SIGINT);
    job.group.received(0, Formed{2, after.save()});
    if (both) job.group.received(1, Formed{2, after.save()});
    job.group.ended(2, kKilled);
    REQUIRE(job.told<Save>() == Workers{0, 1});
    job.write(0, 2, after, 0);
    job.write(1, 2, both ? after : before, 1);
    CHECK(job.told<Assemble>() == Workers{0});
    job.group.received(0, SnapshotWritten{1, "step-1", ""});
    CHECK(job.snapshots == std::vector<int64_t>{1});
    job.group.ended(0, {});
    job.group.ended(1, {});
    REQUIRE(job.group.job_end().has_value());
    CHECK(was_stopped(*job.group.job_end()));
  }
}

TEST_CASE("ranks that own no chunk are done without: the others go on, and write what there is") {
  PlayedJob job(3, 0);
  const Ownership map = dealt(1, 3);  // the last rank owns it
  job.start(0, 3);
  job.form(map);
  job.commit({0, 1, 2});
  job.group.ended(0, kKilled);
  CHECK(job.restarts.empty());
  const auto forms = job.take<Form>();
  REQUIRE(forms.size() >= 2);
  CHECK(forms.back().second.next_step == 1);
  CHECK(forms.back().second.was == std::vector<int64_t>{1, 2});
  CHECK(forms.back().second.owners == map.save());
  for (const auto& [id, form] : forms) job.sent.emplace_back(id, form);
  const Ownership after = *Ownership::of_runs(std::vector<Ownership::Run>{{1, 1}}, 2, 1);
  job.form(after);
  job.group.request_stop(SIGINT);
  job.commit({1, 2});
  job.group.ended(1, kKilled);  // before it has said anything of a snapshot to which it has nothing to add
  REQUIRE(job.told<Save>() == Workers{2});
  job.write(2, 2, after, 1);
  CHECK(job.told<Assemble>() == Workers{2});
  job.group.received(2, SnapshotWritten{2, "step-2", ""});
  job.group.ended(2, {});
  CHECK(job.snapshots == std::vector<int64_t>{2});
  CHECK(job.restarts.empty());
  REQUIRE(job.group.job_end().has_value());
  CHECK(was_stopped(*job.group.job_end()));
}

TEST_CASE("of a state without chunks any rank is enough, and none is too few") {
  PlayedJob job(2, 0);
  const Ownership map = dealt(0, 2);
  job.start(0, 2);
  job.form(map);
  job.commit({0, 1});
  job.group.ended(0, kKilled);
  job.form(dealt(0, 1));
  CHECK(job.restarts.empty());
  job.start(2, 3);
  job.group.ended(1, kKilled);
  CHECK(job.restarts == std::vector<int64_t>{0});
}

namespace {

/// Two ranks have made `steps` steps, with a snapshot after each `snapshot_every`.
void let_step(PlayedJob& job, const Ownership& map, int64_t steps, int64_t snapshot_every) {
  job.start(0, 2);
  job.form(map);
  for (int64_t step = 1; step <= steps; ++step) {
    job.commit({0, 1});
    if (snapshot_every == 0 || step % snapshot_every != 0) continue;
    job.write(0, job.generation, map, 0);
    job.write(1, job.generation, map, 1);
    REQUIRE(job.told<Assemble>() == Workers{0});
    job.group.received(0, SnapshotWritten{step, job.snapshot_path(step), ""});
  }
}

/// Rank 1 fails three times, the last time as all form; the other one stays well.
void fail_thrice(PlayedJob& job, const Ownership& map, BreakCause cause) {
  for (int time = 0; time < 3; ++time) {
    CHECK(job.killed.empty());
    job.group.received(1, Broken{job.generation, "something is missing", cause});
    if (time < 1) job.form(map);
  }
}

void cannot_write(PlayedJob& job, WorkerId worker) {
  const int64_t step = job.group.committed();
  job.group.received(worker, PartWritten{step, job.snapshot_path(step), "the device is lost", job.generation});
}

constexpr std::array kCauses{BreakCause::kShortage, BreakCause::kFault};

}  // namespace

TEST_CASE(
    "a rank of a sharded job that fails for the third time is replaced once all parts are saved: no step is lost") {
  for (const BreakCause cause : kCauses) {
    for (const int64_t snapshot_every : {0, 2}) {
      CAPTURE(snapshot_every);
      PlayedJob job(2, snapshot_every);
      const Ownership map = dealt(11, 2);
      let_step(job, map, 3, snapshot_every);
      fail_thrice(job, map, cause);
      REQUIRE(job.told<Save>() == Workers{0, 1});
      job.write(0, job.generation, map, 0);
      job.write(1, job.generation, map, 1);
      CHECK(job.told<Assemble>() == Workers{0});
      CHECK(job.killed.empty());
      job.group.received(0, SnapshotWritten{3, "step-3", ""});
      CHECK(job.snapshots.back() == 3);
      CHECK(job.killed == Workers{1});
      job.group.ended(1, kKilled);
      CHECK(job.spawned == 1);
      CHECK(job.restarts.empty());
      const auto forms = job.take<Form>();
      REQUIRE_FALSE(forms.empty());
      CHECK(forms.back().second.next_step == 3);
      CHECK(forms.back().second.restore == "step-3");
      CHECK_FALSE(job.group.job_end().has_value());
    }
  }
}

TEST_CASE("where its part cannot be saved, the job goes back or begins anew, as if the rank had died") {
  for (const BreakCause cause : kCauses) {
    for (const int64_t snapshot_every : {0, 2}) {
      CAPTURE(snapshot_every);
      PlayedJob job(2, snapshot_every);
      const Ownership map = dealt(11, 2);
      let_step(job, map, 3, snapshot_every);
      fail_thrice(job, map, cause);
      REQUIRE(job.told<Save>() == Workers{0, 1});
      job.write(0, job.generation, map, 0);
      CHECK(job.killed.empty());
      cannot_write(job, 1);
      CHECK(job.killed == Workers{1});
      job.group.ended(1, kKilled);
      CHECK(job.spawned == 1);
      CHECK(job.restarts == std::vector<int64_t>{snapshot_every});
      CHECK_FALSE(job.group.job_end().has_value());
    }
  }
}

TEST_CASE("where another rank dies or cannot write while all save for one that fails, that one is replaced, too") {
  for (const bool dies : {true, false}) {
    CAPTURE(dies);
    PlayedJob job(2, 0);
    const Ownership map = dealt(11, 2);
    let_step(job, map, 3, 0);
    fail_thrice(job, map, BreakCause::kFault);
    REQUIRE(job.told<Save>() == Workers{0, 1});
    job.write(1, job.generation, map, 1);
    dies ? job.group.ended(0, kKilled) : cannot_write(job, 0);
    CHECK(job.killed == Workers{1});
    job.start(2, 3);
    job.group.ended(1, kKilled);
    CHECK(job.spawned == (dies ? 2 : 1));
    CHECK(job.restarts == std::vector<int64_t>{0});
    CHECK_FALSE(job.group.job_end().has_value());
  }
}

TEST_CASE("a rank that hangs while all save for one that fails is named and killed after the hang time-out") {
  for (const WorkerId hangs : {0, 1}) {
    CAPTURE(hangs);
    GroupOptions options = options_for(2, 0);
    options.hang_timeout_s = 30;
    PlayedJob job(options);
    const Ownership map = dealt(11, 2);
    let_step(job, map, 3, 0);
    fail_thrice(job, map, BreakCause::kFault);
    job.write(1 - hangs, job.generation, map, static_cast<int32_t>(1 - hangs));
    for (int tick = 0; tick < 70; ++tick) {
      job.seconds += 0.5;
      job.group.tick();
    }
    CHECK(job.killed == (hangs == 0 ? Workers{0, 1} : Workers{1}));
    CHECK_FALSE(job.group.job_end().has_value());
  }
}

TEST_CASE("a stop while all save for a rank that fails ends the job with that snapshot") {
  PlayedJob job(2, 0);
  const Ownership map = dealt(11, 2);
  let_step(job, map, 3, 0);
  fail_thrice(job, map, BreakCause::kFault);
  job.group.request_stop(SIGINT);
  job.write(0, job.generation, map, 0);
  job.write(1, job.generation, map, 1);
  CHECK(job.told<Assemble>() == Workers{0});
  job.group.received(0, SnapshotWritten{3, "step-3", ""});
  CHECK(job.snapshots == std::vector<int64_t>{3});
  job.group.ended(0, {});
  job.group.ended(1, {});
  REQUIRE(job.group.job_end().has_value());
  CHECK(was_stopped(*job.group.job_end()));
}

TEST_CASE("without replacements that ends a sharded job in the rank's words, and all save") {
  for (const bool none_left : {true, false}) {
    CAPTURE(none_left);
    GroupOptions options = options_for(2, 0);
    if (none_left) options.max_restarts = 0;
    if (!none_left) options.on_loss = "shrink";
    PlayedJob job(options);
    const Ownership map = dealt(11, 2);
    let_step(job, map, 1, 0);
    fail_thrice(job, map, BreakCause::kShortage);
    CHECK(job.told<Save>() == Workers{0, 1});
    job.write(0, job.generation, map, 0);
    job.write(1, job.generation, map, 1);
    CHECK(job.told<Assemble>() == Workers{0});
    job.group.received(0, SnapshotWritten{1, "step-1", ""});
    CHECK(job.killed == Workers{0, 1});
    job.group.ended(0, kKilled);
    job.group.ended(1, kKilled);
    REQUIRE(job.group.job_end().has_value());
    CHECK(has_failed(*job.group.job_end(), Origin::kPlugin));
    CHECK(job.group.job_end()->reason.find("something is missing") != std::string::npos);
  }
}

TEST_CASE("a snapshot that one rank refuses ends the job at once, in its words and with the code of a refused config") {
  PlayedJob job(options_for(2, 0), 3, SnapshotRecord{3, "step-3"});
  job.start(0, 2);
  REQUIRE(job.join() == Workers{0, 1});
  const std::string why = "step-3: it belongs to another model";
  for (const WorkerId id : {1, 0}) job.group.received(id, Broken{job.generation, why, BreakCause::kRefused});
  CHECK(job.killed == Workers{0, 1});
  CHECK(job.told<Save>().empty());
  CHECK(job.spawned == 0);
  CHECK(job.generation == 1);
  CHECK(job.log.empty());
  for (const WorkerId id : {0, 1}) job.group.ended(id, kKilled);
  REQUIRE(job.group.job_end().has_value());
  CHECK(has_failed(*job.group.job_end(), Origin::kInput));
  CHECK(job.group.job_end()->reason == why);
}

}  // namespace pliant::elastic
