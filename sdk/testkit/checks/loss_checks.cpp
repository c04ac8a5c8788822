// How collectives end when a rank stops or dies.
#include <thread>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/checks/failure_work.hpp"

namespace pliant::testkit {

namespace {

constexpr double kPromisedMs = 100;
/// No machine is that busy: whoever comes back later waited for a time-out.
constexpr double kLongestMs = 5000;

void stopped_script(const Rank& rank) {
  const Collective kind = kind_of(rank);
  const auto victim = static_cast<int32_t>(rank.numbers.at(1));
  const CollectiveWork work(rank, {kind, PLIANT_F32, PLIANT_SUM, 100003, victim});
  const Stream stream(rank.accelerator, rank.rank % rank.accelerator.devices());
  const Comm comm(rank, rank.id());
  comm.join();
  rank.tell("ready");
  rank.hear();
  must(name_of(kind), work.enqueue(comm, stream));
  if (rank.rank != victim) rank.tell("waits");
  const Outcome outcome = stream.synchronize();
  expect(outcome.ok(), work.words() + " ended with " + outcome.text() + " though every rank called it in the end");
  work.verify();
}

void stopped(const Subject& subject) {
  const auto victim = static_cast<int32_t>(drawn(subject.seed, 60, 0) % 3);
  for_each_collective(subject, "stopped", 3, {victim}, [&](Ranks& ranks, Collective kind) {
    ranks.hear_all("communicator");
    ranks.stop(victim);
    ranks.tell_all();
    for (int32_t r = 0; r < 3; ++r) {
      if (r != victim) ranks.hear(r, std::string("return of ") + name_of(kind));
    }
    ranks.resume(victim);
    ranks.finish();
  });
}

/// The victim calls nothing, or dies somewhere in the middle of many calls.
void killed_script(const Rank& rank) {
  const Collective kind = kind_of(rank);
  const auto victim = static_cast<int32_t>(rank.numbers.at(1));
  const bool in_the_middle = rank.numbers.at(2) != 0;
  const CollectiveWork work(rank, {kind, PLIANT_F32, PLIANT_SUM, 100003, victim});
  const Stream stream(rank.accelerator, rank.rank % rank.accelerator.devices());
  const Comm comm(rank, rank.id());
  comm.join();
  rank.tell("ready");
  rank.hear();
  if (rank.rank == victim && !in_the_middle) rank.hear();  // for ever
  if (!in_the_middle) {
    must(name_of(kind), work.enqueue(comm, stream));
    rank.tell("waits");
  }
  Outcome outcome = in_the_middle ? Outcome{} : stream.synchronize();
  expect(in_the_middle || !outcome.ok(), work.words() + " ended with PLIANT_OK though a rank never called it");
  for (bool first = true; outcome.ok(); first = false) {
    outcome = ended(work, comm, stream);
    if (first && outcome.ok()) rank.tell("runs");
  }
  const int64_t back_ns = now_ns();
  rank.tell(told(rank, outcome, back_ns));
  rank.hear();  // nobody leaves before all have seen the death
  const Outcome status = comm.status(0);
  expect(!status.ok() && status.status != PLIANT_DEADLINE_EXCEEDED,
         "comm_status returned " + status.text() + " after a rank was lost");
}

/// Milliseconds from the death until this survivor was back.
double judge(const std::string& said, int32_t rank, int32_t victim, int64_t death_ns, const std::string& during) {
  const Told told = heard(said);
  const Outcome& outcome = told.outcome;
  const std::string who = "rank " + std::to_string(rank) + " ended " + during + " with " + outcome.text() +
                          " after rank " + std::to_string(victim) + " was killed";
  expect(outcome.status == PLIANT_PEER_LOST || outcome.status == PLIANT_ABORTED,
         who + ", not PLIANT_PEER_LOST or PLIANT_ABORTED");
  expect(!told.says_whom || outcome.rank == victim,
         who + ", with " + std::to_string(outcome.rank) + " as the rank of its error");
  return static_cast<double>(told.at_ns - death_ns) * 1e-6;
}

void kill_one(const Subject& subject, bool in_the_middle) {
  double slowest_ms = 0;
  std::string slowest;
  const auto victim = static_cast<int32_t>(drawn(subject.seed, 61, in_the_middle ? 1 : 0) % 4);
  for_each_collective(subject, "killed", 4, {victim, in_the_middle ? 1 : 0}, [&](Ranks& ranks, Collective kind) {
    ranks.hear_all("communicator");
    ranks.tell_all();
    const std::string during = name_of(kind);
    for (int32_t r = 0; r < 4; ++r) {
      if (in_the_middle || r != victim) ranks.hear(r, "beginning of " + during);
    }
    // At any moment of a call.
    const int64_t moment_ns =
        now_ns() + static_cast<int64_t>(drawn(subject.seed, 62, static_cast<uint64_t>(kind)) % 2000000);
    while (now_ns() < moment_ns) std::this_thread::yield();
    const int64_t death_ns = now_ns();
    ranks.kill(victim);
    for (int32_t r = 0; r < 4; ++r) {
      if (r == victim) continue;
      const std::string said =
          ranks.hear(r, "end of " + during + " after rank " + std::to_string(victim) + " was killed");
      const double ms = judge(said, r, victim, death_ns, during);
      expect(ms <= kLongestMs, "rank " + std::to_string(r) + " returned from " + during + " " +
                                   std::to_string(static_cast<int64_t>(ms)) +
                                   " ms after the death of a rank, as by a timeout; 100 ms are promised");
      if (ms > slowest_ms) {
        slowest_ms = ms;
        slowest = "rank " + std::to_string(r) + " returned from " + during;
      }
    }
    ranks.tell_all();
    ranks.finish(victim);
  });
  if (slowest_ms <= kPromisedMs) return;
  warn(slowest + " " + std::to_string(static_cast<int64_t>(slowest_ms)) +
       " ms after the death of a rank; 100 ms are promised (a busy machine may be the reason)");
}

void killed(const Subject& subject) {
  kill_one(subject, false);
}
void killed_in_the_middle(const Subject& subject) {
  kill_one(subject, true);
}

}  // namespace

std::vector<Script> loss_scripts() {
  return {{"stopped", stopped_script}, {"killed", killed_script}};
}

std::vector<Check> loss_checks() {
  return {
      {"failure.stopped", "a collective with a stopped rank is right once the rank continues", stopped, 120},
      {"failure.killed", "survivors of a rank that dies before it joins get its number within 100 ms", killed, 120},
      {"failure.killed_within", "survivors of a rank that dies during calls get its number within 100 ms",
       killed_in_the_middle, 120},
  };
}

}  // namespace pliant::testkit
