// What a coordinator has learnt of a job whose state is cut over the workers: it goes on with the ranks and with
// snapshots.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "integration/sharded_jobs.hpp"

using namespace pliant::test;

TEST_CASE("the summary says how many passes followed the order that the coordinator had recorded") {
  const auto passes_of = [](const std::vector<std::string>& sets) {
    JobRunner job;
    const Ended ended = job.run(sharded_job(2, sets));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    return ended.summary.value("passes_of_a_rank", nlohmann::json());
  };
  const nlohmann::json steady = passes_of({});
  const int64_t all = steady.at("all");
  CHECK(all >= kShardedSteps);
  CHECK(steady.at("followed") == all - 1);  // the first is recorded
  const nlohmann::json untied = passes_of({"app.untie_after=6"});
  CHECK(untied.at("all") == all);
  CHECK(untied.at("followed") == all - 2);  // and the first after the change
  CHECK(passes_of({"coordinator.use=\"eager\""}).is_null());
}

namespace {

/// A job whose coordinator counts passes, decides by that, and keeps the count.
std::vector<std::string> remembering_job(int64_t workers, std::vector<std::string> sets = {}) {
  sets.emplace_back("coordinator.use=\"remembering\"");
  std::vector<std::string> words = sharded_job(workers, sets);
  words.insert(words.end(), {"--plugin-dir", PLIANT_TEST_REMEMBERING_DIR, "--show-logs"});
  return words;
}

/// Passes of the worker with most of them that began with nothing remembered.
int64_t passes_anew(const Ended& ended) {
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  const nlohmann::json& passes = ended.summary.at("passes_of_a_rank");
  return passes.at("all").get<int64_t>() - passes.at("followed").get<int64_t>();
}

}  // namespace

TEST_CASE("what a coordinator has learnt goes on with the ranks that leave or join, and comes back with a snapshot") {
  for (const char* const disturbance : {"leave:rank=2,step=6", "kill:rank=2,step=6", "leave:rank=1,step=7"}) {
    CAPTURE(disturbance);
    JobRunner job;
    const Ended ended = job.run(disturbed(remembering_job(4), {disturbance}));
    CHECK(passes_anew(ended) == 1);  // the first of all
    CHECK(last_state(job) == undisturbed());
    CHECK_FALSE(has(ended.err, "starts without its saved state"));
  }
}

TEST_CASE("a job that is resumed goes on with what its coordinator had learnt, or says why not") {
  struct Again {
    std::vector<std::string> sets;
    int64_t anew;
    const char* said;
  };
  const std::string longer = "run.max_steps=16";
  const std::string expected = [&] {
    JobRunner job;
    return state_after(job, sharded_job(1, {longer, "coordinator.use=\"eager\""}));
  }();
  const std::string refuses = "coordinator.remembering.refuses=true";
  for (const Again& again :
       {Again{{longer}, 0, ""}, Again{{longer, refuses}, 1, "it remembers nothing of that"},
        Again{{longer, "run.workers=2"}, 0, ""},
        Again{{longer, "coordinator.budget=1000000"}, 1, "it belongs to another coordinator or another model"}}) {
    JobRunner job;
    CHECK(passes_anew(job.run(remembering_job(4))) == 1);
    std::vector<std::string> words = remembering_job(4, again.sets);
    words.emplace_back("--resume");
    const Ended resumed = job.run(words);
    CHECK(passes_anew(resumed) == again.anew);
    CHECK(has(resumed.err, "'remembering' starts without its saved state: ") == (again.anew > 0));
    CHECK(has(resumed.err, again.said));
    CHECK(last_state(job) == expected);
  }
}

TEST_CASE("ranks that have kept different things begin anew together, and so do those with another model by now") {
  JobRunner job;
  const Ended ended =
      job.run(disturbed(remembering_job(4, {"coordinator.remembering.differs=true"}), {"leave:rank=2,step=6"}));
  CHECK(passes_anew(ended) == 2);
  CHECK(has(ended.err,
            "starts without its saved state: the ranks do not all have the same saved state or cannot all use it"));
  CHECK(last_state(job) == undisturbed());
  JobRunner calm;
  const std::string untied = "app.untie_after=5";
  const std::string expected = state_after(calm, sharded_job(1, {untied, "coordinator.use=\"eager\""}));
  for (const char* const disturbance : {"leave:rank=2,step=8", "kill:rank=1,step=9"}) {
    JobRunner other;
    // The first, and the first after the change; more where who joins has not made the change yet.
    CHECK(passes_anew(other.run(disturbed(remembering_job(4, {untied}), {disturbance}))) >= 2);
    CHECK(last_state(other) == expected);
  }
}

TEST_CASE("planned goes on with what it has learnt: with ranks that leave or join, and from a snapshot of its own") {
  const std::string planned = "coordinator.use=\"planned\"";
  const std::string longer = "run.max_steps=16";
  const std::string expected = [&] {
    JobRunner job;
    return state_after(job, sharded_job(1, {longer, "coordinator.use=\"eager\""}));
  }();
  struct Again {
    std::vector<std::string> sets;
    int64_t anew;
  };
  for (const Again& again :
       {Again{{longer}, 0}, Again{{longer, "run.workers=2"}, 0}, Again{{longer, "coordinator.planned.ahead=0"}, 0},
        Again{{longer, "coordinator.budget=65536"}, 1}}) {  // of another model, so to say
    CAPTURE(again.sets.back());
    JobRunner job;
    const Ended ended = job.run(disturbed(sharded_job(4, {planned}), {"leave:rank=2,step=6"}));
    CHECK(passes_anew(ended) == 1);  // the first of all
    CHECK(last_state(job) == undisturbed());
    std::vector<std::string> sets = again.sets;
    sets.push_back(planned);
    std::vector<std::string> words = sharded_job(4, sets);
    words.insert(words.end(), {"--resume", "--show-logs"});
    const Ended resumed = job.run(words);
    CHECK(passes_anew(resumed) == again.anew);
    CHECK(has(resumed.err, "'planned' starts without its saved state: ") == (again.anew > 0));
    CHECK(last_state(job) == expected);
  }
}
