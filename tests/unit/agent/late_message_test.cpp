// Messages of ranks of a sharded job that reach the agent late, one by one: over their own sockets they overtake one
// another, and some are of a generation or of a draft that is over.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

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
  job.group.request_stop(130);
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
  job.group.request_stop(130);
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
  REQUIRE(job.group.verdict().has_value());
  CHECK(job.group.verdict()->exit_code == 1);
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
    job.group.request_stop(130);
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
    REQUIRE(job.group.verdict().has_value());
    CHECK(job.group.verdict()->exit_code == 130);
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
  job.group.request_stop(130);
  job.commit({1, 2});
  job.group.ended(1, kKilled);  // before it has said anything of a snapshot to which it has nothing to add
  REQUIRE(job.told<Save>() == Workers{2});
  job.write(2, 2, after, 1);
  CHECK(job.told<Assemble>() == Workers{2});
  job.group.received(2, SnapshotWritten{2, "step-2", ""});
  job.group.ended(2, {});
  CHECK(job.snapshots == std::vector<int64_t>{2});
  CHECK(job.restarts.empty());
  REQUIRE(job.group.verdict().has_value());
  CHECK(job.group.verdict()->exit_code == 130);
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

/// Rank 1 is short of something three times; the other one stays well.
void run_short(PlayedJob& job, const Ownership& map) {
  for (int time = 0; time < 3; ++time) {
    CHECK(job.killed.empty());
    job.group.received(1, Broken{job.generation, "no descriptor is left", BreakCause::kShortage});
    if (time < 2) job.form(map);
  }
}

}  // namespace

TEST_CASE("a rank of a sharded job that is short of something for the third time is replaced, and the job goes back") {
  PlayedJob job(2, 2);
  const Ownership map = dealt(11, 2);
  job.start(0, 2);
  job.form(map);
  job.commit({0, 1});
  job.commit({0, 1});
  job.write(0, 1, map, 0);
  job.write(1, 1, map, 1);
  job.group.received(0, SnapshotWritten{2, "step-2", ""});
  REQUIRE(job.snapshots == std::vector<int64_t>{2});
  job.commit({0, 1});
  run_short(job, map);
  CHECK(job.killed == Workers{1});
  CHECK(job.log.find("and is then replaced") == std::string::npos);  // one alone can save nothing
  job.group.ended(1, kKilled);
  CHECK(job.spawned == 1);
  CHECK(job.restarts == std::vector<int64_t>{2});
  CHECK_FALSE(job.group.verdict().has_value());
}

TEST_CASE("where there is no snapshot to go back to, that ends a sharded job in the rank's words, and all save") {
  PlayedJob job(2, 0);
  const Ownership map = dealt(11, 2);
  job.start(0, 2);
  job.form(map);
  job.commit({0, 1});
  run_short(job, map);
  CHECK(job.told<Save>() == Workers{0, 1});
  job.write(0, job.generation, map, 0);
  job.write(1, job.generation, map, 1);
  CHECK(job.told<Assemble>() == Workers{0});
  job.group.received(0, SnapshotWritten{1, "step-1", ""});
  CHECK(job.killed == Workers{0, 1});
  job.group.ended(0, kKilled);
  job.group.ended(1, kKilled);
  REQUIRE(job.group.verdict().has_value());
  CHECK(job.group.verdict()->exit_code == 3);
  CHECK(job.group.verdict()->reason.find("no descriptor is left") != std::string::npos);
}

}  // namespace pliant::elastic
