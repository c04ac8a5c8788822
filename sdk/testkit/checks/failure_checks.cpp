// How collectives end when ranks abort, leave or disagree.
#include <atomic>
#include <thread>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/checks/failure_work.hpp"

namespace pliant::testkit {

namespace {

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
  expect(status.status == PLIANT_ABORTED, "comm_status returned " + status.text() + " after comm_abort");
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
  comm.abort();  // twice is once
  expect(status.status == PLIANT_ABORTED, "comm_status returned " + status.text() + " after comm_abort");
}

void aborted_joining(const Subject& subject) {
  need_collectives(subject);
  Ranks ranks(subject, "abort_joining", 2);
  ranks.hear(0, "communicator id");  // rank 1 never gets it
  ranks.finish(1);
}

constexpr const char* kWaits = "waits";

/// Rank 1 destroys its communicator before the others come.
void leave_joining_script(const Rank& rank) {
  const pliant_comm_id id = rank.id();
  if (rank.rank == 1) {
    Comm comm(rank, id);
    comm.destroy();
    rank.tell("left");
    rank.hear();  // alive until the others have seen it
    return;
  }
  rank.tell("has the id");
  rank.hear();
  const Comm comm(rank, id);
  Outcome outcome = comm.status(5000);
  if (outcome.status == PLIANT_DEADLINE_EXCEEDED) {
    rank.tell(kWaits);
    rank.hear();
    return;
  }
  // It did join; then it is missed in the first collective.
  if (outcome.ok()) outcome = ended(CollectiveWork(rank, {}), comm, Stream(rank.accelerator, 0));
  expect(outcome.status == PLIANT_PEER_LOST || outcome.status == PLIANT_ABORTED,
         "joining, or the barrier after it, ended with " + outcome.text() +
             " though rank 1 had destroyed its communicator before, not PLIANT_PEER_LOST or PLIANT_ABORTED");
  rank.tell("back");
  rank.hear();  // nobody leaves before all have seen it
}

void left_joining(const Subject& subject) {
  need_collectives(subject);
  Ranks ranks(subject, "leave_joining", 3);
  ranks.carry_id();
  ranks.hear(1, "end of comm_destroy");
  for (const int32_t r : {0, 2}) ranks.hear(r, "communicator id");
  for (const int32_t r : {0, 2}) ranks.tell(r);
  bool waits = false;
  for (const int32_t r : {0, 2}) {
    const std::string told = ranks.hear(r, "end of joining and a barrier after rank 1 destroyed its communicator");
    waits = waits || told == kWaits;
  }
  ranks.tell_all();
  ranks.finish();
  if (waits) warn("a rank that joins after another has left waits for it until a rank aborts");
}

/// Those of which rank 1 names another count, and then another type.
constexpr Collective kSized[] = {Collective::kAllGather, Collective::kReduceScatter, Collective::kBroadcast,
                                 Collective::kAllGatherV, Collective::kMessages};

/// In case `numbers[0]` rank 1 calls something else than the others.
void mismatch_script(const Rank& rank) {
  const Comm comm(rank, rank.id());
  comm.join();
  const Stream stream(rank.accelerator, rank.rank % rank.accelerator.devices());
  CollectiveCall call{Collective::kAllReduce, PLIANT_F32, PLIANT_SUM, 1001};
  const int64_t number = rank.numbers.at(0);
  if (number == 4) call.kind = Collective::kBroadcast;
  if (number >= 6) call.kind = kSized[static_cast<size_t>(number - 6) / 2];
  if (rank.rank == 1) {
    if (number == 0) call.kind = Collective::kBarrier;
    if (number == 1) call.count = 999;
    if (number == 2) call.dtype = PLIANT_I32;
    if (number == 3) call.op = PLIANT_MAX;
    if (number == 4) call.root = 2;
    if (number == 5) call.kind = Collective::kAllGather;
    if (number >= 6 && number % 2 == 0) call.count = 999;
    if (number >= 6 && number % 2 == 1) call.dtype = PLIANT_I32;
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
  rank.tell(told(rank, outcome));
  rank.hear();  // nobody leaves before all have seen it
}

/// Rank 1 differs. Not every rank compares with it, but whoever saw it says so: to one of the others that it is rank 1,
/// or to rank 1 that it is one of the others.
void judge_told(const std::vector<Told>& all_told, const std::string& what) {
  std::string all;
  for (size_t rank = 0; rank < all_told.size(); ++rank) {
    const Told& told = all_told[rank];
    const int32_t other = told.outcome.rank;
    if (!told.says_whom || (rank == 1 ? other == 0 || other == 2 : other == 1)) return;
    all += (all.empty() ? "rank " : "; rank ") + std::to_string(rank) + " has " + std::to_string(other) +
           " as the rank of its error: " + told.outcome.text();
  }
  fail("after " + what + " no error named the ranks that disagree: " + all);
}

void mismatched(const Subject& subject) {
  need_collectives(subject);
  std::vector<std::string> cases{"all_reduce and barrier",     "all_reduce of other counts",
                                 "all_reduce of other types",  "all_reduce with other operations",
                                 "broadcast from other roots", "all_reduce and all_gather"};
  for (const Collective kind : kSized) {
    cases.push_back(std::string(name_of(kind)) + " of other counts");
    cases.push_back(std::string(name_of(kind)) + " of other types");
  }
  for (size_t number = 0; number < cases.size(); ++number) {
    Ranks ranks(subject, "mismatch", 3, {static_cast<int64_t>(number)});
    ranks.carry_id();
    ranks.hear_all("communicator");
    ranks.tell_all();
    std::vector<Told> all_told;
    for (int32_t r = 0; r < ranks.count(); ++r) all_told.push_back(heard(ranks.hear(r, "end of " + cases[number])));
    judge_told(all_told, cases[number]);
    ranks.tell_all();
    ranks.finish();
  }
}

}  // namespace

std::vector<Script> failure_scripts() {
  return {{"abort", abort_script},       {"destroy", destroy_script}, {"abort_joining", abort_joining_script},
          {"mismatch", mismatch_script}, {"leave", leave_script},     {"leave_joining", leave_joining_script}};
}

std::vector<Check> failure_checks() {
  return {
      {"failure.mismatch",
       "ranks whose collectives differ in kind, size, type, operation or root all get an error, and one error names "
       "the rank that differs",
       mismatched, 120},
      {"failure.abort", "comm_abort ends every collective, now and later, and may be called twice", aborted, 120},
      {"failure.abort_joining", "comm_abort ends the wait for ranks that have not joined", aborted_joining},
      {"failure.destroy", "comm_destroy ends the running work of its process", destroyed, 120},
      {"failure.leave", "comm_destroy ends the collectives in which its peers wait", left, 120},
      {"failure.leave_joining", "comm_destroy ends the wait of ranks that join later", left_joining},
  };
}

}  // namespace pliant::testkit
