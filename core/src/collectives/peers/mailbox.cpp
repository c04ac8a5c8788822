// Lays the words out, and sleeps on one of them.
#include "collectives/peers/mailbox.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace pliant::collectives {

namespace {

/// Turns that a rank leaves to whoever wants its processor before it sleeps: peers are often that close.
constexpr int kYields = 50;
/// A rank that was killed rings nobody: those who wait for it look this often whether the carrier knows.
constexpr int64_t kLookNanoseconds = 5000000;

// Other processes sleep on the same word, so this is not the private kind that std::atomic::wait uses.
void futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* limit) {
  static_assert(sizeof(word) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, limit, nullptr, 0);
}

}  // namespace

bool Mailbox::is_there(const Called& carrier) {
  pliant_device_properties properties{};
  properties.struct_size = sizeof(properties);
  carrier.slots.must(&pliant_accelerator::device_properties, 0, &properties);
  return (properties.capabilities & PLIANT_CAP_HOST_VISIBLE) != 0 && PeerMemory::is_there(carrier, 0);
}

std::unique_ptr<Mailbox> Mailbox::agree(const Called& carrier, const Place& place, const Gather& gather) {
  std::unique_ptr<Mailbox> made;
  try {
    if (is_there(carrier)) made = std::make_unique<Mailbox>(carrier, place.rank, place.world_size);
  } catch (const sdk::Failure&) {  // none left: messages take pinned memory
  }
  if (made == nullptr) {
    PeerMemory::decline(place.world_size, gather);
  } else if (!made->memory_.join(gather)) {
    made = nullptr;
  }
  return made;
}

uint64_t Mailbox::bytes_for(int32_t world_size) {
  return sizeof(Head) + static_cast<uint64_t>(world_size) * (sizeof(Offer) + sizeof(Want));
}

Mailbox::Mailbox(const Called& carrier, int32_t rank, int32_t world_size)
    : rank_(rank), world_size_(world_size), memory_(carrier, 0, rank, world_size, bytes_for(world_size)) {
  Head& own = head(rank);
  for (std::atomic<uint32_t>* word : {&own.bell, &own.listens, &own.has_mismatch}) word->store(0);
  own.left.store(Left::kNot);
  own.collectives.store(0);
  own.misses.store(0);
  for (int32_t r = 0; r < world_size; ++r) {  // the rest counts once there are messages
    Offer& offered = offer(rank, r);
    Want& wanted = want(r, rank);
    for (std::atomic<uint64_t>* word : {&offered.begun, &offered.posted, &wanted.begun, &wanted.taken}) word->store(0);
  }
}

Offer& Mailbox::offer(int32_t from, int32_t to) const {
  return reinterpret_cast<Offer*>(lanes(from))[to];
}

Want& Mailbox::want(int32_t from, int32_t to) const {
  return reinterpret_cast<Want*>(lanes(to) + static_cast<uint64_t>(world_size_) * sizeof(Offer))[from];
}

void Mailbox::ring(int32_t rank) const {
  Head& rung = head(rank);
  rung.bell.fetch_add(1);
  if (rung.listens.load() != 0) futex(rung.bell, FUTEX_WAKE, INT_MAX, nullptr);
}

void Mailbox::ring_all() const {
  for (int32_t r = 0; r < world_size_; ++r) ring(r);
}

void Mailbox::await_ring(uint32_t seen) const {
  Head& own = head(rank_);
  for (int i = 0; i < kYields; ++i) {
    if (own.bell.load() != seen) return;
    ::sched_yield();
  }
  const timespec limit{0, kLookNanoseconds};
  own.listens.store(1);  // who rings before this has changed the bell, and the call returns at once
  futex(own.bell, FUTEX_WAIT, seen, &limit);
  own.listens.store(0);
}

void Mailbox::count_message(bool is_send, int32_t peer) const {
  (is_send ? offer(rank_, peer).begun : want(peer, rank_).begun).fetch_add(1);
}

void Mailbox::leave(Left how) {
  if (has_left_.exchange(true)) return;
  head(rank_).left.store(how);
  ring_all();
}

bool Mailbox::is_missing(int32_t rank) const {
  const Left left = head(rank).left.load();  // and with it the last of its counts
  if (left != Left::kDone) return left == Left::kUndone;
  return head(rank).collectives.load() < head(rank_).collectives.load() ||
         offer(rank, rank_).begun.load() < want(rank, rank_).begun.load() ||
         want(rank_, rank).begun.load() < offer(rank_, rank).begun.load();
}

std::optional<Mailbox::Missing> Mailbox::missing() const {
  if (has_left()) return std::nullopt;
  for (int32_t r = 0; r < world_size_; ++r) {
    if (r == rank_ || !is_missing(r)) continue;
    head(rank_).misses.store(r + 1);
    return Missing{r, rank_};
  }
  for (int32_t r = 0; r < world_size_; ++r) {
    if (const int32_t told = head(r).misses.load(); told != 0) return Missing{told - 1, r};
  }
  return std::nullopt;
}

int32_t Mailbox::mismatch() const {
  if (has_left()) return -1;
  for (int32_t r = 0; r < world_size_; ++r) {
    if (head(r).has_mismatch.load() != 0) return r;
  }
  return -1;
}

}  // namespace pliant::collectives
