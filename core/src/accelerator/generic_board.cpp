// Lays the words out, and sleeps on one of them.
#include "accelerator/generic_board.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <ctime>

namespace pliant::detail {

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

bool MessageBoard::is_there(const Called& carrier) {
  pliant_device_properties properties{};
  properties.struct_size = sizeof(properties);
  carrier(carrier.slots().device_properties, 0, &properties);
  return (properties.capabilities & PLIANT_CAP_HOST_VISIBLE) != 0 && PeerMemory::is_there(carrier, 0);
}

uint64_t MessageBoard::bytes_for(int32_t world_size) {
  return sizeof(Head) + static_cast<uint64_t>(world_size) * (sizeof(Offer) + sizeof(Want));
}

MessageBoard::MessageBoard(const Called& carrier, int32_t rank, int32_t world_size)
    : rank_(rank), world_size_(world_size), memory_(carrier, 0, rank, world_size, bytes_for(world_size)) {
  std::memset(memory_.stage(rank), 0, bytes_for(world_size));
}

Offer& MessageBoard::offer(int32_t from, int32_t to) const {
  return reinterpret_cast<Offer*>(lanes(from))[to];
}

Want& MessageBoard::want(int32_t from, int32_t to) const {
  return reinterpret_cast<Want*>(lanes(to) + static_cast<uint64_t>(world_size_) * sizeof(Offer))[from];
}

void MessageBoard::ring(int32_t rank) const {
  Head& rung = head(rank);
  rung.bell.fetch_add(1);
  if (rung.listens.load() != 0) futex(rung.bell, FUTEX_WAKE, INT_MAX, nullptr);
}

void MessageBoard::ring_all() const {
  for (int32_t r = 0; r < world_size_; ++r) ring(r);
}

void MessageBoard::await_ring(uint32_t seen) const {
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

void MessageBoard::leave() {
  if (has_left_.exchange(true)) return;
  head(rank_).has_left.store(1);
  ring_all();
}

int32_t MessageBoard::mismatch() const {
  for (int32_t r = 0; r < world_size_; ++r) {
    if (head(r).has_mismatch.load() != 0) return r;
  }
  return -1;
}

}  // namespace pliant::detail
