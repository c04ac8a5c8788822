// The step protocol under random orders of events and random deaths.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "unit/agent/job_ends.hpp"
#include "unit/agent/simulated_job.hpp"

using namespace pliant::elastic;

namespace {

// Sanitizers make a history many times as slow, and see in some of them what they would see in all.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kShare = 5;
#else
constexpr int kShare = 1;
#endif

GroupOptions options_for(int64_t workers, std::string on_loss) {
  GroupOptions options;
  options.workers = workers;
  options.micro_batch_of = {{1, 4}, {2, 4}, {4, 2}};
  options.on_loss = std::move(on_loss);
  options.max_restarts = 100;
  options.start_timeout_s = options.hang_timeout_s = 1e9;
  options.snapshot_every = 3;
  options.compare_states = true;
  return options;
}

std::string tail(const std::vector<std::string>& log) {
  std::string text;
  for (size_t i = log.size() > 12 ? log.size() - 12 : 0; i < log.size(); ++i) text += log[i] + "\n";
  return text;
}

}  // namespace

TEST_CASE("an undisturbed job commits every step once in one generation") {
  SimulatedJob job(options_for(4, "replace"), 20, 1, {});
  const auto end = job.run();
  REQUIRE(end);
  CHECK(is_finished(*end));
  CHECK(job.lineage().size() == 20);
  CHECK(job.lineage().back().generation == 1);
  CHECK(job.finished_states().size() == 4);
  REQUIRE(job.evaluations.size() == 6);
  CHECK(job.evaluations.back().step == 18);
  CHECK(job.evaluations.back().ranks == 4);
}

TEST_CASE("whatever dies whenever, every step is committed once and workers and snapshot end with the lineage") {
  int kills = 0;
  for (uint32_t seed = 0; seed < 3000 / kShare; ++seed) {
    SimulatedJob job(options_for(4, "replace"), 12, seed,
                     {.kills = static_cast<int>(seed % 6), .in_place = seed % 2 == 0});
    const auto end = job.run();
    kills += job.kills_done();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(is_finished(*end));
    REQUIRE(job.lineage().size() == 12);
    REQUIRE(job.saved() == job.lineage());
    for (size_t i = 0; i < job.lineage().size(); ++i) REQUIRE(job.lineage()[i].step == static_cast<int64_t>(i));
    for (const auto& state : job.finished_states()) {
      if (state.size() == job.lineage().size()) REQUIRE(state == job.lineage());
    }
  }
  CHECK(kills > 3000 / kShare);
}

TEST_CASE(
    "ranks that are busy as long as they say are not killed, nor those that wait for them, whoever dies beside them") {
  int64_t busy = 0;
  for (uint32_t seed = 0; seed < 400 / kShare; ++seed) {
    GroupOptions options = options_for(4, "replace");
    options.hang_timeout_s = 4;
    const int kills = static_cast<int>(seed % 3);
    SimulatedJob job(
        options, 12, seed,
        {.kills = kills, .one_in = 30, .sharded = seed % 2 == 0, .busies = 1 + static_cast<int>(seed % 4)});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(is_finished(*end));
    REQUIRE(job.lineage().size() == 12);
    for (const std::string& line : job.log()) REQUIRE(line.find("hang_timeout_s") == std::string::npos);
    for (const std::string& line : job.log()) REQUIRE(line.find("was busy") == std::string::npos);
    if (kills == 0) REQUIRE(job.healthy_killed() == 0);
    if (job.longest_gap() > 8000) ++busy;
  }
  CHECK(busy > 200 / kShare);
}

TEST_CASE("a job whose last rank asks for the end ends after that step, saved, whoever dies") {
  for (uint32_t seed = 0; seed < 1000 / kShare; ++seed) {
    SimulatedJob job(options_for(4, "replace"), 12, seed,
                     {.kills = static_cast<int>(seed % 5), .sharded = seed % 2 == 0, .ends_after = 6});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(ended_early(*end));
    REQUIRE(job.lineage().size() == 7);
    REQUIRE(job.saved() == job.lineage());
  }
}

TEST_CASE("a rank that is busy for longer than it said is a death like any other, and is named") {
  int64_t named = 0;
  for (uint32_t seed = 0; seed < 200 / kShare; ++seed) {
    GroupOptions options = options_for(4, "replace");
    options.hang_timeout_s = 4;
    SimulatedJob job(options, 12, seed, {.one_in = 30, .sharded = seed % 2 == 0, .busies = 1, .busy_says_s = 5});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(is_finished(*end));
    REQUIRE(job.lineage().size() == 12);
    REQUIRE(job.healthy_killed() <= 1);
    named += std::count_if(job.log().begin(), job.log().end(), [](const std::string& line) {
      return line.find("with evaluation, for which it had announced 5.0 s at most") != std::string::npos;
    });
  }
  CHECK(named > 100 / kShare);
}

TEST_CASE("where each worker holds a part of the state, a death takes the job back to a snapshot and no further") {
  int kills = 0;
  for (uint32_t seed = 0; seed < 2000 / kShare; ++seed) {
    SimulatedJob job(options_for(4, "replace"), 12, seed,
                     {.kills = static_cast<int>(seed % 5), .one_in = 120, .sharded = true});
    const auto end = job.run();
    kills += job.kills_done();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(is_finished(*end));
    REQUIRE(job.lineage().size() == 12);
    REQUIRE(job.saved() == job.lineage());
    for (const auto& state : job.finished_states()) {
      if (state.size() == job.lineage().size()) REQUIRE(state == job.lineage());
    }
  }
  CHECK(kills > 2000 / kShare);
}

TEST_CASE("where there are fewer chunks than ranks, a death of one that owns none costs no step") {
  int kills = 0;
  int restarts = 0;
  for (uint32_t seed = 0; seed < 2000 / kShare; ++seed) {
    const auto chunks = static_cast<int32_t>(seed % 4);
    GroupOptions options = options_for(4, "replace");
    if (seed % 3 == 0) options.injections.push_back({.leave = true, .rank = seed % 4, .step = 2 + seed % 7});
    SimulatedJob job(options, 12, seed,
                     {.kills = static_cast<int>(seed % 5),
                      .one_in = 120,
                      .freezes = seed % 7 == 0 ? 2 : 0,
                      .sharded = true,
                      .chunks = chunks});
    const auto end = job.run();
    kills += job.kills_done();
    if (chunks <= 1) restarts += job.restarts_of_lineage();
    INFO("seed " << seed << ", chunks " << chunks << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(is_finished(*end));
    REQUIRE(job.lineage().size() == 12);
    REQUIRE(job.saved() == job.lineage());
  }
  CHECK(kills > 2000 / kShare);
  CHECK(restarts > 0);
  CHECK(restarts < kills / 4);
}

TEST_CASE("a rank that is announced to leave costs no step, with whole states and with parts, whoever dies beside it") {
  int64_t moved = 0;
  int left = 0;
  for (uint32_t seed = 0; seed < 2000 / kShare; ++seed) {
    GroupOptions options = options_for(4, "replace");
    options.micro_batch_of[3] = 2;
    options.snapshot_every = seed % 3 == 0 ? 0 : 3;
    const int64_t step = 2 + seed % 7;
    options.injections.push_back({.leave = true, .rank = seed % 4, .step = step});
    if (seed % 5 == 0) options.injections.push_back({.leave = true, .rank = (seed + 1) % 4, .step = step});
    const bool sharded = seed % 2 == 0;
    const int kills = static_cast<int>(seed % 8 / 2);
    const int freezes = seed % 3 == 1 ? 2 : 0;
    SimulatedJob job(options, 12, seed,
                     {.kills = kills, .one_in = 120, .freezes = freezes, .stillborn = 2, .sharded = sharded});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(is_finished(*end));
    REQUIRE(job.lineage().size() == 12);
    REQUIRE(job.saved() == job.lineage());
    if (kills == 0) REQUIRE(job.restarts_of_lineage() == 0);
    if (kills == 0 && freezes == 0) REQUIRE(job.generations().back().second.world_size == (seed % 5 == 0 ? 2 : 3));
    for (const std::string& line : job.log()) left += line.find("has left") != std::string::npos ? 1 : 0;
    moved += job.chunks_moved();
  }
  CHECK(left > 1400 / kShare);
  CHECK(moved > 2000 / kShare);
}

TEST_CASE("a part of the state that reaches its new owner with other bytes takes the job back to a snapshot, by name") {
  int back = 0;
  for (uint32_t seed = 0; seed < 500 / kShare; ++seed) {
    GroupOptions options = options_for(4, "replace");
    options.micro_batch_of[3] = 2;
    options.snapshot_every = seed % 4 == 0 ? 0 : 3;
    options.injections.push_back({.leave = true, .rank = seed % 4, .step = 2 + seed % 7});
    SimulatedJob job(options, 12, seed, {.sharded = true, .spoilt_moves = 1});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(is_finished(*end));
    REQUIRE(job.lineage().size() == 12);
    REQUIRE(job.saved() == job.lineage());
    REQUIRE(std::count_if(job.log().begin(), job.log().end(), [](const std::string& line) {
              return line.find("reported a failure: chunk 4 came with other bytes") != std::string::npos;
            }) >= 1);
    back += job.restarts_of_lineage();
  }
  CHECK(back > 300 / kShare);
}

TEST_CASE("a sharded job that is stopped, or some of whose workers are, ends with all parts of its state on disk") {
  for (uint32_t seed = 0; seed < 1000 / kShare; ++seed) {
    SimulatedJob job(options_for(4, "replace"), 12, seed,
                     {.kills = static_cast<int>(seed % 2),
                      .stop_after = static_cast<int>(60 + seed % 200),
                      .freezes = static_cast<int>(seed % 3),
                      .sharded = true});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    CHECK((is_finished(*end) || was_stopped(*end)));
    // A stop while no group stands, after a loss, leaves the newest snapshot.
    if (is_finished(*end)) REQUIRE(job.saved() == job.lineage());
  }
}

namespace {

// Three ranks, a fourth that joins, and one that leaves.
SimulatedJob job_that_moves(uint32_t seed, Disturbances disturbances) {
  GroupOptions options = options_for(3, "replace");
  options.micro_batch_of[3] = 2;
  options.snapshot_every = seed % 2 == 0 ? 0 : 3;
  options.injections.push_back({.leave = true, .rank = seed % 3, .step = 3});
  disturbances.sharded = true;
  disturbances.joins_after = 40 + 20 * static_cast<int64_t>(seed % 5);
  return {options, 6, seed, disturbances};
}

}  // namespace

TEST_CASE("a sharded job that is stopped, or fails, at whatever moment of a move ends with its last step on disk") {
  int64_t moved = 0;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    for (int64_t at = 1;; at += kShare) {
      const int32_t chunks = seed % 4 == 3 ? 2 : 11;  // fewer than ranks: some changes move none
      SimulatedJob stopped = job_that_moves(seed, {.stop_after = static_cast<int>(at), .chunks = chunks});
      SimulatedJob failing = job_that_moves(seed, {.chunks = chunks, .fails_after = at});
      for (SimulatedJob* const job : {&stopped, &failing}) {
        const auto end = job->run();
        INFO((job == &stopped ? "stopped" : "failing") << " after " << at << ", seed " << seed << "\n"
                                                       << tail(job->log()) << job->violation());
        REQUIRE(job->violation().empty());
        REQUIRE(end);
        REQUIRE((is_finished(*end) || (job == &stopped ? was_stopped(*end) : has_failed(*end))));
        REQUIRE(job->saved() == job->lineage());
      }
      moved += stopped.chunks_moved();
      if (stopped.events() < at) break;
    }
  }
  CHECK(moved > 1000 / kShare);
}

TEST_CASE("a sharded job that is stopped, or fails, while ranks die in a move ends, and no snapshot has a hole") {
  int unknown = 0;
  int saved = 0;
  for (uint32_t seed = 0; seed < 6000 / kShare; ++seed) {
    const int64_t at = 60 + seed % 400;
    Disturbances disturbances{.kills = 1 + static_cast<int>(seed % 2), .one_in = 150};
    if (seed % 3 == 0) {
      disturbances.fails_after = at;
    } else {
      disturbances.stop_after = static_cast<int>(at);
    }
    if (seed % 5 == 0) disturbances.freezes = 2;
    SimulatedJob job = job_that_moves(seed, disturbances);
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE((is_finished(*end) || has_failed(*end) || was_stopped(*end)));
    const std::vector<SimulatedJob::Entry> state = job.saved();
    REQUIRE(state.size() <= job.lineage().size());
    REQUIRE(std::equal(state.begin(), state.end(), job.lineage().begin()));
    saved += state == job.lineage() ? 1 : 0;
    for (const std::string& line : job.log()) {
      unknown += line.find("it holds a part of a state") != std::string::npos ? 1 : 0;
    }
  }
  CHECK((kShare > 1 || unknown > 0));  // so few seeds may not meet it
  CHECK(saved > 4000 / kShare);
}

TEST_CASE("a rank that stays stopped in a move does not keep a sharded job from its end, nor from its last step") {
  for (uint32_t seed = 0; seed < 1000 / kShare; ++seed) {
    const int64_t at = 60 + seed % 400;
    Disturbances disturbances{.one_in = 150, .freezes = 1, .longest_freeze = 100000000};
    if (seed % 2 == 0) {
      disturbances.fails_after = at;
    } else {
      disturbances.stop_after = static_cast<int>(at);
    }
    SimulatedJob job = job_that_moves(seed, disturbances);
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(job.saved() == job.lineage());
  }
}

TEST_CASE("parts of a snapshot that do not fit one another are not put together, and the job says so") {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const bool map = seed % 2 == 0;
    SimulatedJob job(options_for(2, "replace"), 6, seed, {.sharded = true, .other_rest = !map, .other_map = map});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    CHECK(has_failed(*end));
    CHECK(end->reason.find(map ? "it wrote its part with another map of owners"
                               : "the ranks have different learning-rate states or other small state") !=
          std::string::npos);
    CHECK(job.saved().empty());
  }
}

TEST_CASE(
    "a worker that loads other data than the most is named and replaced, whoever is ready first, and writes none") {
  int was_first = 0;
  int was_last = 0;
  for (uint32_t seed = 0; seed < 600 / kShare; ++seed) {
    const int64_t workers = seed % 2 == 0 ? 3 : 4;
    const int64_t odd = seed / 2 % workers;
    GroupOptions options = options_for(workers, seed % 3 == 0 ? "shrink" : "replace");
    options.micro_batch_of[3] = 2;
    SimulatedJob job(options, 6, seed, {.odd = uint64_t{1} << odd});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(is_finished(*end));
    REQUIRE(job.saved() == job.lineage());
    REQUIRE(job.restarts() == (options.on_loss == "replace" ? 1 : 0));
    REQUIRE(std::count(job.data_writers().begin(), job.data_writers().end(), odd) == 0);
    REQUIRE(std::count_if(job.log().begin(), job.log().end(), [&](const std::string& line) {
              return line.find(fmt::format("worker {} reads other data than the other workers", odd)) == 0;
            }) == 1);
    was_first += job.ready().front() == odd ? 1 : 0;
    was_last += job.ready()[static_cast<size_t>(workers) - 1] == odd ? 1 : 0;
  }
  CHECK(was_first > 100 / kShare);
  CHECK(was_last > 100 / kShare);
}

TEST_CASE("without a majority of what they load the job ends with 2 before a step, all named, and nobody has written") {
  for (uint32_t seed = 0; seed < 200 / kShare; ++seed) {
    const int64_t workers = seed % 2 == 0 ? 2 : 4;
    SimulatedJob job(options_for(workers, seed % 3 == 0 ? "shrink" : "replace"), 6, seed,
                     {.odd = workers == 2 ? seed / 2 % 2 + 1 : 6});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    CHECK(has_failed(*end, pliant::Origin::kInput));
    CHECK(end->reason.find("the workers do not agree on the job and there is no majority (") == 0);
    for (int64_t id = 0; id < workers; ++id) {
      CHECK(end->reason.find(fmt::format("worker {}: data of fingerprint ", id)) != std::string::npos);
    }
    CHECK(job.data_writers().empty());
    CHECK(job.lineage().empty());
  }
}

TEST_CASE("a writer of the data set that dies, is stopped or is short of something is followed by another") {
  int named = 0;
  for (uint32_t seed = 0; seed < 600 / kShare; ++seed) {
    SimulatedJob job(options_for(4, "replace"), 6, seed,
                     {.kills = static_cast<int>(seed % 3),
                      .one_in = 6,
                      .freezes = static_cast<int>(seed % 2),
                      .data_shortages = static_cast<int>(seed % 5)});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(is_finished(*end));
    REQUIRE(job.saved() == job.lineage());
    for (const std::string& line : job.log()) {
      named += line.find("cannot write the data set: no descriptor is left") != std::string::npos ? 1 : 0;
    }
  }
  CHECK(named > 600 / kShare);
  SimulatedJob changed(options_for(4, "replace"), 6, 0, {.data_changed = true});
  const auto end = changed.run();
  REQUIRE(end);
  CHECK(has_failed(*end, pliant::Origin::kInput));
  CHECK(end->reason == "it has changed");
  CHECK(changed.restarts() == 0);
}

TEST_CASE("of two workers that load different data the one that has that of the resumed run is right") {
  for (uint32_t seed = 0; seed < 100 / kShare; ++seed) {
    GroupOptions options = options_for(2, "replace");
    options.fingerprint = "data";
    SimulatedJob job(options, 6, seed, {.odd = seed % 2 + 1});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    CHECK(is_finished(*end));
    CHECK(job.restarts() == 1);
  }
}

TEST_CASE(
    "one that joins later and loads other data is named and replaced, and whoever dies at the start costs nothing") {
  int named = 0;
  for (uint32_t seed = 0; seed < 300 / kShare; ++seed) {
    SimulatedJob job(options_for(2, "replace"), 300, seed, {.kills = 1, .one_in = seed % 2 == 0 ? 4U : 60U, .odd = 4});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    const bool no_majority = end->reason.find("there is no majority") != std::string::npos;
    REQUIRE((no_majority ? has_failed(*end, pliant::Origin::kInput) : is_finished(*end)));
    for (const std::string& line : job.log()) {
      named += line.find("worker 2 reads other data than the other workers") == 0 ? 1 : 0;
    }
  }
  CHECK(named > 120 / kShare);
}

TEST_CASE(
    "workers that one after the other refuse the same end the job with their code and words, one alone does not") {
  for (uint32_t seed = 0; seed < 500 / kShare; ++seed) {
    const int64_t workers = seed % 3 == 0 ? 1 : seed % 3 == 1 ? 2 : 4;
    GroupOptions options = options_for(workers, seed % 7 == 0 ? "shrink" : "replace");
    if (seed % 5 == 0) options.max_restarts = 1;
    const bool sharded = seed % 2 == 0;
    SimulatedJob all(options, 6, seed, {.sharded = sharded, .refusing = 1000, .silent = seed % 3 == 0});
    const auto refused = all.run();
    INFO("seed " << seed << "\n" << tail(all.log()) << all.violation());
    REQUIRE(all.violation().empty());
    REQUIRE(refused);
    REQUIRE(has_failed(*refused, pliant::Origin::kInput));
    REQUIRE(refused->reason.find("exited with code 2: process ") != std::string::npos);
    REQUIRE(all.restarts() <= workers + 1);
    REQUIRE(all.lineage().size() <= 3);

    options = options_for(workers, "replace");
    const bool alike = seed % 4 < 2;
    SimulatedJob some(options, 6, seed, {.sharded = sharded, .refusing = alike ? 1 : 3, .alike = alike});
    const auto done = some.run();
    INFO("some, seed " << seed << "\n" << tail(some.log()) << some.violation());
    REQUIRE(some.violation().empty());
    REQUIRE(done);
    REQUIRE(is_finished(*done));
    REQUIRE(some.lineage().size() == 6);
  }
}

TEST_CASE("ranks that all fail in the first step end the job without a restart, one that fails alone is replaced") {
  int unrestarted = 0;
  for (uint32_t seed = 0; seed < 300 / kShare; ++seed) {
    const int64_t workers = 2 + seed % 3;
    const GroupOptions options = options_for(workers, "replace");
    const bool sharded = seed % 2 == 0;
    SimulatedJob all(options, 6, seed, {.sharded = sharded, .refusing = 1000, .exit_code = 1, .refuses_at = 0});
    const auto failed = all.run();
    INFO("seed " << seed << "\n" << tail(all.log()) << all.violation());
    REQUIRE(all.violation().empty());
    REQUIRE(failed);
    REQUIRE(has_failed(*failed, pliant::Origin::kRun));
    REQUIRE(all.lineage().empty());
    if (all.restarts() > 0) continue;  // one had not begun the step yet as the first ones failed
    ++unrestarted;
    CHECK(failed->reason.find("all workers failed in the first step, so they are not restarted") != std::string::npos);

    SimulatedJob some(options, 6, seed, {.sharded = sharded, .refusing = 1, .exit_code = 1, .refuses_at = 0});
    const auto done = some.run();
    INFO("some, seed " << seed << "\n" << tail(some.log()) << some.violation());
    REQUIRE(some.violation().empty());
    REQUIRE(done);
    REQUIRE(is_finished(*done));
    REQUIRE(some.restarts() == 1);
    REQUIRE(some.lineage().size() == 6);
  }
  CHECK(unrestarted > 20 / kShare);
}

TEST_CASE(
    "where each worker holds a part of the state, one that is stopped costs no healthy process, whenever that is") {
  int continued = 0;
  for (uint32_t seed = 0; seed < 2000 / kShare; ++seed) {
    GroupOptions options = options_for(4, "shrink");  // a replacement that is not ready at the end is killed then
    options.hang_timeout_s = 1;
    const bool is_short = seed % 2 == 0;  // stopped as the last snapshot is written, more often
    const int64_t steps = is_short ? 2 : 30;
    SimulatedJob job(options, steps, seed,
                     {.one_in = is_short ? 60U : 300U,
                      .freezes = 1 + static_cast<int>(seed % 4 / 2),
                      .sharded = true,
                      .longest_freeze = 100000000});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(is_finished(*end));
    REQUIRE(static_cast<int64_t>(job.lineage().size()) == steps);
    REQUIRE(job.saved() == job.lineage());
    REQUIRE(job.healthy_killed() == 0);
    for (const std::string& line : job.log())
      continued += line.find("would be lost with it") != std::string::npos ? 1 : 0;
  }
  CHECK(continued > 400 / kShare);
}

TEST_CASE(
    "a worker that comes to another state than the others, whichever and whenever, is replaced and spoils nothing") {
  int replaced = 0;
  for (uint32_t seed = 0; seed < 1000 / kShare; ++seed) {
    SimulatedJob job(options_for(4, "replace"), 12, seed, {.one_in = 20, .corrupt = true, .in_place = seed % 2 == 0});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(is_finished(*end));
    REQUIRE(job.saved() == job.lineage());
    for (const auto& state : job.finished_states())  // a spare's may be shorter
      REQUIRE(std::equal(state.begin(), state.end(), job.lineage().begin()));
    replaced += job.healthy_killed();
  }
  CHECK(replaced > 300 / kShare);
}

TEST_CASE("a worker that comes to another state by the last update is ended, and what is saved is right") {
  int ended = 0;
  for (uint32_t seed = 0; seed < 500 / kShare; ++seed) {
    SimulatedJob job(options_for(4, "replace"), 6, seed,
                     {.kills = static_cast<int>(seed % 3), .one_in = 40, .corrupt_last = true});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    const auto said = std::count_if(job.log().begin(), job.log().end(), [](const std::string& line) {
      return line.find("ended with another state than the other ranks") != std::string::npos;
    });
    ended += static_cast<int>(said);
    if (has_failed(*end)) {  // too few were left to tell
      REQUIRE(end->reason.find("the ranks ended with different states") != std::string::npos);
      REQUIRE(job.saved().size() < job.lineage().size());
      continue;
    }
    REQUIRE(is_finished(*end));
    if (said == 0) continue;  // the only one left, or killed before it was compared
    REQUIRE(job.saved() == job.lineage());
  }
  CHECK(ended > 200 / kShare);
}

TEST_CASE("what a joiner copied counts for nothing but what it is of, and a wrong state never wins by copies") {
  int anew = 0;
  int disputes = 0;
  for (uint32_t seed = 0; seed < 3000 / kShare; ++seed) {
    // Of six one is a spare, which copies at once where another dies. Of three all wait for a fresh one, and if the
    // wrong one gave it its state, two of three would hold that.
    const bool is_small = seed % 3 == 0;
    GroupOptions options = options_for(is_small ? 3 : 6, "replace");
    options.micro_batch_of = {{3, 4}};
    if (!is_small) options.micro_batch_of = {{1, 4}, {3, 4}, {5, 2}};
    SimulatedJob job(options, 12, seed,
                     {.kills = is_small ? 1 : 1 + static_cast<int>(seed % 2),
                      .one_in = 20,
                      .corrupt = true,
                      .in_place = seed % 2 == 0});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    anew += static_cast<int>(std::count_if(job.log().begin(), job.log().end(), [](const std::string& line) {
      return line.find("it copies again") != std::string::npos;
    }));
    if (has_failed(*end)) {
      REQUIRE(end->reason.find("different states and there is no majority") != std::string::npos);
      ++disputes;
    }
    const std::vector<SimulatedJob::Entry> saved = job.saved();
    const auto wrong = [](const SimulatedJob::Entry& entry) { return entry.generation == -1; };
    if (job.kills_done() < 2) REQUIRE(std::none_of(saved.begin(), saved.end(), wrong));
  }
  CHECK(anew > 20 / kShare);
  CHECK(disputes > 20 / kShare);
}

TEST_CASE("a joiner among three whose copy goes wrong is outvoted by the two that agree, whoever of them it copied") {
  int ended = 0;
  for (uint32_t seed = 0; seed < 1000 / kShare; ++seed) {
    GroupOptions options = options_for(3, "replace");
    options.micro_batch_of = {{3, 4}};
    SimulatedJob job(options, 30, seed, {.kills = 1, .one_in = 150, .corrupt_copy = true, .in_place = seed % 2 == 0});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE_MESSAGE(is_finished(*end), end->reason);
    REQUIRE(job.saved() == job.lineage());
    ended += static_cast<int>(std::count_if(job.log().begin(), job.log().end(), [](const std::string& line) {
      return line.find("(worker 3) began step ") != std::string::npos &&
             line.find("with another state than the other ranks") != std::string::npos;
    }));
  }
  CHECK(ended > 300 / kShare);
}

TEST_CASE("a worker that gave its state to others and then comes to another one is outvoted, of two the job stops") {
  int ended = 0;
  int disputes = 0;
  for (uint32_t seed = 0; seed < 2000 / kShare; ++seed) {
    // From the death of one of two on, the other and its copy are all: nobody can tell which of them is right.
    const int64_t workers = seed % 4 == 0 ? 3 : seed % 4 == 1 ? 5 : 2;
    GroupOptions options = options_for(workers, "replace");
    options.micro_batch_of = {{workers, 4}};
    SimulatedJob job(options, 12, seed, {.kills = 1, .one_in = 60, .corrupt_donor = true});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    ended += static_cast<int>(std::count_if(job.log().begin(), job.log().end(), [](const std::string& line) {
      return line.find("with another state than the other ranks") != std::string::npos;
    }));
    if (has_failed(*end)) ++disputes;
    REQUIRE((is_finished(*end) || workers == 2));
    const std::vector<SimulatedJob::Entry> saved = job.saved();
    REQUIRE(std::none_of(saved.begin(), saved.end(), [](const auto& entry) { return entry.generation == -1; }));
  }
  CHECK(ended > 20 / kShare);
  CHECK(disputes > 40 / kShare);  // few seeds have fewer than their share
}

TEST_CASE("snapshots of steps that nobody compared fall with a state that turns out wrong") {
  int fell = 0;
  for (uint32_t seed = 0; seed < 1000 / kShare; ++seed) {
    GroupOptions options = options_for(seed % 2 == 0 ? 2 : 4, "replace");
    options.snapshot_every = 1;
    SimulatedJob job(options, 16, seed, {.one_in = 40, .corrupt = true, .digest_every = 5});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    if (has_failed(*end)) {
      ++fell;
      REQUIRE(job.saved().size() % 5 == 0);
    }
    const std::vector<SimulatedJob::Entry> saved = job.saved();
    REQUIRE(std::none_of(saved.begin(), saved.end(), [](const auto& entry) { return entry.generation == -1; }));
  }
  CHECK(fell > 100 / kShare);
}

TEST_CASE("workers that run short of something, whichever and whenever, are replaced and no step is lost") {
  int retired = 0;
  int replaced = 0;
  for (uint32_t seed = 0; seed < 2000 / kShare; ++seed) {
    const int64_t workers = seed % 3 == 0 ? 1 : seed % 3 == 1 ? 2 : 4;
    GroupOptions options = options_for(workers, "replace");
    if (seed % 2 == 0) options.snapshot_every = 0;
    SimulatedJob job(options, 12, seed, {.one_in = 20, .shortages = 1 + static_cast<int>(seed % 5) / 2});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    const auto said = [&](const char* words) {
      return std::count_if(job.log().begin(), job.log().end(),
                           [words](const std::string& line) { return line.find(words) != std::string::npos; });
    };
    REQUIRE(said("back to") == 0);
    replaced += job.healthy_killed();
    retired += static_cast<int>(said("has saved its state and is replaced"));
    if (has_failed(*end, pliant::Origin::kPlugin)) {  // before there was anything to save
      REQUIRE(job.lineage().empty());
      continue;
    }
    REQUIRE(is_finished(*end));
    REQUIRE(job.saved() == job.lineage());
    REQUIRE(job.lineage().size() == 12);
  }
  CHECK(replaced > 1000 / kShare);
  CHECK(retired > 200 / kShare);
}

TEST_CASE(
    "where each worker holds a part of the state, those that run short of something are replaced once all is saved") {
  int replaced = 0;
  for (uint32_t seed = 0; seed < 1000 / kShare; ++seed) {
    GroupOptions options = options_for(seed % 2 == 0 ? 2 : 4, "replace");
    options.snapshot_every = seed % 5 == 0 ? 0 : 1 + seed % 3;
    SimulatedJob job(options, 12, seed,
                     {.one_in = 40, .shortages = 1 + static_cast<int>(seed % 3) / 2, .sharded = true});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(is_finished(*end));
    REQUIRE(job.saved() == job.lineage());
    REQUIRE(job.lineage().size() == 12);
    bool is_saved = false;  // one that joins may run short in the middle of a move, which takes the job back
    for (const std::string& line : job.log()) {
      if (line.starts_with("generation ")) is_saved = false;
      REQUIRE_FALSE((is_saved && line.find("going back") != std::string::npos));
      if (line.find("is replaced now that the state is saved") == std::string::npos) continue;
      is_saved = true;
      ++replaced;
    }
  }
  CHECK(replaced > 100 / kShare);
}

TEST_CASE("those that write no part of a snapshot either are replaced, too, and the job goes back or begins anew") {
  int back = 0;
  int anew = 0;
  for (uint32_t seed = 0; seed < 1000 / kShare; ++seed) {
    GroupOptions options = options_for(seed % 2 == 0 ? 2 : 4, "replace");
    options.snapshot_every = seed % 5 == 0 ? 0 : 1 + seed % 3;
    SimulatedJob job(
        options, 12, seed,
        {.one_in = 40, .shortages = 1 + static_cast<int>(seed % 3) / 2, .short_of_disk = true, .sharded = true});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(job.lineage().size() == 12);
    if (!is_finished(*end)) {  // one ran short after the last step
      REQUIRE(end->reason == "every step is committed, but writing the snapshot failed: no descriptor is left");
      continue;
    }
    REQUIRE(job.saved() == job.lineage());
    (options.snapshot_every == 0 ? anew : back) += job.restarts_of_lineage();
  }
  CHECK(back > 80 / kShare);
  CHECK(anew > 40 / kShare);
}

TEST_CASE("an agent that is stopped in the middle of a look at its workers harms none of them") {
  for (uint32_t seed = 0; seed < 300 / kShare; ++seed) {
    GroupOptions options = options_for(4, "replace");
    options.start_timeout_s = options.hang_timeout_s = 1.5;
    SimulatedJob job(options, 60, seed, {.agent_stops = 3});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(is_finished(*end));
    REQUIRE(job.healthy_killed() == 0);
  }
}

TEST_CASE("two workers with different states end the job without a snapshot of either") {
  int ended = 0;
  for (uint32_t seed = 0; seed < 300 / kShare; ++seed) {
    GroupOptions options = options_for(2, "replace");
    options.snapshot_every = 0;
    SimulatedJob job(options, 12, seed, {.one_in = 20, .corrupt = true});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    if (is_finished(*end)) continue;
    ++ended;
    CHECK(has_failed(*end));
    CHECK(end->reason.find("the ranks began it with different states and there is no majority") != std::string::npos);
    CHECK(job.saved().empty());
  }
  CHECK(ended > 50 / kShare);
}

TEST_CASE("without replacements the job goes on with fewer ranks and ends with 75 when none is left") {
  int ended_75 = 0;
  int finished = 0;
  for (uint32_t seed = 0; seed < 1000 / kShare; ++seed) {
    SimulatedJob job(options_for(4, "shrink"), 12, seed,
                     {.kills = static_cast<int>(seed % 6), .in_place = seed % 2 == 0});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    if (has_no_world_size(*end)) {
      ++ended_75;
      CHECK(job.kills_done() + job.healthy_killed() >= 4);  // who holds a part of a state is ended, too
    } else {
      ++finished;
      REQUIRE(is_finished(*end));
      REQUIRE(job.lineage().size() == 12);
      REQUIRE(job.saved() == job.lineage());
    }
  }
  CHECK(ended_75 > 0);
  CHECK(finished > 500 / kShare);
}

TEST_CASE("a worker that comes back waits for min_time since the last one that did, a death does not wait") {
  int joins = 0;
  int waits = 0;
  for (uint32_t seed = 0; seed < 300 / kShare; ++seed) {
    GroupOptions options = options_for(4, "replace");
    options.min_resize_interval_s = 1;
    SimulatedJob job(options, 60, seed, {.kills = 6});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(end);
    REQUIRE(is_finished(*end));
    REQUIRE(job.lineage().size() == 60);
    std::optional<double> last;
    for (const auto& [when, record] : job.generations()) {
      if (record.reason != "a worker joined") continue;
      if (last) REQUIRE(when - *last >= options.min_resize_interval_s);
      last = when;
      ++joins;
    }
    for (const std::string& line : job.log()) waits += line.find("(min_time") != std::string::npos ? 1 : 0;
  }
  CHECK(joins > 300 / kShare);
  CHECK(waits > 50 / kShare);
}

TEST_CASE("fitted costs change for all ranks at the same step, whatever dies whenever") {
  size_t changes = 0;
  size_t generations = 0;
  for (uint32_t seed = 0; seed < 300 / kShare; ++seed) {
    GroupOptions options = options_for(4, "replace");
    options.rates = {1, 0};
    options.fit = true;
    SimulatedJob job(options, 80, seed, {.kills = static_cast<int>(seed % 6), .one_in = 1500});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE_MESSAGE(is_finished(*end), end->reason);
    REQUIRE(job.lineage().size() == 80);
    changes += job.rates_seen().size() - 1;
    generations += job.generations().size();
  }
  CHECK(changes > 600 / kShare);
  CHECK(generations > 900 / kShare);
}

TEST_CASE("without fit the rates stay as they were given") {
  GroupOptions options = options_for(2, "replace");
  options.rates = {24576, 1};
  SimulatedJob job(options, 60, 1, {});
  REQUIRE(job.run());
  CHECK(job.rates_seen() == std::set<std::pair<int64_t, int64_t>>{{24576, 1}});
}

TEST_CASE("a job that is left at a size with another batch says so") {
  GroupOptions options = options_for(2, "shrink");
  options.micro_batch_of = {{2, 4}};
  options.other_batch_of = {{1, 7}};
  SimulatedJob job(options, 1000, 3, {.kills = 1});
  const auto end = job.run();
  REQUIRE(end);
  CHECK(has_no_world_size(*end));
  CHECK(end->reason.find("plans global batch 7 for 1, but a running job keeps its own") != std::string::npos);
}

TEST_CASE("a stop ends the job after a committed step that a snapshot holds") {
  for (uint32_t seed = 0; seed < 500 / kShare; ++seed) {
    SimulatedJob job(
        options_for(4, "replace"), 1000, seed,
        {.kills = static_cast<int>(seed % 3), .stop_after = 500 + static_cast<int>(seed), .in_place = seed % 2 == 0});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(was_stopped(*end));
    REQUIRE(job.saved() == job.lineage());
  }
}

TEST_CASE("workers that are stopped and continue cost no healthy process, no committed step and little time") {
  int64_t longest = 0;
  int left_out = 0;
  for (uint32_t seed = 0; seed < 2000 / kShare; ++seed) {
    GroupOptions options = options_for(4, "replace");
    options.hang_timeout_s = 30;
    SimulatedJob job(options, 40, seed,
                     {.kills = static_cast<int>(seed % 3),
                      .one_in = 300,
                      .freezes = 1 + static_cast<int>(seed % 4),
                      .in_place = seed % 2 == 0});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(is_finished(*end));
    REQUIRE(job.lineage().size() == 40);
    REQUIRE(job.saved() == job.lineage());
    REQUIRE(job.healthy_killed() == 0);
    for (const std::string& line : job.log())
      left_out += line.find("continues without it") != std::string::npos ? 1 : 0;
    longest = std::max(longest, job.longest_gap());
  }
  CHECK(left_out > 300 / kShare);
  CHECK(longest < 16000);  // two patiences of the group, and a freeze of whoever alone held the state
}

TEST_CASE("workers that are all stopped at once, wherever each of them stands, are continued and lose nothing") {
  for (uint32_t seed = 0; seed < 300 / kShare; ++seed) {
    GroupOptions options = options_for(4, "replace");
    options.hang_timeout_s = 1;
    options.snapshot_every = 0;
    SimulatedJob job(options, 40, seed, {.one_in = 300, .freezes = 1, .freeze_all = true});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(is_finished(*end));
    REQUIRE(job.lineage().size() == 40);
    REQUIRE(job.saved() == job.lineage());
    for (const std::string& line : job.log()) REQUIRE(line.find("killed") == std::string::npos);
  }
}

TEST_CASE("replacements that die before they are ready are tried again later and later, and the others go on") {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SimulatedJob job(options_for(4, "replace"), 300, seed, {.kills = 1, .one_in = 300, .stillborn = 3});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(is_finished(*end));
    const std::vector<double>& starts = job.starts();
    const bool all_were_ready = job.generations().front().second.world_size == 4;
    if (starts.size() != 8 || !all_were_ready) continue;  // or the job was done before
    for (size_t i = 5; i < 8; ++i) CHECK(starts[i] - starts[i - 1] >= static_cast<double>(1 << (i - 5)));
    CHECK(job.generations().back().second.world_size == 4);
  }
}

TEST_CASE("a rendezvous that is short of resources is asked again, and costs nobody's life") {
  for (uint32_t seed = 0; seed < 300 / kShare; ++seed) {
    SimulatedJob job(options_for(4, "replace"), 12, seed, {.kills = static_cast<int>(seed % 4), .refusals = 5});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(is_finished(*end));
    REQUIRE(job.lineage().size() == 12);
    REQUIRE(job.healthy_killed() == 0);
  }
}

TEST_CASE("a worker that stays stopped is left out, killed by name after the hang time-out, and nobody else is") {
  for (uint32_t seed = 0; seed < 300 / kShare; ++seed) {
    GroupOptions options = options_for(4, "replace");
    options.hang_timeout_s = 8;
    SimulatedJob job(options, 300, seed,
                     {.kills = static_cast<int>(seed % 2), .freezes = 1, .longest_freeze = 1000000});
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    REQUIRE(is_finished(*end));
    REQUIRE(job.lineage().size() == 300);
    REQUIRE(job.healthy_killed() == 0);
    CHECK(job.longest_gap() < 12000);
  }
}

TEST_CASE(
    "a job that is stopped or fails at whatever moment saves no state that a rank alone holds, where others live") {
  int named = 0;
  for (uint32_t seed = 0; seed < 1500 / kShare; ++seed) {
    Disturbances disturbances{.one_in = 20, .corrupt = true, .digest_every = 5};
    if (seed % 2 == 0) {
      disturbances.stop_after = static_cast<int>(60 + seed % 150);
    } else {
      disturbances.fails_after = 60 + seed % 150;
    }
    SimulatedJob job(options_for(4, "replace"), 12, seed, disturbances);
    const auto end = job.run();
    INFO("seed " << seed << "\n" << tail(job.log()) << job.violation());
    REQUIRE(job.violation().empty());
    REQUIRE(end);
    const std::vector<SimulatedJob::Entry> state = job.saved();
    REQUIRE(state.size() <= job.lineage().size());
    REQUIRE(std::equal(state.begin(), state.end(), job.lineage().begin()));
    for (const std::string& line : job.log()) named += line.find("ended with another state") != std::string::npos;
  }
  CHECK(named > 10 / kShare);
}
