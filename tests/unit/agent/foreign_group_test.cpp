// Group restarts of programs that do not use the embedding API.
#include <doctest/doctest.h>
#include <signal.h>

#include <vector>

#include "elastic/agent/foreign_group.hpp"
#include "unit/agent/job_ends.hpp"

using namespace pliant::elastic;

namespace {

// Starts "workers" with numbers that rise, and notes what was asked for.
struct Script final : ForeignActions {
  ForeignGroup* group = nullptr;
  WorkerId next = 0;
  std::vector<int64_t> sizes;
  std::vector<std::pair<WorkerId, int>> signals;
  std::vector<std::string> events;
  double time = 0;

  void spawn_group(int64_t world_size, int64_t) override {
    sizes.push_back(world_size);
    for (int64_t rank = 0; rank < world_size; ++rank) group->started(next++, rank);
  }
  void signal(WorkerId worker, int number) override { signals.emplace_back(worker, number); }
  void event(const std::string& line, bool) override { events.push_back(line); }
  double now() const override { return time; }
};

constexpr double kPastStart = 60;

ForeignOptions four_workers(std::string on_loss, int64_t max_restarts) {
  return {{{1, 1}, {2, 1}, {4, 1}}, 4, std::move(on_loss), max_restarts, 15};
}

}  // namespace

TEST_CASE("a group whose workers all exit 0 is finished, in whatever order they do") {
  Script script;
  ForeignGroup group(four_workers("replace", 3), script);
  script.group = &group;
  script.spawn_group(4, 0);
  for (const WorkerId id : {2, 0, 3}) group.ended(id, {false, 0});
  CHECK_FALSE(group.job_end());
  group.ended(1, {false, 0});
  REQUIRE(group.job_end());
  CHECK(is_finished(*group.job_end()));
}

TEST_CASE("a worker that fails ends the others with SIGTERM and the group is started again") {
  Script script;
  ForeignGroup group(four_workers("replace", 3), script);
  script.group = &group;
  script.spawn_group(4, 0);
  script.time = kPastStart;
  group.ended(1, {false, 1});
  CHECK(script.signals == std::vector<std::pair<WorkerId, int>>{{0, SIGTERM}, {2, SIGTERM}, {3, SIGTERM}});
  script.time += 16;
  group.tick();
  CHECK(script.signals.back() == std::pair<WorkerId, int>{3, SIGKILL});
  for (const WorkerId id : {0, 2, 3}) group.ended(id, {true, SIGKILL});
  CHECK(script.sizes == std::vector<int64_t>{4, 4});
  CHECK(group.restarts() == 1);
}

TEST_CASE("a group that shrinks takes the next valid world size below") {
  Script script;
  ForeignGroup group(four_workers("shrink", 9), script);
  script.group = &group;
  script.spawn_group(4, 0);
  script.time = kPastStart;
  WorkerId first = 0;
  for (const int64_t size : {4, 2, 1}) {
    for (WorkerId id = first; id < first + size; ++id) group.ended(id, {false, 1});
    first += size;
  }
  CHECK(script.sizes == std::vector<int64_t>{4, 2, 1});
  CHECK(group.world_size() == 1);
  CHECK(group.shrunk_by() == "rank 0 exited with code 1");
  REQUIRE(group.job_end());
  CHECK(has_no_world_size(*group.job_end()));
  REQUIRE(group.job_end()->worker);
  CHECK(group.job_end()->worker->exit_code == 1);
}

TEST_CASE("restarts are limited and the reason names rank and code") {
  Script script;
  ForeignGroup group(four_workers("replace", 0), script);
  script.group = &group;
  script.spawn_group(4, 0);
  group.ended(3, {false, 7});
  for (const WorkerId id : {0, 1, 2}) group.ended(id, {true, SIGTERM});
  REQUIRE(group.job_end());
  CHECK(has_failed(*group.job_end()));
  CHECK(group.job_end()->reason == "rank 3 exited with code 7; 0 of 0 restarts used");
  REQUIRE(group.job_end()->worker);
  CHECK(group.job_end()->worker->exit_code == 7);
}

TEST_CASE("a program that fails alike on all ranks at its start ends the job at once, with one message") {
  Script script;
  ForeignGroup group(four_workers("replace", 3), script);
  script.group = &group;
  script.spawn_group(4, 0);
  for (const WorkerId id : {2, 0, 1, 3}) {
    CHECK_FALSE(group.job_end());
    script.time += 0.2;
    group.ended(id, {false, 1, "rank " + std::to_string(id) + ": no module named torch"});
  }
  REQUIRE(group.job_end());
  CHECK(has_failed(*group.job_end()));
  CHECK(
      group.job_end()->reason ==
      "all 4 workers exited with code 1: rank 2: no module named torch; all failed the same way at the start, so they "
      "are not restarted");
  CHECK(script.events.empty());
  CHECK(script.signals.empty());
  CHECK(group.restarts() == 0);
}

TEST_CASE("one that fails in another way than the rest at the start is a failure like any other") {
  for (const ExitStatus& other : {ExitStatus{false, 2, "no file"}, ExitStatus{false, 1, "no such host"},
                                  ExitStatus{false, 0}, ExitStatus{true, SIGKILL}}) {
    Script script;
    ForeignGroup group(four_workers("replace", 3), script);
    script.group = &group;
    script.spawn_group(4, 0);
    group.ended(0, {false, 1, "no file"});
    CHECK(script.signals.empty());
    group.ended(1, other);
    CHECK(script.events == std::vector<std::string>{"rank 0 exited with code 1: no file"});
    CHECK(script.signals == std::vector<std::pair<WorkerId, int>>{{2, SIGTERM}, {3, SIGTERM}});
    for (const WorkerId id : {2, 3}) group.ended(id, {true, SIGTERM});
    CHECK_FALSE(group.job_end());
    CHECK(group.restarts() == 1);
  }
}

TEST_CASE("others are waited for a second, to fail alike at the start") {
  Script script;
  ForeignGroup group(four_workers("replace", 3), script);
  script.group = &group;
  script.spawn_group(4, 0);
  group.ended(0, {false, 1, "no file"});
  script.time = 0.9;
  group.tick();
  CHECK(script.signals.empty());
  script.time = 1.1;
  group.tick();
  CHECK(script.signals.size() == 3);
  for (const WorkerId id : {1, 2, 3}) group.ended(id, {false, 1, "no file"});  // as they were ended
  CHECK(group.restarts() == 1);
  group.ended(4, {false, 1, "no file"});  // it is the first start that counts
  CHECK(script.signals.size() == 6);
}

TEST_CASE("several workers that are killed by one signal at their start were killed, one was") {
  const ExitStatus fault{true, SIGSEGV};
  CHECK(describe(fault) == "was killed by signal 11 (Segmentation fault)");
  CHECK(
      all_ended_alike(2, "worker 0 was killed", fault) ==
      "all 2 workers were killed by signal 11 (Segmentation fault); all failed the same way at the start, so they are "
      "not restarted");
  CHECK(all_ended_alike(1, "worker 0 was killed", fault) ==
        "worker 0 was killed; it failed at the start, so it is not restarted");
  CHECK(all_ended_alike(3, "worker 0 exited", {false, 2, "no file"}) ==
        "all 3 workers exited with code 2: no file; all failed the same way at the start, so they are not restarted");
}
