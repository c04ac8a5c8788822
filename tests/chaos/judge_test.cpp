// The judge of disturbed jobs finds each kind of loss, and none in a job that lost only what it had to.
#include <doctest/doctest.h>
#include <signal.h>

#include <functional>
#include <set>
#include <stdexcept>
#include <utility>

#include "chaos/blow.hpp"
#include "chaos/evidence.hpp"

using namespace pliant::test;

namespace {

Evidence good() {
  Evidence job;
  job.snapshot_every = 7;
  job.samples_expected = job.samples_used_once = 406;
  Incarnation killed;  // a worker, then the agent
  killed.exit_code = 128 + SIGKILL;
  killed.signals = {SIGKILL};
  killed.struck = killed.doomed = {2};
  killed.lost = {2};
  killed.restarts = 1;
  killed.worst = {0.5, 4};
  Incarnation resumed;
  resumed.retreats.push_back({8, 4, true});
  job.incarnations = {killed, resumed};
  return job;
}

std::string verdict_when(const std::function<void(Evidence&)>& spoil) {
  Evidence job = good();
  spoil(job);
  std::string all;
  for (const std::string& line : judge(job)) all += line + "\n";
  return all;
}

}  // namespace

TEST_CASE("a job that lost what it had to is clean") {
  CHECK(judge(good()).empty());
}

TEST_CASE("a sharded job may go back to its snapshot where a worker may have died, and no further, and nowhere else") {
  const auto verdict = [](bool sharded, std::set<int64_t> struck, int64_t steps) {
    return verdict_when([&](Evidence& job) {
      job.sharded = sharded;
      job.incarnations[0].struck = job.incarnations[0].lost = std::move(struck);
      job.incarnations[0].doomed.clear();
      job.incarnations[0].restarts = 0;
      job.incarnations[0].retreats.push_back({steps, 4, false});
    });
  };
  CHECK(verdict(true, {2}, 8).empty());
  CHECK(verdict(true, {2}, 9).find("9 committed steps were given up; at most 8 had to be") != std::string::npos);
  CHECK(verdict(true, {}, 1).find("1 committed steps were given up; at most 0 had to be") != std::string::npos);
  CHECK(verdict(false, {2}, 1).find("1 committed steps were given up; at most 0 had to be") != std::string::npos);
}

TEST_CASE("each kind of loss is found by the judge, in words") {
  struct Spoiled {
    const char* words;
    std::function<void(Evidence&)> spoil;
  };
  const std::vector<Spoiled> all{
      {"the weights are others", [](Evidence& e) { e.same_weights = false; }},
      {"405 of 406 samples", [](Evidence& e) { --e.samples_used_once; }},
      {"1 more often", [](Evidence& e) { e.samples_repeated = 1; }},
      {"did not end", [](Evidence& e) { e.incarnations[1].ended = false; }},
      {"never finished", [](Evidence& e) { e.incarnations.pop_back(); }},
      {"exit code 1, for which nothing was done", [](Evidence& e) { e.incarnations[0].exit_code = 1; }},
      {"exit code 143, for which nothing was done", [](Evidence& e) { e.incarnations[0].exit_code = 143; }},
      {"exit code 75, for which nothing was done", [](Evidence& e) { e.incarnations[0].exit_code = 75; }},
      {"exit 0, although its ledger was removed", [](Evidence& e) { e.incarnations[1].ledger_removed = true; }},
      {"failed without a word",
       [](Evidence& e) {
         e.incarnations[0].exit_code = 1;
         e.incarnations[0].surroundings_struck = true;
       }},
      {"lost worker 3, which nobody touched", [](Evidence& e) { e.incarnations[0].lost.insert(3); }},
      {"2 workers were replaced and 1 touched", [](Evidence& e) { e.incarnations[0].restarts = 2; }},
      {"9 committed steps were given up; at most 8", [](Evidence& e) { e.incarnations[1].retreats[0].steps = 9; }},
      {"1 committed steps were given up; at most 0",
       [](Evidence& e) {  // all were struck, but not so that they had to die
         e.incarnations[0].struck = {0, 1, 2, 3};
         e.incarnations[0].doomed = {0, 1, 2};
         e.incarnations[0].retreats.push_back({1, 4, false});
       }},
      {"1 committed steps were given up; at most 0",
       [](Evidence& e) {
         e.incarnations[0].retreats.push_back({1, 4, false});
       }},
      {"8 committed steps were given up; at most 0",
       [](Evidence& e) {  // a stop in order leaves a snapshot
         e.incarnations[0].exit_code = 128 + SIGTERM;
         e.incarnations[0].signals = {SIGTERM};
         e.incarnations[0].stops_asked = 1;
       }},
      {"8 committed steps were given up; at most 0",
       [](Evidence& e) {  // all lived, whom the network kept apart
         e.incarnations[0].exit_code = 1;
         e.incarnations[0].surroundings_struck = true;
         e.incarnations[0].err = "no progress";
       }},
      {"4.5 s without progress; 4.0 s are explained", [](Evidence& e) { e.incarnations[0].worst.seconds = 4.5; }},
      {"2 processes were left behind", [](Evidence& e) { e.incarnations[0].left_behind = 2; }},
  };
  for (const Spoiled& one : all) {
    const std::string said = verdict_when(one.spoil);
    CHECK_MESSAGE(said.find(one.words) != std::string::npos, one.words << " is not in: " << said);
  }
}

TEST_CASE("what had to be lost is not held against a job") {
  const auto clean = [](const std::function<void(Evidence&)>& change) { CHECK(verdict_when(change).empty()); };
  clean([](Evidence& e) {  // nobody was left who held the state
    e.incarnations[0].struck = e.incarnations[0].doomed = {0, 1, 2, 3};
    e.incarnations[0].retreats.push_back({5, 4, false});
  });
  clean([](Evidence& e) {  // nobody was left to kill the rest
    e.incarnations[0].left_behind = 1;
    e.incarnations[0].warden_struck = true;
  });
  clean([](Evidence& e) {
    e.incarnations[0].exit_code = 2;
    e.incarnations[0].surroundings_struck = e.incarnations[0].disk_struck = true;
    e.incarnations[0].err = "no room";
    e.incarnations[1].retreats[0].steps = 40;
  });
}

TEST_CASE("a job is made up from its kind and seed alone, and a kind that does not exist is refused") {
  const auto words = [](const std::string& kind, uint32_t seed) {
    const Play play = play_of(kind, seed);
    std::string all = play.run_keys + play.more + play.coordinator;
    for (const auto& call : play.blows) {
      for (const Blow& blow : call) all += words_for(blow) + std::to_string(blow.after_commits);
    }
    return all + std::to_string(play.trace_child);
  };
  for (const std::string& kind : kinds()) CHECK(words(kind, 7) == words(kind, 7));
  CHECK(words("signals", 7) != words("signals", 8));
  CHECK_THROWS_AS((void)play_of("sig", 1), std::invalid_argument);
}
