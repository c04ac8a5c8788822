// What the survivors of a lost rank can do at once: make a communicator anew, shrink the old one, or grow it.
#include <optional>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/collective_work.hpp"

namespace pliant::testkit {

namespace {

using Table = pliant_collectives;

constexpr int32_t kRanks = 4;
constexpr int32_t kVictim = 1;
enum Way { kCreate = 0, kShrink = 1 };

int32_t device_of(const Rank& rank) {
  return rank.rank % rank.accelerator.devices();
}

/// The collectives have the slot. Where they have not, the ranks do what the host does.
template <class Slot>
bool has(const Accelerator& accelerator, Slot Table::*slot) {
  return accelerator.calls<Table>().has(slot);
}

/// Every rank gathers the ranks of all, by the numbers that they have in `rank`.
void gather_ranks(const Rank& rank, pliant_comm* comm, const std::string& what) {
  must("comm_status", rank.accelerator.call(&Table::comm_status, comm, -1));
  const Stream stream(rank.accelerator, device_of(rank));
  const Memory own(rank.accelerator, 4, PLIANT_MEMORY_DEVICE, device_of(rank));
  const auto world_size = static_cast<uint64_t>(rank.world_size);
  const Memory all(rank.accelerator, 4 * world_size, PLIANT_MEMORY_DEVICE, device_of(rank));
  rank.accelerator.write(own.at(), &rank.rank, 4);
  must("all_gather", rank.accelerator.call(&Table::all_gather, comm, static_cast<const void*>(own.at()),
                                           static_cast<void*>(all.at()), 1, PLIANT_I32, stream));
  must("stream_synchronize after all_gather", stream.synchronize());
  std::vector<int32_t> got(world_size);
  rank.accelerator.read(got.data(), all.at(), 4 * world_size);
  for (int32_t r = 0; r < rank.world_size; ++r) {
    expect(got[static_cast<size_t>(r)] == r, "in " + what + ", rank " + std::to_string(r) +
                                                 " of all_gather's result comes from rank " +
                                                 std::to_string(got[static_cast<size_t>(r)]));
  }
}

/// The victim dies while the others wait for it; they go on without it, the old communicator not yet destroyed.
void survivors_script(const Rank& rank) {
  const Comm comm(rank, rank.id());
  comm.join();
  rank.tell("joined");
  if (rank.rank == kVictim) rank.hear();  // for ever
  const Stream stream(rank.accelerator, device_of(rank));
  const CollectiveWork barrier(rank, {});
  must("barrier", barrier.enqueue(comm, stream));
  rank.tell("waits");
  expect(!stream.synchronize().ok(), "a barrier ended with PLIANT_OK though a rank was killed before it called it");
  const Rank next{rank.accelerator, rank.rank < kVictim ? rank.rank : rank.rank - 1, kRanks - 1, rank.seed, {}};
  rank.tell("back");
  const pliant_comm_id id = next.id();
  if (rank.numbers.at(0) == kShrink && !has(rank.accelerator, &Table::comm_shrink)) {
    comm.abort();
    const Comm made(next, id);
    gather_ranks(next, made, "a communicator that was aborted and created again without a rank");
    return;
  }
  if (rank.numbers.at(0) == kShrink) {
    sdk::OwnedComm made(rank.accelerator.calls<Table>());
    const int32_t without = kVictim;
    const int32_t* const list = &without;
    must("comm_shrink", rank.accelerator.call(&Table::comm_shrink, comm, list, 1, &id, made.out()));
    gather_ranks(next, made, "a communicator that was shrunk");
    return;
  }
  const Comm again(next, id);
  gather_ranks(next, again, "a communicator that survivors made");
}

void survive(const Subject& subject, Way way) {
  Ranks ranks(subject, "survivors", kRanks, {way});
  ranks.carry_id();
  ranks.hear_all("communicator");
  for (int32_t r = 0; r < kRanks; ++r) {
    if (r != kVictim) ranks.hear(r, "return of barrier");
  }
  ranks.kill(kVictim);
  for (int32_t r = 0; r < kRanks; ++r) {
    if (r != kVictim) ranks.hear(r, "end of barrier after a rank was killed");
  }
  const std::string id = ranks.hear(0, "communicator id of the survivors");
  for (int32_t r = 1; r < kRanks; ++r) {
    if (r != kVictim) ranks.tell(r, id);
  }
  ranks.finish(kVictim);
}

void create(const Subject& subject) {
  need_collectives(subject);
  survive(subject, kCreate);
}

void shrink(const Subject& subject) {
  need_collectives(subject);
  survive(subject, kShrink);
}

/// As rank.id(), made of the communicator that grows where the plugin wants that.
pliant_comm_id grow_id(const Rank& rank, const Comm* old) {
  if (rank.rank != 0 || !has(rank.accelerator, &Table::comm_grow_id)) return rank.id();
  pliant_comm_id made{};
  must("comm_grow_id",
       rank.accelerator.call(&Table::comm_grow_id, static_cast<pliant_comm*>(*old), rank.world_size, &made));
  rank.tell(std::string(reinterpret_cast<const char*>(made.bytes), sizeof(made.bytes)));
  return made;
}

/// Ranks 0 and 1 have a communicator, and rank 2 joins them.
void grow_script(const Rank& rank) {
  const Rank before{rank.accelerator, rank.rank, 2, rank.seed, {}};
  std::optional<Comm> old;
  if (rank.rank < 2) {
    old.emplace(before, before.id());
    old->join();
    gather_ranks(before, *old, "the communicator that grows");
    rank.tell("has gathered");
    rank.hear();  // an abort must not meet a peer that is still in a collective
  }
  if (!has(rank.accelerator, &Table::comm_grow)) {
    if (old) old->abort();
    const Comm made(rank, rank.id());
    gather_ranks(rank, made, "a communicator that was aborted and created again with one more rank");
    return;
  }
  const pliant_comm_id id = grow_id(rank, old ? &*old : nullptr);
  sdk::OwnedComm made(rank.accelerator.calls<Table>());
  pliant_comm* const from = old ? static_cast<pliant_comm*>(*old) : nullptr;
  must("comm_grow",
       rank.accelerator.call(&Table::comm_grow, device_of(rank), from, &id, rank.rank, rank.world_size, made.out()));
  gather_ranks(rank, made, "a communicator that has grown");
}

void grow(const Subject& subject) {
  need_collectives(subject);
  Ranks ranks(subject, "grow", 3);
  ranks.tell(1, ranks.hear(0, "communicator id"));
  for (int32_t r = 0; r < 2; ++r) ranks.hear(r, "end of all_gather");
  for (int32_t r = 0; r < 2; ++r) ranks.tell(r);
  ranks.carry_id();
  ranks.finish();
}

}  // namespace

std::vector<Script> renewal_scripts() {
  return {{"survivors", survivors_script}, {"grow", grow_script}};
}

std::vector<Check> renewal_checks() {
  return {
      {"renewal.create", "survivors of a killed rank create a new communicator at once, while the old one exists",
       create, 60},
      {"renewal.shrink", "survivors of a killed rank shrink their communicator and keep their order", shrink, 60},
      {"renewal.grow", "a communicator grows by a new rank, and the old ranks keep their numbers", grow, 60},
  };
}

}  // namespace pliant::testkit
