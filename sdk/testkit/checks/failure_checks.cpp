// How collectives end when ranks abort, leave, disagree, stop or die.
#include <atomic>
#include <regex>
#include <sstream>
#include <thread>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/collective_work.hpp"

namespace pliant::testkit {

namespace {

constexpr double kPromisedMs = 100;

Collective kind_of(const Rank& rank) {
  return static_cast<Collective>(rank.numbers.at(0));
}

/// What the enqueued call, or the wait for it, ended with.
Outcome ended(const CollectiveWork& work, const Comm& comm, const Stream& stream) {
  const Outcome enqueued = work.enqueue(comm, stream);
  const Outcome waited = stream.synchronize();
  return enqueued.ok() ? waited : enqueued;
}

/// Runs `script` for every collective, with what `conduct` does in between.
template <class Conduct>
void for_each_collective(const Subject& subject, const char* script, int32_t world_size,
                         const std::vector<int64_t>& numbers, Conduct&& conduct) {
  need_collectives(subject);
  for (const Collective kind : kCollectives) {
    std::vector<int64_t> all{static_cast<int64_t>(kind)};
    all.insert(all.end(), numbers.begin(), numbers.end());
    Ranks ranks(subject, script, world_size, all);
    ranks.carry_id();
    conduct(ranks, kind);
  }
}

/// Rank 0 waits in a collective that rank 1 does not call, and gives up: by abort or by destroy.
void give_up(const Rank& rank, bool destroys) {
  const Collective kind = kind_of(rank);
  const CollectiveWork work(rank, {kind, PLIANT_F32, PLIANT_SUM, 1001, 1});
  const Stream stream(rank.accelerator, rank.rank % rank.accelerator.devices());
  Comm comm(rank, rank.id());
  comm.join();
  rank.tell("ready");
  rank.hear();
  if (rank.rank == 1) {
    const Outcome outcome = ended(work, comm, stream);
    // What rank 0 had given before may be enough.
    if (outcome.ok()) work.verify();
    return;
  }
  must(name_of(kind), work.enqueue(comm, stream));
  if (destroys) {
    comm.destroy();
    const Outcome outcome = stream.synchronize();
    expect(outcome.status == PLIANT_ABORTED,
           work.words() + " ended with " + outcome.text() + " when its communicator was destroyed, not PLIANT_ABORTED");
    rank.tell("gave up");
    return;
  }
  std::thread aborting([&] { comm.abort(); });
  const Outcome outcome = stream.synchronize();
  aborting.join();
  expect(outcome.status == PLIANT_ABORTED,
         work.words() + " ended with " + outcome.text() + " after comm_abort, not PLIANT_ABORTED");
  comm.abort();  // twice is once
  const Outcome status = comm.status(0);
  expect(status.status == PLIANT_ABORTED, "comm_status answered " + status.text() + " after comm_abort");
  const Outcome later = ended(work, comm, stream);
  expect(later.status == PLIANT_ABORTED, work.words() + " after comm_abort ended with " + later.text());
  rank.tell("gave up");
}

void abort_script(const Rank& rank) {
  give_up(rank, false);
}
void destroy_script(const Rank& rank) {
  give_up(rank, true);
}

void conduct_giving_up(const Subject& subject, const char* script, const char* what) {
  for_each_collective(subject, script, 2, {}, [&](Ranks& ranks, Collective kind) {
    ranks.hear_all("communicator");
    ranks.tell(0);
    ranks.hear(0, std::string("end of ") + name_of(kind) + " after " + what);
    ranks.tell(1);
    ranks.finish();
  });
}

void aborted(const Subject& subject) {
  conduct_giving_up(subject, "abort", "comm_abort");
}
void destroyed(const Subject& subject) {
  conduct_giving_up(subject, "destroy", "comm_destroy");
}

/// Rank 0 never calls what rank 1 waits in, and destroys its communicator.
void leave_script(const Rank& rank) {
  const Collective kind = kind_of(rank);
  const CollectiveWork work(rank, {kind, PLIANT_F32, PLIANT_SUM, 1001, 0});
  const Stream stream(rank.accelerator, rank.rank % rank.accelerator.devices());
  Comm comm(rank, rank.id());
  comm.join();
  if (rank.rank == 0) {
    rank.hear();
    comm.destroy();
    rank.hear();  // alive until rank 1 has seen it
    return;
  }
  must(name_of(kind), work.enqueue(comm, stream));
  rank.tell("waits");
  const Outcome outcome = stream.synchronize();
  expect(outcome.status == PLIANT_PEER_LOST || outcome.status == PLIANT_ABORTED,
         work.words() + " ended with " + outcome.text() +
             " after rank 0 destroyed its communicator, not PLIANT_PEER_LOST or PLIANT_ABORTED");
  rank.tell("back");
}

void left(const Subject& subject) {
  for_each_collective(subject, "leave", 2, {}, [&](Ranks& ranks, Collective kind) {
    ranks.hear(1, std::string("return of ") + name_of(kind));
    ranks.tell(0);
    ranks.hear(1, std::string("end of ") + name_of(kind) + " after rank 0 destroyed its communicator");
    ranks.tell(0);
    ranks.finish();
  });
}

/// Before the others have joined.
void abort_joining_script(const Rank& rank) {
  const pliant_comm_id id = rank.id();
  const Comm comm(rank, id);
  std::thread aborting([&] { comm.abort(); });
  const Outcome status = comm.status(-1);
  aborting.join();
  expect(status.status == PLIANT_ABORTED, "comm_status answered " + status.text() + " after comm_abort");
}

void aborted_joining(const Subject& subject) {
  need_collectives(subject);
  Ranks ranks(subject, "abort_joining", 2);
  ranks.hear(0, "communicator id");  // rank 1 never gets it
  ranks.finish(1);
}

/// In case `numbers[0]` rank 1 calls something else than the others.
void mismatch_script(const Rank& rank) {
  const Comm comm(rank, rank.id());
  comm.join();
  const Stream stream(rank.accelerator, rank.rank % rank.accelerator.devices());
  CollectiveCall call{Collective::kAllReduce, PLIANT_F32, PLIANT_SUM, 1001};
  const int64_t number = rank.numbers.at(0);
  if (number == 4) call.kind = Collective::kBroadcast;
  if (rank.rank == 1) {
    if (number == 0) call.kind = Collective::kBarrier;
    if (number == 1) call.count = 999;
    if (number == 2) call.dtype = PLIANT_I32;
    if (number == 3) call.op = PLIANT_MAX;
    if (number == 4) call.root = 2;
    if (number == 5) call.kind = Collective::kAllGather;
  }
  const CollectiveWork work(rank, call);
  const CollectiveWork barrier(rank, {});
  rank.tell("ready");
  rank.hear();
  Outcome outcome = ended(work, comm, stream);
  // A rank that needs nothing from the others may be told by the next call.
  if (outcome.ok()) outcome = ended(barrier, comm, stream);
  expect(!outcome.ok(), work.words() + ", and the barrier after it, ended with PLIANT_OK though the ranks disagree");
  expect(!outcome.message.empty(), work.words() + " failed without a message though the ranks disagree");
  rank.tell("refused");
  rank.hear();  // nobody leaves before all have seen it
}

void mismatched(const Subject& subject) {
  need_collectives(subject);
  const char* const cases[] = {"all_reduce and barrier",     "all_reduce of other counts",
                               "all_reduce of other types",  "all_reduce with other operations",
                               "broadcast from other roots", "all_reduce and all_gather"};
  for (int64_t number = 0; number < 6; ++number) {
    Ranks ranks(subject, "mismatch", 3, {number});
    ranks.carry_id();
    ranks.hear_all("communicator");
    ranks.tell_all();
    ranks.hear_all(std::string("end of ") + cases[number]);
    ranks.tell_all();
    ranks.finish();
  }
}

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
  expect(outcome.ok(), work.words() + " ended with " + outcome.text() + " though every rank came in the end");
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
  rank.tell(std::to_string(outcome.status) + " " + std::to_string(back_ns) + " " + outcome.message);
  rank.hear();  // nobody leaves before all have seen the death
  const Outcome status = comm.status(0);
  expect(!status.ok() && status.status != PLIANT_DEADLINE_EXCEEDED,
         "comm_status answered " + status.text() + " after a rank was lost");
}

/// Milliseconds from the death until this survivor was back.
double judge(const std::string& said, int32_t rank, int32_t victim, int64_t death_ns, const std::string& during) {
  std::istringstream in(said);
  Outcome outcome;
  int64_t back_ns = 0;
  in >> outcome.status >> back_ns;
  std::getline(in >> std::ws, outcome.message);
  const std::string who = "rank " + std::to_string(rank) + " ended " + during + " with " + outcome.text() +
                          " after rank " + std::to_string(victim) + " was killed";
  expect(outcome.status == PLIANT_PEER_LOST || outcome.status == PLIANT_ABORTED,
         who + ", not PLIANT_PEER_LOST or PLIANT_ABORTED");
  expect(std::regex_search(outcome.message, std::regex("(^|[^0-9])" + std::to_string(victim) + "($|[^0-9])")),
         who + ": the message does not name the rank");
  return static_cast<double>(back_ns - death_ns) * 1e-6;
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
      if (ms > slowest_ms) {
        slowest_ms = ms;
        slowest = "rank " + std::to_string(r) + " came back from " + during;
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

std::vector<Script> failure_scripts() {
  return {{"abort", abort_script},       {"destroy", destroy_script}, {"abort_joining", abort_joining_script},
          {"mismatch", mismatch_script}, {"leave", leave_script},     {"stopped", stopped_script},
          {"killed", killed_script}};
}

std::vector<Check> failure_checks() {
  return {
      {"failure.mismatch", "ranks that call different collectives all get an error", mismatched, 120},
      {"failure.abort", "comm_abort ends every collective, now and later, and may come twice", aborted, 120},
      {"failure.abort_joining", "comm_abort ends the wait for ranks that have not joined", aborted_joining},
      {"failure.destroy", "comm_destroy ends what is still running in its process", destroyed, 120},
      {"failure.leave", "comm_destroy ends what its peers still wait in", left, 120},
      {"failure.stopped", "a collective with a stopped rank is right when the rank goes on", stopped, 120},
      {"failure.killed", "survivors of a rank that never comes are told its number within 100 ms of its death", killed,
       120},
      {"failure.killed_within",
       "survivors of a rank that dies in the middle of calls are told its number within 100 ms", killed_in_the_middle,
       120},
  };
}

}  // namespace pliant::testkit
