// What collectives compute, and in which order they run.
#include <initializer_list>
#include <memory>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/checks/huge_checks.hpp"
#include "testkit/collective_work.hpp"
#include "testkit/gate.hpp"

namespace pliant::testkit {

namespace {

constexpr int32_t kWorldSizes[] = {1, 2, 3, 4, 7, 8};

Collective kind_of(const Rank& rank) {
  return static_cast<Collective>(rank.numbers.at(0));
}

void run_one(const Rank& rank, const Comm& comm, const Stream& stream, const CollectiveCall& call) {
  const CollectiveWork work(rank, call);
  must(name_of(call.kind), work.enqueue(comm, stream));
  const Outcome ended = stream.synchronize();
  expect(ended.ok(), work.words() + " ended with " + ended.text());
  work.verify();
}

void values_script(const Rank& rank) {
  const Comm comm(rank, rank.id());
  comm.join();
  const Stream stream(rank.accelerator, rank.rank % rank.accelerator.devices());
  const Collective kind = kind_of(rank);
  const bool reduces = kind == Collective::kAllReduce || kind == Collective::kReduceScatter;
  int32_t root = 0;
  for (const int32_t dtype : kTypes) {
    for (const uint64_t count : std::initializer_list<uint64_t>{0, 1, 7, 1001}) {
      root = (root + 1) % rank.world_size;
      run_one(rank, comm, stream, {kind, dtype, PLIANT_SUM, count, root});
      if (kind == Collective::kBarrier) continue;
      if (kind == Collective::kAllReduce) run_one(rank, comm, stream, {kind, dtype, PLIANT_SUM, count, 0, true});
      if (!reduces) continue;
      run_one(rank, comm, stream, {kind, dtype, PLIANT_MIN, count});
      run_one(rank, comm, stream, {kind, dtype, PLIANT_MAX, count});
    }
  }
  // As many bytes in and out for every collective: drawing them takes longer than the exchange.
  const bool in_parts = kind == Collective::kReduceScatter || kind == Collective::kMessages;
  const uint64_t large = (in_parts ? 70001 / static_cast<uint64_t>(rank.world_size) : 70001) | 1U;
  for (const int32_t dtype : {PLIANT_F32, PLIANT_BF16}) {
    run_one(rank, comm, stream, {kind, dtype, PLIANT_SUM, large, rank.world_size - 1});
  }
}

void values(const Subject& subject, Collective kind) {
  need_collectives(subject);
  for (const int32_t world_size : kWorldSizes) {
    Ranks ranks(subject, "values", world_size, {static_cast<int64_t>(kind)});
    ranks.carry_id();
    ranks.finish();
  }
}

void all_reduce(const Subject& s) {
  values(s, Collective::kAllReduce);
}
void all_gather(const Subject& s) {
  values(s, Collective::kAllGather);
}
void reduce_scatter(const Subject& s) {
  values(s, Collective::kReduceScatter);
}
void broadcast(const Subject& s) {
  values(s, Collective::kBroadcast);
}
void barrier(const Subject& s) {
  values(s, Collective::kBarrier);
}
void all_gather_v(const Subject& s) {
  values(s, Collective::kAllGatherV);
}
void messages(const Subject& s) {
  values(s, Collective::kMessages);
}

/// Messages without a group, in their order.
void one_way_script(const Rank& rank) {
  const Comm comm(rank, rank.id());
  const Stream stream(rank.accelerator, rank.rank % rank.accelerator.devices());
  std::vector<std::unique_ptr<Guarded>> kept;
  uint64_t number = 0;
  for (const uint64_t count : std::initializer_list<uint64_t>{0, 1, 7, 1001, 300007, 3, 0}) {
    const Elements contents = drawn_elements(PLIANT_I32, count, Draw::kSmall, rank.seed, ++number, 0);
    kept.push_back(std::make_unique<Guarded>(rank.accelerator, count * sizeof(int32_t)));
    if (rank.rank == 0) {
      kept.back()->set(contents.bytes());
      const void* from = kept.back()->at();
      must("send", rank.accelerator.call(&pliant_collectives::send, comm, from, count, PLIANT_I32, 1, stream));
    } else {
      void* to = kept.back()->at();
      must("recv", rank.accelerator.call(&pliant_collectives::recv, comm, to, count, PLIANT_I32, 0, stream));
    }
  }
  stream.wait();
  number = 0;
  for (const auto& one : kept) {
    const Bytes got = one->get("a message");
    const Elements wanted =
        drawn_elements(PLIANT_I32, got.size() / sizeof(int32_t), Draw::kSmall, rank.seed, ++number, 0);
    expect(got == wanted.bytes(), "message " + std::to_string(number) + " is not what was sent");
  }
}

void one_way(const Subject& subject) {
  need_collectives(subject);
  Ranks ranks(subject, "one_way", 2);
  ranks.carry_id();
  ranks.finish();
}

void group_script(const Rank& rank) {
  const Comm comm(rank, rank.id());
  const Stream stream(rank.accelerator);
  using Slots = pliant_collectives;
  const auto call = [&](auto slot) { return rank.accelerator.call(slot, comm); };
  const auto refused = [](const Outcome& outcome, int32_t status, const std::string& what) {
    expect(outcome.status == status, what + " returned " + outcome.text());
  };
  refused(call(&Slots::group_end), PLIANT_FAILED_PRECONDITION, "group_end without group_begin");
  must("group_begin", call(&Slots::group_begin));
  refused(call(&Slots::group_begin), PLIANT_FAILED_PRECONDITION, "group_begin in a group");
  must("group_end of an empty group", call(&Slots::group_end));
  must("group_begin", call(&Slots::group_begin));
  const CollectiveWork first(rank, {Collective::kAllReduce, PLIANT_I32, PLIANT_SUM, 1001});
  const CollectiveWork second(rank, {Collective::kAllGather, PLIANT_U8, PLIANT_SUM, 501});
  must("all_reduce in a group", first.enqueue(comm, stream));
  must("all_gather in a group", second.enqueue(comm, stream));
  stream.wait();  // nothing is enqueued before the end
  must("group_end", call(&Slots::group_end));
  stream.wait();
  first.verify();
  second.verify();
}

void groups(const Subject& subject) {
  need_collectives(subject);
  Ranks ranks(subject, "group", 3);
  ranks.carry_id();
  ranks.finish();
}

/// Nothing is done before the last rank has come. Rank 0 is the late one, and the root.
void late_script(const Rank& rank) {
  const Comm comm(rank, rank.id());
  comm.join();
  const Stream stream(rank.accelerator, rank.rank % rank.accelerator.devices());
  for (const Collective kind : kCollectives) {
    const CollectiveWork work(rank, {kind, PLIANT_F32, PLIANT_SUM, 501});
    rank.hear();
    must(name_of(kind), work.enqueue(comm, stream));
    if (rank.rank != 0) {
      const Stream other(rank.accelerator);
      const Memory memory(rank.accelerator, 1U << 20U);
      for (int i = 0; i < 20; ++i) {
        must("fill_async", rank.accelerator.call(&pliant_accelerator::fill_async, static_cast<void*>(memory.at()), i,
                                                 1U << 20U, other));
      }
      other.wait();
      expect(!stream.done(), work.words() + " is done before rank 0 has called it");
      rank.tell("waits");
    }
    stream.wait();
    work.verify();
    rank.tell("done");
  }
}

void waits_for_all(const Subject& subject) {
  need_collectives(subject);
  Ranks ranks(subject, "late", 3);
  ranks.carry_id();
  for (const Collective kind : kCollectives) {
    for (int32_t r = 1; r < 3; ++r) ranks.tell(r);
    for (int32_t r = 1; r < 3; ++r) ranks.hear(r, std::string("return of ") + name_of(kind));
    ranks.tell(0);
    ranks.hear_all(std::string("end of ") + name_of(kind));
  }
  ranks.finish();
}

void joining_script(const Rank& rank) {
  const pliant_comm_id id = rank.id();
  if (rank.rank == 1) rank.hear();
  const Comm comm(rank, id);
  if (rank.rank == 0) {
    const Outcome early = comm.status(0);
    expect(early.status == PLIANT_DEADLINE_EXCEEDED,
           "comm_status returned " + early.text() + " before all ranks joined, not PLIANT_DEADLINE_EXCEEDED");
    const Stream stream(rank.accelerator);
    const CollectiveWork work(rank, {Collective::kAllReduce, PLIANT_I32, PLIANT_SUM, 333});
    must("all_reduce before the communicator is ready", work.enqueue(comm, stream));
    expect(!stream.done(), "an all_reduce is done before the communicator is ready");
    rank.tell("enqueued");
    stream.wait();
    work.verify();
  } else {
    comm.join();
    const Stream stream(rank.accelerator, rank.rank % rank.accelerator.devices());
    run_one(rank, comm, stream, {Collective::kAllReduce, PLIANT_I32, PLIANT_SUM, 333});
  }
  const Outcome ready = comm.status(0);
  expect(ready.ok(), "comm_status returned " + ready.text() + " when all ranks had joined");
}

void joining(const Subject& subject) {
  need_collectives(subject);
  Ranks ranks(subject, "joining", 2);
  ranks.carry_id();
  ranks.hear(0, "return of comm_create before rank 1 has joined");
  ranks.tell(1);
  ranks.finish();
}

/// Before all have joined, before and after a collective, and while rank 0 waits in it for rank 1.
void query_script(const Rank& rank) {
  const Accelerator& accelerator = rank.accelerator;
  const pliant_collectives* table = accelerator.collectives();
  if (table->comm_query == nullptr) skip("its collectives have no comm_query");
  const pliant_comm_id id = rank.id();
  if (rank.rank == 1) rank.hear();
  const Comm comm(rank, id);
  const Stream stream(accelerator, rank.rank % accelerator.devices());
  const auto answers = [&](int32_t wanted, const char* when) {
    int32_t done = 1 - wanted;
    must("comm_query", accelerator.call(&pliant_collectives::comm_query, static_cast<pliant_comm*>(comm), &done));
    expect(done == wanted, "comm_query returned " + std::to_string(done) + " " + when);
  };
  const CollectiveWork work(rank, {Collective::kAllReduce, PLIANT_F32, PLIANT_SUM, 501});
  if (rank.rank == 0) {
    answers(0, "before rank 1 had joined");
    rank.tell("asked");
  }
  comm.join();
  answers(1, "when all ranks had joined and nothing was enqueued");
  if (rank.rank == 1) rank.hear();
  must("all_reduce", work.enqueue(comm, stream));
  if (rank.rank == 0) {
    answers(0, "while an all_reduce waited for rank 1");
    rank.tell("asked");
  }
  stream.wait();
  answers(1, "when all that was enqueued had run");
}

void queried(const Subject& subject) {
  need_collectives(subject);
  Ranks ranks(subject, "query", 2);
  ranks.carry_id();
  for (const char* awaited : {"comm_query while rank 1 joins", "comm_query in an all_reduce"}) {
    ranks.hear(0, awaited);
    ranks.tell(1);
  }
  ranks.finish();
}

/// Collectives between other work of a stream, and on two streams in turn, without a wait in between.
void stream_script(const Rank& rank) {
  const Comm comm(rank, rank.id());
  comm.join();
  const int32_t device = rank.rank % rank.accelerator.devices();
  const Stream first(rank.accelerator, device);
  const Stream second(rank.accelerator, device, PLIANT_STREAM_GATHER);
  const auto ranks = static_cast<uint64_t>(rank.world_size);
  constexpr uint64_t kCount = 3001;
  const Memory own(rank.accelerator, kCount, PLIANT_MEMORY_DEVICE, device);
  const Memory all(rank.accelerator, kCount * ranks, PLIANT_MEMORY_DEVICE, device);
  const Memory sum(rank.accelerator, kCount, PLIANT_MEMORY_DEVICE, device);
  std::vector<const void*> parts;
  for (uint64_t r = 0; r < ranks; ++r) parts.push_back(all.at(r * kCount));
  const void* const* from = parts.data();
  const CollectiveWork beside(rank, {Collective::kAllReduce, PLIANT_I32, PLIANT_SUM, 2003});
  using Slots = pliant_accelerator;
  for (int round = 0; round < 20; ++round) {
    must("fill_async",
         rank.accelerator.call(&Slots::fill_async, static_cast<void*>(own.at()), rank.rank + round, kCount, first));
    must("all_gather", rank.accelerator.call(&pliant_collectives::all_gather, comm, static_cast<const void*>(own.at()),
                                             static_cast<void*>(all.at()), kCount, PLIANT_U8, first));
    must("all_reduce", beside.enqueue(comm, second));
    must("reduce_async", rank.accelerator.call(&Slots::reduce_async, static_cast<void*>(sum.at()), from, ranks, kCount,
                                               PLIANT_U8, PLIANT_SUM, 1.0, first));
    must("barrier", rank.accelerator.call(&pliant_collectives::barrier, comm, second));
  }
  first.wait();
  second.wait();
  beside.verify();
  Bytes got(kCount);
  rank.accelerator.read(got.data(), sum.at(), kCount);
  const int wanted = (rank.world_size * (rank.world_size - 1) / 2 + rank.world_size * 19) % 256;
  for (const unsigned char byte : got) {
    expect(byte == wanted, "a gathered and summed byte is " + std::to_string(byte) + ", not " + std::to_string(wanted));
  }
}

void in_stream_order(const Subject& subject) {
  need_collectives(subject);
  Ranks ranks(subject, "stream", 3);
  ranks.carry_id();
  ranks.finish();
}

void sums_script(const Rank& rank) {
  const Comm comm(rank, rank.id());
  comm.join();
  const Stream stream(rank.accelerator, rank.rank % rank.accelerator.devices());
  for (const Collective kind : {Collective::kAllReduce, Collective::kReduceScatter}) {
    for (const int32_t dtype : {PLIANT_F32, PLIANT_F64}) {
      for (const uint64_t count : std::initializer_list<uint64_t>{3, 1001, 50021}) {
        const CollectiveWork work(rank, {kind, dtype, PLIANT_SUM, count, 0, false, Draw::kRounding});
        must(name_of(kind), work.enqueue(comm, stream));
        stream.wait();
        work.verify();
      }
    }
  }
}

void rank_order(const Subject& subject) {
  need_collectives(subject);
  if (!Accelerator(subject).has(PLIANT_CAP_FIXED_ORDER)) skip("it does not claim PLIANT_CAP_FIXED_ORDER");
  for (const int32_t world_size : {2, 3, 5, 8}) {
    Ranks ranks(subject, "sums", world_size);
    ranks.carry_id();
    ranks.finish();
  }
}

void digest_script(const Rank& rank) {
  const Comm comm(rank, rank.id());
  comm.join();
  const Stream stream(rank.accelerator, rank.rank % rank.accelerator.devices());
  uint64_t digest = 0;
  for (const Collective kind : {Collective::kAllReduce, Collective::kReduceScatter}) {
    for (const int32_t dtype : {PLIANT_F32, PLIANT_F64, PLIANT_F16, PLIANT_BF16}) {
      const CollectiveWork work(rank, {kind, dtype, PLIANT_SUM, 20011, 0, false, Draw::kRounding});
      must(name_of(kind), work.enqueue(comm, stream));
      stream.wait();
      for (const unsigned char byte : work.received()) digest = (digest ^ byte) * 0x100000001b3ULL;
    }
  }
  rank.tell(std::to_string(digest));
}

void repeatable(const Subject& subject) {
  need_collectives(subject);
  if (!Accelerator(subject).has(PLIANT_CAP_FIXED_ORDER)) skip("it does not claim PLIANT_CAP_FIXED_ORDER");
  for (const int32_t world_size : {2, 5}) {
    std::vector<std::string> first;
    for (int run = 0; run < 2; ++run) {
      Ranks ranks(subject, "digest", world_size);
      ranks.carry_id();
      std::vector<std::string> digests;
      for (int32_t r = 0; r < world_size; ++r) digests.push_back(ranks.hear(r, "sums"));
      ranks.finish();
      if (run == 0) first = digests;
      expect(digests == first, "sums at world size " + std::to_string(world_size) + " have other bits in a second run");
    }
  }
}

}  // namespace

std::vector<Script> collective_scripts() {
  return {{"values", values_script},   {"late", late_script},
          {"joining", joining_script}, {"stream", stream_script},
          {"one_way", one_way_script}, {"group", group_script},
          {"sums", sums_script},       {"digest", digest_script},
          {"query", query_script},     huge_script()};
}

std::vector<Check> collective_checks() {
  return {
      {"collectives.joining", "comm_create returns before others have joined, and work enqueued then waits", joining},
      {"collectives.all_reduce", "all_reduce is right at 1, 2, 3, 4, 7 and 8 ranks, for every type and operation",
       all_reduce, 90},
      {"collectives.all_gather", "all_gather is right at 1, 2, 3, 4, 7 and 8 ranks, in rank order", all_gather, 90},
      {"collectives.reduce_scatter",
       "reduce_scatter is right at 1, 2, 3, 4, 7 and 8 ranks, for every type and operation", reduce_scatter, 90},
      {"collectives.broadcast", "broadcast is right at 1, 2, 3, 4, 7 and 8 ranks, from every rank", broadcast, 90},
      {"collectives.barrier", "barrier ends at 1, 2, 3, 4, 7 and 8 ranks", barrier, 90},
      {"collectives.all_gather_v", "all_gather_v is right at 1, 2, 3, 4, 7 and 8 ranks, some of which send nothing",
       all_gather_v, 90},
      {"collectives.messages", "every rank of a group may send to every rank, at 1, 2, 3, 4, 7 and 8 ranks", messages,
       90},
      {"collectives.one_way", "messages without a group arrive in the order of the calls", one_way, 60},
      {"collectives.groups", "a group enqueues nothing before its end and does not nest", groups, 60},
      {"collectives.late", "no collective is done before the last rank has called it", waits_for_all, 60},
      {"collectives.query", "comm_query reports whether comm_destroy would end a join or running work", queried},
      {"collectives.order", "collectives run in stream order, between other work and on two streams in turn",
       in_stream_order, 60},
      {"collectives.huge", "collectives and messages of more than 4 GiB are complete", huge_collectives, 300},
      {"collectives.rank_order", "sums of f32 and f64 are added in rank order, bit by bit", rank_order, 90},
      {"collectives.repeat", "the same input gives the same bits in a second run", repeatable, 90},
  };
}

}  // namespace pliant::testkit
